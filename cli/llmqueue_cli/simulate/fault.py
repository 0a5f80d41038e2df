"""One way to misbehave: its name, its parameters, and how a request asks for it.

A request asks with the header `x-sim-fault: NAME key=value …`, or with text anywhere in its body
such as `[[sim:fault=cut_body]]` or `[[sim:latency=2.5 output=100]]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from llmqueue_cli.simulate.catalogue import FAULTS

MARKER_HEADER = "x-sim-fault"
_MARKER = re.compile(rb"\[\[sim:([^\]]{1,400})\]\]")
_SEPARATOR = re.compile(r"[\s,;]+")
_TRUE, _FALSE = frozenset({"1", "true", "yes"}), frozenset({"0", "false", "no"})


class BadFault(ValueError):
    """A fault that the simulated provider does not know, or with unreadable parameters."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A known fault; `params` are read when it is carried out. Raises BadFault if unknown."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise BadFault(f"unknown fault {self.name!r}; known: {', '.join(sorted(FAULTS))}")

    def number(self, name: str, default: float) -> float:
        """A number ≥ 0. Raises BadFault."""
        return read_number(self.params, name, default)

    def flag(self, name: str, default: bool) -> bool:
        """A yes or no. Raises BadFault."""
        text = self.params.get(name, "").lower()
        if not text:
            return default
        if text not in _TRUE | _FALSE:
            raise BadFault(f"{name}={text!r} is neither true nor false")
        return text in _TRUE

    def text(self, name: str, default: str) -> str:
        return self.params.get(name, default)


def read_number(params: Mapping[str, str], name: str, default: float) -> float:
    """`params[name]` as a finite number ≥ 0. Raises BadFault."""
    try:
        value = float(params.get(name, default))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadFault(f"{name}={params[name]!r} is not a number of at least 0")
    return value


def parse_words(text: str) -> dict[str, str]:
    """`NAME key=value …`: a word without `=` is the fault's name."""
    found: dict[str, str] = {}
    for word in filter(None, _SEPARATOR.split(text.strip())):
        key, equals, value = word.partition("=")
        if equals:
            found[key] = value
        else:
            found["fault"] = key
    return found


def directives(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """All that a request asks of the simulation; later markers win over earlier ones."""
    found = parse_words(headers.get(MARKER_HEADER, ""))
    for match in _MARKER.finditer(body):
        found.update(parse_words(match[1].decode("utf-8", "replace")))
    return found


def fault_of(asked: Mapping[str, str]) -> Fault | None:
    """The fault among directives. Raises BadFault."""
    name = asked.get("fault")
    if not name:
        return None
    return Fault(name, {key: value for key, value in asked.items() if key != "fault"})
