"""Faults by a script: which one, when, how likely."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmqueue_cli.simulate.fault import BadFault, Fault

if TYPE_CHECKING:
    from pydantic import JsonValue

LISTENER_FAULT = "connect_refused"
"""Befalls the listener, not a call."""
_OWN_FIELDS = frozenset({"from_s", "to_s", "fault", "probability", "count"})


@dataclass(frozen=True, slots=True)
class Rule:
    """`fault` befalls calls between two times since the script began, with a probability, at most
    `count` times."""

    fault: Fault
    from_seconds: float = 0.0
    to_seconds: float = math.inf
    probability: float = 1.0
    count: float = math.inf


class Schedule:
    """A running script. `pick` is asked once for each call."""

    def __init__(self, rules: Sequence[Rule], *, started: float, rng: random.Random) -> None:
        self._left = [(rule, rule.count) for rule in rules]
        self._started = started
        self._rng = rng

    def pick(self, now: float) -> Fault | None:
        """The first rule's fault that applies now; chance is rolled for each rule in turn."""
        elapsed = now - self._started
        for index, (rule, left) in enumerate(self._left):
            if left <= 0 or not rule.from_seconds <= elapsed < rule.to_seconds:
                continue
            if rule.fault.name == LISTENER_FAULT:
                continue
            if rule.probability >= 1 or self._rng.random() < rule.probability:
                self._left[index] = (rule, left - 1)
                return rule.fault
        return None

    def closed_spans(self) -> list[tuple[float, float]]:
        """When, on the schedule's clock, the listener is to be closed."""
        return sorted(
            (self._started + rule.from_seconds, self._started + rule.to_seconds)
            for rule, _ in self._left
            if rule.fault.name == LISTENER_FAULT
        )


def parse_script(text: str | bytes) -> tuple[Rule, ...]:
    """A JSON list of rules, or a single one. Raises BadFault that names the rule."""
    try:
        document: JsonValue = json.loads(text)
    except ValueError as exc:
        raise BadFault(f"the script is not JSON: {exc}") from exc
    listed = document if isinstance(document, list) else [document]
    return tuple(_rule(number, each) for number, each in enumerate(listed, 1))


def _rule(number: int, given: JsonValue) -> Rule:
    if not isinstance(given, dict):
        raise BadFault(f"rule {number} is no object")
    try:
        params = {key: _text(value) for key, value in given.items() if key not in _OWN_FIELDS}
        rule = Rule(
            Fault(str(given.get("fault", "")), params),
            _number(given.get("from_s", 0)),
            _number(given.get("to_s", math.inf)),
            _number(given.get("probability", 1)),
            _number(given.get("count", math.inf)),
        )
    except (ValueError, TypeError) as exc:
        raise BadFault(f"rule {number}: {exc}") from exc
    if rule.fault.name == LISTENER_FAULT and math.isinf(rule.to_seconds):
        raise BadFault(f"rule {number}: connect_refused needs to_s, or nothing could end it")
    return rule


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _number(value: JsonValue) -> float:
    if isinstance(value, (str, int, float)):
        return float(value)
    raise ValueError(f"{json.dumps(value)} is no number")
