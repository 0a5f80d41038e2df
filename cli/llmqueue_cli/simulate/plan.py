"""What one call will do: how long it takes, what it uses, and how it misbehaves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llmqueue_cli.simulate.fault import Fault, read_number
from llmqueue_cli.simulate.options import ProviderOptions
from llmqueue_cli.simulate.shapes.port import Ask, Usage


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a call, done in `seconds`."""

    seconds: float
    usage: Usage


class Planner:
    """Draws the work of each call; what the request asks for wins over the distributions."""

    def __init__(self, options: ProviderOptions, rng: random.Random) -> None:
        self._options = options
        self._rng = rng
        self._times: Counter[str] = Counter()

    def work(self, ask: Ask, asked: Mapping[str, str]) -> Work:
        """`asked`: latency (s), input, output, cache_read, cache_write, reasoning (tokens).

        Raises BadFault.
        """
        options = self._options
        drawn = round(options.output_tokens.draw(self._rng))
        most = drawn if ask.max_output_tokens is None else min(drawn, ask.max_output_tokens)
        usage = Usage(
            input_tokens=int(read_number(asked, "input", ask.input_tokens)),
            output_tokens=int(read_number(asked, "output", max(1, most))),
            cache_read_tokens=int(read_number(asked, "cache_read", 0)),
            cache_write_tokens=int(read_number(asked, "cache_write", 0)),
            reasoning_tokens=int(read_number(asked, "reasoning", 0)),
        )
        drawn_seconds = options.latency.draw(self._rng)
        drawn_seconds += usage.output_tokens * options.seconds_per_token
        return Work(read_number(asked, "latency", drawn_seconds), usage)

    def still_faulty(self, fault: Fault, who: str) -> bool:
        """Whether a fault asked for `times=` times has not befallen `who` that often yet.

        Raises BadFault.
        """
        times = fault.number("times", 0)
        if not times:
            return True
        self._times[who] += 1
        return self._times[who] <= times
