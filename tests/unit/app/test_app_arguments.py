"""Handlers as applications write them: names, signatures, arguments as JSON, mistakes in words."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from llmqueue.app import App, Failure, HandlerCall
from llmqueue.errors import InvalidJob

if TYPE_CHECKING:
    from llmqueue.app import Context  # as linters want it: only type checkers see it


class Part(BaseModel):
    title: str
    pages: int = 1


@dataclasses.dataclass
class Place:
    row: int


app = App()


@app.handler("summarise")
async def summarise(ctx: Context, document: str, *, language: str = "en") -> str:
    """Says what it got."""
    return f"{document} {language}"


@app.handler()
async def typed(ctx: Context, part: Part, place: Place, due: datetime.date) -> Any:
    return part, place, due


@app.handler()
async def odd_names(ctx: Context, json: str, model_config: int, copy: bool) -> None: ...


async def test_a_handler_is_still_the_function() -> None:
    assert await summarise(None, "x", language="fr") == "x fr"  # type: ignore[arg-type]
    assert summarise.__doc__ == "Says what it got."
    assert (summarise.name, typed.name) == ("summarise", "typed")
    assert set(app.handlers) == {"summarise", "typed", "odd_names"}


def test_a_job_describes_a_call() -> None:
    assert summarise.job(document="x") == HandlerCall("summarise", {"document": "x"})
    assert summarise.job("x", language="fr").args == {"document": "x", "language": "fr"}


def test_arguments_come_back_as_they_went() -> None:
    part, place, due = Part(title="a"), Place(7), datetime.date(2026, 11, 30)
    call = typed.job(part, place, due)
    assert call.args == {
        "part": {"title": "a", "pages": 1},
        "place": {"row": 7},
        "due": "2026-11-30",
    }
    payload = b'{"part":{"title":"a"},"place":{"row":7},"due":"2026-11-30"}'
    assert typed.arguments.parse(payload) == {"part": part, "place": place, "due": due}


def test_a_parameter_may_have_any_name() -> None:
    call = odd_names.job(json="x", model_config=1, copy=True)
    assert call.args == {"json": "x", "model_config": 1, "copy": True}


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"{}", "handler 'summarise': argument document: Field required"),
        (b'{"document":1}', "argument document: Input should be a valid string"),
        (b'{"document":"x","lang":"fr"}', "argument lang: Extra inputs are not permitted"),
        (b"[]", "arguments: Input should be an object"),
        (b"{", "arguments: Invalid JSON"),
        (b"\xff", "arguments: Invalid JSON"),
    ],
    ids=["missing", "wrong type", "unknown", "no object", "no JSON", "no text"],
)
def test_bad_arguments_are_named(payload: bytes, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        summarise.arguments.parse(payload)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"document": 1}, "argument document: Input should be a valid string"),
        ({}, "missing a required argument: 'document'"),
        ({"document": object()}, "no JSON: Unable to serialize unknown type"),
        ({"document": "x", "lang": "fr"}, "unexpected keyword argument 'lang'"),
    ],
    ids=["wrong type", "missing", "no JSON", "unknown"],
)
def test_producers_hear_of_bad_arguments(args: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        summarise.job(**args)


# ---------------------------------------------------------------- what can't be a handler


async def no_context() -> None: ...
async def only_keywords(*, ctx: Context) -> None: ...
async def any_number(ctx: Context, *documents: str) -> None: ...
async def any_name(ctx: Context, **documents: str) -> None: ...
async def unnamed(ctx: Context, document: str, /) -> None: ...
async def no_json_type(ctx: Context, document: Exception) -> None: ...
async def unknown_type(ctx: Context, document: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def not_async(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_context, "its first parameter must be the context"),
        (only_keywords, "its first parameter must be the context"),
        (any_number, "has no name of its own"),
        (any_name, "has no name of its own"),
        (unnamed, "has no name of its own"),
        (no_json_type, "must be types that JSON can carry"),
        (unknown_type, "must be imported at run time"),
        (not_async, "an `async def` function is needed"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_a_handler_is_refused_at_import(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        App().handler()(function)


@pytest.mark.parametrize("name", ["", "x" * 65, "\x01failure", "a\nb"])
def test_names_are_bounded(name: str) -> None:
    def rename(function: Any) -> Any:
        function.__name__ = name
        return function

    async def handler(ctx: Context) -> None: ...

    with pytest.raises(TypeError, match="printable characters"):
        App().handler(name)(rename(handler))


def test_names_are_registered_once() -> None:
    with pytest.raises(TypeError, match="registered twice"):
        app.handler("summarise")(odd_names.function)


def test_parentheses_are_asked_for() -> None:
    with pytest.raises(TypeError, match="with parentheses"):
        app.handler(odd_names.function)  # type: ignore[arg-type]


def test_one_function_hears_of_failures() -> None:
    fresh = App()

    @fresh.on_failure
    async def failed(failure: Failure) -> None: ...

    assert fresh.failed is failed
    with pytest.raises(TypeError, match="registered twice"):
        fresh.on_failure(failed)
    with pytest.raises(TypeError, match="async def"):
        App().on_failure(not_async)  # type: ignore[arg-type]
