"""What the simulated provider counted: every call, every bill, each limit's worst window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from llmqueue_cli.simulate.limits import Demand, Dimension, Limits, TokenCounting

_MOST_NAMED_JOBS = 20


@dataclass(slots=True)
class CallRecord:
    """One call. Times are Unix seconds; `status` is None while it runs and where none was sent."""

    number: int
    job: str
    """"<job id>" of the idempotency key "<job id>/<call>"; the key itself where it has no slash."""
    key: str
    start: float
    model: str = ""
    stream: bool = False
    end: float | None = None
    status: int | None = None
    refused: bool = False
    """Answered 429 by the provider's own limiter."""
    fault: str | None = None
    billed: bool = False
    replayed: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    reserved_tokens: int = 0


@dataclass(slots=True)
class _Counted:
    """What one call added to a window, under the limits in force when it came."""

    at: float
    amounts: dict[Dimension, int]
    limits: Limits
    output_at: float | None = None

    def entry(self, dimension: Dimension) -> tuple[float, int, int | None]:
        """(time, amount, limit); output that is counted as produced has a time of its own."""
        produced = self.output_at if dimension is Dimension.OUTPUT_TOKENS else None
        at = self.at if produced is None else produced
        return at, self.amounts[dimension], self.limits.of(dimension)


@dataclass(frozen=True, slots=True)
class Worst:
    """The fullest window of one dimension, as a sum and the limit in force at its end."""

    dimension: Dimension
    amount: int = 0
    limit: int | None = None

    @property
    def share(self) -> float:
        if self.limit is None:
            return 0.0
        return self.amount / self.limit if self.limit else float(self.amount > 0)


@dataclass(slots=True)
class _Totals:
    refused: int = 0
    billed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    by_status: Counter[str] = field(default_factory=Counter[str])
    injected: Counter[str] = field(default_factory=Counter[str])
    injected_status: Counter[int] = field(default_factory=Counter[int])
    billed_jobs: Counter[str] = field(default_factory=Counter[str])


