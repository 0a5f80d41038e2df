"""The Lua scripts: shared parts and one file each, loaded once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_SHARED = (
    "_clock.lua",
    "_windows.lua",
    "_jobs.lua",
    "_trouble.lua",
    "_workers.lua",
    "_housekeeping.lua",
)
_REFUSED_WHEN_FULL = frozenset({"enqueue"})
"""Every other script must run when memory is used up, or nothing could ever leave the queue."""


@dataclass(frozen=True, slots=True)
class Script:
    """Source and SHA-1 as EVALSHA wants it."""

    name: str
    source: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """The script `lua/<name>.lua` with the shared parts in front.

    The engine's flags go into its first line; `allow-oom` on all but enqueue.
    """
    folder = files("llmqueue.store").joinpath("lua")
    head = "#!lua" if name in _REFUSED_WHEN_FULL else "#!lua flags=allow-oom"
    parts = [folder.joinpath(part).read_text("utf-8") for part in (*_SHARED, f"{name}.lua")]
    source = "\n".join([head, *parts]).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())
