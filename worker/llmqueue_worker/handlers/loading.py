"""The module with a queue's handlers, imported once at the start of the process."""

from __future__ import annotations

import importlib
import os
import traceback

from llmqueue.app import App
from llmqueue.errors import UsageError

ATTRIBUTE = "app"


def load_app(name: str) -> App:
    """The App of a module. Raises UsageError: what is missing, and where it was looked for."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise UsageError(
                f"spec.worker.handlers: there is no module {name!r}: it must be importable from"
                f" {os.getcwd()!r}, the working directory of the worker, or be installed"
            ) from exc
        raise _broken(name, exc) from exc
    except Exception as exc:
        raise _broken(name, exc) from exc
    found = getattr(module, ATTRIBUTE, None)
    if found is None:
        raise UsageError(
            f"spec.worker.handlers: module {name!r} has no attribute `{ATTRIBUTE}`: write"
            f" `{ATTRIBUTE} = App()` there, with App of llmqueue.app"
        )
    if not isinstance(found, App):
        raise UsageError(
            f"spec.worker.handlers: `{ATTRIBUTE}` of module {name!r} must be an App of"
            f" llmqueue.app, it is of type {type(found).__name__}"
        )
    return found


def _broken(name: str, exc: Exception) -> UsageError:
    # The place of the mistake is in their code, not in ours.
    frames = traceback.extract_tb(exc.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return UsageError(
        f"spec.worker.handlers: module {name!r} cannot be imported:"
        f" {type(exc).__name__}: {exc}{where}"
    )
