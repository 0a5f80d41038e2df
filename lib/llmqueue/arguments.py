"""Arguments of a handler: validated against its signature, as JSON on the way, never pickled."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from llmqueue.errors import InvalidJob

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """The parameters of a handler after its context.

    Raises TypeError where the function cannot be one: a decorator's mistake, seen at import.
    """

    def __init__(self, handler: str, function: Callable[..., Any]) -> None:
        self._handler = handler
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"handler {handler!r}: an `async def` function is needed")
        found = list(inspect.signature(function).parameters.values())
        if not found or found[0].kind not in _POSITIONAL:
            raise TypeError(f"handler {handler!r}: its first parameter must be the context")
        parameters = found[1:]
        for parameter in parameters:
            if parameter.kind not in _NAMED:
                raise TypeError(
                    f"handler {handler!r}: parameter {parameter} has no name of its own;"
                    " arguments are a JSON object"
                )
        self._signature = inspect.Signature(parameters)
        self._model = _model(handler, function, parameters)
        self._fields = {name: parameter.name for name, parameter in _numbered(parameters)}

    def parse(self, payload: bytes) -> dict[str, Any]:
        """Values to call the function with. Raises InvalidJob with a sentence for each mistake."""
        try:
            found = self._model.model_validate_json(payload)
        except ValidationError as exc:
            raise self._invalid(exc) from None
        return {name: getattr(found, field) for field, name in self._fields.items()}

    def as_json(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one call as JSON values. Raises InvalidJob."""
        try:
            bound = self._signature.bind(*args, **kwargs)
            plain: dict[str, Any] = to_jsonable_python(bound.arguments)
            self._model.model_validate_json(json.dumps(plain))
        except TypeError as exc:
            raise InvalidJob(f"handler {self._handler!r}: {exc}") from None
        except PydanticSerializationError as exc:
            raise InvalidJob(f"handler {self._handler!r}: no JSON: {exc}") from None
        except ValidationError as exc:
            raise self._invalid(exc) from None
        return plain

    def _invalid(self, exc: ValidationError) -> InvalidJob:
        problems = "; ".join(
            f"{_place(error['loc'])}: {error['msg']}"
            for error in exc.errors(include_url=False, include_input=False)
        )
        return InvalidJob(f"handler {self._handler!r}: {problems}")


def _place(location: tuple[int | str, ...]) -> str:
    return f"argument {'.'.join(map(str, location))}" if location else "arguments"


def _numbered(parameters: list[inspect.Parameter]) -> list[tuple[str, inspect.Parameter]]:
    # Fields have names of their own: a parameter may be called as something that models have.
    return [(f"argument_{n}", parameter) for n, parameter in enumerate(parameters)]


def _hints(
    handler: str, function: Callable[..., Any], parameters: list[inspect.Parameter]
) -> dict[str, Any]:
    """Types of the parameters alone: the context's may be known to type checkers only."""
    written = {
        parameter.name: parameter.annotation
        for parameter in parameters
        if parameter.annotation is not parameter.empty
    }
    carrier = SimpleNamespace(__annotations__=written)
    try:
        return get_type_hints(
            carrier, globalns=getattr(function, "__globals__", {}), include_extras=True
        )
    except NameError as exc:
        raise TypeError(
            f"handler {handler!r}: {exc}: the types of arguments must be imported at run time, in"
            " the module of the handler"
        ) from exc


def _model(
    handler: str, function: Callable[..., Any], parameters: list[inspect.Parameter]
) -> type[BaseModel]:
    hints = _hints(handler, function, parameters)
    fields: dict[str, Any] = {}
    for field, parameter in _numbered(parameters):
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        fields[field] = (
            hints.get(parameter.name, Any),
            Field(default=default, alias=parameter.name),
        )
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        return create_model(f"arguments of {handler}", __config__=config, **fields)
    except PydanticUserError as exc:
        raise TypeError(
            f"handler {handler!r}: its arguments must be types that JSON can carry: {exc.message}"
        ) from exc
