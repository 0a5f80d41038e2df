"""The Lua library: shared parts, and one file for each function."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_SHARED = (
    "_clock.lua",
    "_limits.lua",
    "_days.lua",
    "_windows.lua",
    "_pacer.lua",
    "_events.lua",
    "_meters.lua",
    "_jobs.lua",
    "_lanes.lua",
    "_tenants.lua",
    "_shares.lua",
    "_batches.lua",
    "_trouble.lua",
    "_grants.lua",
    "_outcomes.lua",
    "_handlers.lua",
    "_failures.lua",
    "_workers.lua",
    "_housekeeping.lua",
    "_asserted.lua",
    "_library.lua",
)
_REFUSED_WHEN_FULL = frozenset({"enqueue", "batch_open"})
"""Every other function must run when memory is used up, or nothing could ever leave the queue."""
_READ_ONLY = frozenset({"read", "states"})


@dataclass(frozen=True, slots=True)
class Library:
    """Name and source as FUNCTION LOAD wants them.

    The name holds a digest of the source: versions that run side by side don't replace each other.
    """

    name: str
    source: bytes

    def function(self, name: str) -> str:
        """What FCALL wants for the function of `lua/<name>.lua`."""
        return f"{self.name}_{name}"


@cache
def library() -> Library:
    provided = [f"provide('{name}', {_flags(name)}, {_body(name)})" for name in _names()]
    text = "\n".join([*_shared(), *provided])
    name = f"llmqueue_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return Library(name, f"#!lua name={name}\nlocal LIBRARY = '{name}'\n{text}".encode())


def script_when_full(name: str) -> bytes | None:
    """The function as a script: a server without free memory runs that, yet loads no library.

    None where the function is one that must wait for memory.
    """
    if name in _REFUSED_WHEN_FULL:
        return None
    lines = ["#!lua flags=allow-oom", "local LIBRARY", *_shared()]
    return "\n".join([*lines, f"return perform({_body(name)}, KEYS, ARGV)"]).encode()


def _flags(name: str) -> str:
    if name in _READ_ONLY:
        return "{'no-writes'}"
    return "{}" if name in _REFUSED_WHEN_FULL else "{'allow-oom'}"


def _folder() -> Traversable:
    return files("llmqueue.store").joinpath("lua")


def _names() -> list[str]:
    stems = (file.name.removesuffix(".lua") for file in _folder().iterdir())
    return sorted(stem for stem in stems if not stem.startswith("_"))


def _shared() -> list[str]:
    return [_folder().joinpath(name).read_text("utf-8") for name in _SHARED]


def _body(name: str) -> str:
    return f"function(KEYS, ARGV)\n{_folder().joinpath(f'{name}.lua').read_text('utf-8')}\nend"
