"""What applications write: their own async functions as handlers of jobs.

    app = App()

    @app.handler("summarise")
    async def summarise(ctx: Context, document: str) -> str:
        answer = await ctx.llm.chat(model="gpt-4o", messages=[...])
        return answer["choices"][0]["message"]["content"]

A worker calls them; a producer makes checked jobs of them: `summarise.job(document="…")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

from llmqueue.arguments import Arguments
from llmqueue.errors import LlmqueueError
from llmqueue.states import Severity

__all__ = [
    "App",
    "CallRefused",
    "Context",
    "Failure",
    "Handler",
    "HandlerCall",
    "Llm",
    "Reject",
    "Retry",
]

FAILURE_HANDLER = "\x01failure"
"""What the store names as the handler of a failure job; no function can be called so."""
_MAX_NAME_CHARACTERS = 64

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Reject(Exception):
    """Raised by a handler: the job can never succeed. It dies at once, with these words."""

    def __init__(self, message: str, *, severity: Severity = Severity.ERROR) -> None:
        super().__init__(message)
        self.severity = severity


class Retry(Exception):
    """Raised by a handler: run me again, not before `after_seconds`. It uses up an attempt."""

    def __init__(self, message: str, *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class CallRefused(LlmqueueError):
    """The provider will never take this request; others of the same job it may take.

    Not caught, it ends the job as dead. `status` is None where nothing was sent.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "",
        severity: Severity = Severity.ERROR,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.code, self.severity = message, status, code, severity


class Llm(Protocol):
    """The way to the provider: one call at a time, each charged, booked and never paid again."""

    async def post(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One request, as payload mode takes it; returns the parsed answer. Raises CallRefused."""
        ...

    async def chat(
        self, *, model: str, messages: Sequence[Mapping[str, Any]], **parameters: Any
    ) -> dict[str, Any]:
        """`post` of a payload with these fields."""
        ...


class Context(Protocol):
    """What a handler knows of its job, and how it reaches the provider."""

    @property
    def job_id(self) -> str: ...
    @property
    def attempt(self) -> int:
        """1 for the first run; counts recorded runs."""
        ...

    @property
    def tenant(self) -> str: ...
    @property
    def feature(self) -> str: ...
    @property
    def correlation_id(self) -> str: ...
    @property
    def llm(self) -> Llm: ...
    async def progress(self, fraction: float, message: str = "") -> None:
        """Show how far the job is, 0–1. At most one a second is written, the last one always."""
        ...


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A job for a handler: its name and its arguments as JSON values."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that died or went to review. An event may arrive twice: with the same `event_id`.

    `outcome` is the class of its last call or run, "" where it ended for another reason, as
    `message` says. `handler` is "" and `payload` the provider's request for a job without handler,
    else `payload` holds its arguments; None where it is not kept any more.
    """

    event_id: str
    job_id: str
    queue: str
    handler: str
    tenant: str
    feature: str
    state: Literal["dead", "review"]
    outcome: str
    message: str
    attempts: int
    payload: dict[str, Any] | None = None


OnFailure = Callable[[Failure], Awaitable[None]]
Function = Callable[Concatenate[Context, P], Awaitable[R_co]]


class Handler(Generic[P, R_co]):
    """A registered function: still called as before, and able to describe a job of itself."""

    def __init__(self, name: str, function: Function[P, R_co]) -> None:
        self.name = name
        self.function = function
        self.arguments = Arguments(name, function)
        self.__doc__ = function.__doc__

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        return self.function(ctx, *args, **kwargs)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> HandlerCall:
        """A job that calls this function. Raises InvalidJob, naming the argument."""
        return HandlerCall(self.name, self.arguments.as_json(args, kwargs))


class App:
    """The handlers of an application. A worker imports the module that holds it as `app`."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[..., Any]] = {}
        self.failed: OnFailure | None = None

    def handler(self, name: str | None = None) -> Callable[[Function[P, R_co]], Handler[P, R_co]]:
        """Register an async function under a name, by default its own.

        The name is kept in each job: keep it when the function is renamed.
        """
        if callable(name):
            raise TypeError("write @app.handler() with parentheses, or @app.handler('name')")

        def register(function: Function[P, R_co]) -> Handler[P, R_co]:
            chosen = name or getattr(function, "__name__", "")
            if not chosen or len(chosen) > _MAX_NAME_CHARACTERS or not chosen.isprintable():
                raise TypeError(
                    f"handler name {chosen!r}: 1 to {_MAX_NAME_CHARACTERS} printable characters"
                    " are needed"
                )
            if chosen in self.handlers:
                raise TypeError(f"handler {chosen!r} is registered twice: names must differ")
            handler = Handler(chosen, function)
            self.handlers[chosen] = handler
            return handler

        return register

    def on_failure(self, function: OnFailure) -> OnFailure:
        """Register the function that hears of jobs that died or went to review."""
        if not inspect.iscoroutinefunction(function):
            raise TypeError("app.on_failure: an `async def` function is needed")
        if self.failed is not None:
            raise TypeError("app.on_failure is registered twice: one function hears of failures")
        self.failed = function
        return function