class Ledger:
    """Everything counted since the start or the last reset.

    Windows are measured over all calls that arrived, refused ones too: a client that keeps the
    limits is one whose arrivals do.

    Args:
        clock: monotonic seconds. wall: the same moment as Unix seconds.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        counting: TokenCounting,
        window_seconds: float,
    ) -> None:
        self._clock = clock
        self._to_wall = wall() - clock()
        self._counting: TokenCounting = counting
        self._window_seconds = window_seconds
        self.reset()

    def reset(self) -> None:
        """Forget everything but the calls that are running; those end uncounted."""
        self.calls: list[CallRecord] = []
        self._counted: list[_Counted] = []
        self._totals = _Totals()
        self._limited = {Dimension.REQUESTS}

    def arrive(self, *, key: str, demand: Demand, limits: Limits, **details: Any) -> LiveCall:
        """Count a call that was read."""
        now = self._clock()
        amounts = demand.amounts(self._counting)
        record = CallRecord(
            number=len(self.calls),
            job=key.rpartition("/")[0] or key,
            key=key,
            start=now + self._to_wall,
            reserved_tokens=amounts[Dimension.TOKENS],
            **details,
        )
        counted = _Counted(now, amounts, limits)
        self._limited.update(each for each in Dimension if limits.of(each) is not None)
        self.calls.append(record)
        self._counted.append(counted)
        totals = self._totals
        totals.in_flight += 1
        totals.max_in_flight = max(totals.max_in_flight, totals.in_flight)
        return LiveCall(self, record, counted, totals)

    def now(self) -> float:
        """Unix seconds now."""
        return self._clock() + self._to_wall

    def settle(self, counted: _Counted, input_tokens: int, output_tokens: int) -> None:
        """With `correct`: the actual usage takes the place of the reservation."""
        if self._counting == "correct":
            counted.amounts[Dimension.TOKENS] = input_tokens + output_tokens
            counted.amounts[Dimension.INPUT_TOKENS] = input_tokens
            counted.amounts[Dimension.OUTPUT_TOKENS] = output_tokens
            counted.output_at = self._clock()

    def worst(self, dimension: Dimension) -> Worst:
        """The window nearest the limit in force at its end; the fullest one where none was."""
        rows = [row.entry(dimension) for row in self._counted]
        if dimension is Dimension.OUTPUT_TOKENS:
            rows.sort(key=lambda row: row[0])
        worst, used, first = Worst(dimension), 0, 0
        for at, amount, limit in rows:
            used += amount
            while rows[first][0] + self._window_seconds <= at:
                used -= rows[first][1]
                first += 1
            found = Worst(dimension, used, limit)
            if (found.share, used) > (worst.share, worst.amount):
                worst = found
        return worst

    def stats(self, limits: Limits) -> dict[str, Any]:
        """All counts, as JSON. `worst_60s` and `limit` are of the dimension nearest its limit;
        `worst` has every dimension that was ever limited, and requests."""
        totals = self._totals
        worst = {each: self.worst(each) for each in Dimension if each in self._limited}
        nearest = max(worst.values(), key=lambda each: (each.share, each.limit is not None))
        twice = sorted(job for job, count in totals.billed_jobs.items() if count > 1)
        return {
            "calls": len(self.calls),
            "ok": totals.by_status["200"],
            "answered_429": totals.refused,
            "injected_429": totals.injected_status[429],
            "injected_529": totals.injected_status[529],
            "injected": dict(totals.injected),
            "by_status": dict(totals.by_status),
            "worst_60s": nearest.amount,
            "limit": nearest.limit,
            "dimension": nearest.dimension,
            "worst": {each: {"worst": w.amount, "limit": w.limit} for each, w in worst.items()},
            "limits": asdict(limits),
            "billed": {
                "calls": totals.billed,
                "jobs": len(totals.billed_jobs),
                "input_tokens": totals.input_tokens,
                "output_tokens": totals.output_tokens,
            },
            "billed_twice": len(twice),
            "billed_twice_jobs": twice[:_MOST_NAMED_JOBS],
            "in_flight": totals.in_flight,
            "max_in_flight": totals.max_in_flight,
            "first_start": self.calls[0].start if self.calls else None,
        }

    def billed_by_job(self) -> Mapping[str, int]:
        """How often each job was billed; calls without a key are not in it."""
        return dict(self._totals.billed_jobs)

    def log(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """The calls from number `since` on, as JSON."""
        return (asdict(record) for record in self.calls[since:])


class LiveCall:
    """A call that runs: what happens to it is booked here."""

    def __init__(
        self, ledger: Ledger, record: CallRecord, counted: _Counted, totals: _Totals
    ) -> None:
        self._ledger = ledger
        self.record = record
        self._counted = counted
        self._totals = totals

    def refused(self) -> None:
        """The own limiter said no."""
        self.record.refused = True
        self._totals.refused += 1

    def injected(self, fault: str) -> None:
        self.record.fault = fault
        self._totals.injected[fault] += 1

    def bill(self, input_tokens: int, output_tokens: int, *, counted_input_tokens: int) -> bool:
        """The work was done and will be paid for, once for each call; False where it was before.

        `counted_input_tokens` is what the limits count: cache reads are billed but not counted.
        """
        record, totals = self.record, self._totals
        if record.billed or record.replayed:
            return False
        record.billed = True
        record.input_tokens, record.output_tokens = input_tokens, output_tokens
        totals.billed += 1
        totals.input_tokens += input_tokens
        totals.output_tokens += output_tokens
        if record.job:
            totals.billed_jobs[record.job] += 1
        self._ledger.settle(self._counted, counted_input_tokens, output_tokens)
        return True

    def answered(self, status: int) -> None:
        """A status line was sent, or at least begun."""
        self.record.status = status
        self._totals.by_status[str(status)] += 1
        if self.record.fault:
            self._totals.injected_status[status] += 1

    def ended(self) -> None:
        """The call is over; one that was let in and not billed used no tokens."""
        record = self.record
        record.end = self._ledger.now()
        if not (record.refused or record.billed):
            self._ledger.settle(self._counted, 0, 0)
        self._totals.in_flight -= 1
