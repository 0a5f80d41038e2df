"""What a producer enqueues for a handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """The handler's name and its arguments by name, as JSON values."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
