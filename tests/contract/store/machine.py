"""A hypothesis state machine that drives a real server and checks what must always hold.

The model knows what was asked and answered; after each step the server's raw structures are read
and compared: jobs conserved, counters equal structures, no window over, in flight = live leases,
each fence settled once, ledger = bill = meters; batches count what their jobs are, and their
followers are stored once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmqueue.batch import NewBatch
from llmqueue.config import (
    Limit,
    Retention,
    RetryPolicy,
    TenantLimits,
    UnknownOutcomePolicy,
)
from llmqueue.errors import BatchConflict, QueueFull
from llmqueue.outcome import Usage
from llmqueue.states import JobState, LimitUnit, OutcomeClass
from llmqueue.store import RedisStore, keys
from llmqueue.store.codec import STATES
from llmqueue.store.port import Beat, Grant
from support.handlerbench import acquire, finish
from support.meterbench import billed, counted, raw_meters
from support.storebench import StoreBench, known_of

WINDOW_SECONDS = 20
LIMITS = (
    Limit(LimitUnit.REQUESTS, 12, WINDOW_SECONDS),
    Limit(LimitUnit.TOKENS, 2000, WINDOW_SECONDS),
)
RETENTION = Retention(succeeded_seconds=120, failed_seconds=240)
MAX_JOBS = 40
TENANT_MOST, BAND_MOST = 4, 3
WORKERS = ("a:1", "b:1", "c:1")
TERMINAL = {"F": "succeeded", "X": "dead", "C": "cancelled", "E": "expired"}
FAILURE = "\x01failure"
TRAVEL_MS = 500
"""A request may be on its way this long after it was marked sent."""


@dataclass
class Held:
    """A lease as a worker knows it."""

    grant: Grant
    worker: str
    sent: bool = False
    call: int = 1
    """Number of the call that is open, or comes next."""
    tokens: int = 0
    """What was reserved for the open call."""
    acquired: bool = False

    @property
    def free(self) -> bool:
        """It makes no call: a failure job."""
        return self.grant.handler == FAILURE


@dataclass
class Batch:
    """A batch as its producer knows it."""

    new: NewBatch
    jobs: list[str] = field(default_factory=list)
    sealed: bool = False


class StoreMachine(RuleBasedStateMachine):
    url: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.bench = self.loop.run(self._start())
        self.held: dict[str, Held] = {}
        self.forgotten: dict[str, Held] = {}
        """Leases of killed workers: their calls may still be settled late."""
        self.sent_log: list[tuple[int, int, int]] = []
        """(server ms, requests, tokens) of everything that left."""
        self.settled: dict[str, str] = {}
        self.sent_fences: set[str] = set()
        self.sent_calls: set[tuple[str, int]] = set()
        self.finished_calls: set[tuple[str, int]] = set()
        self.terminal: dict[str, str] = {}
        self.payload_bytes: dict[str, int] = {}
        self.forgettable: set[str] = set()
        self.key_numbers = itertools.count()
        self.batches: list[Batch] = []
        self.followers: dict[str, bytes] = {}
        """Followers that were stored → their enqueue number."""
        self.totals: dict[bytes, int] = {}

    async def _start(self) -> StoreBench:
        store = RedisStore(self.url)
        bench = StoreBench(store)
        await bench.redis.flushall()
        await bench.configure(
            budget={"limits": LIMITS, "max_in_flight": 9},
            queue={
                "max_jobs": MAX_JOBS,
                "per_tenant": TenantLimits(
                    requests_per_second=1, burst=3, max_in_flight=TENANT_MOST
                ),
                "band_max_in_flight": (None, None, None, BAND_MOST),
                "handlers": True,
                "retention": RETENTION,
                "idempotency_seconds": 600,
                "retry": RetryPolicy(
                    unknown_outcome=UnknownOutcomePolicy(auto_retry_below_nano_usd=2_000_000)
                ),
            },
        )
        return bench

    def teardown(self) -> None:
        self.loop.run(self.bench.store.close())
        self.loop.close()

    def ask(self, call: Any) -> Any:
        return self.loop.run(call)

    # ------------------------------------------------------------ producers

    @rule(
        count=st.integers(1, 6),
        priority=st.integers(1, 10),
        tenant=st.sampled_from(["", "x", "y"]),
        feature=st.sampled_from(["", "f"]),
        tokens=st.tuples(st.integers(1, 50), st.integers(1, 700)),
        delay=st.sampled_from([0.0, 0.0, 0.0, 3.0, 40.0]),
        deadline=st.sampled_from([None, None, 5.0, 60.0]),
        cheap=st.booleans(),
        max_attempts=st.sampled_from([None, None, 1, 3]),
        handler=st.sampled_from(["", "", "h"]),
    )
    def enqueue(
        self,
        count,
        priority,
        tenant,
        feature,
        tokens,
        delay,
        deadline,
        cheap,
        max_attempts,
        handler,
    ):
        jobs = [
            self.bench.new(
                priority=priority,
                tenant=tenant,
                feature=feature,
                tokens=tokens,
                delay_seconds=delay,
                deadline_seconds=deadline,
                max_attempts=max_attempts,
                handler=handler,
                worst_nano_usd=1_000_000 if cheap else 9_000_000,
            )
            for _ in range(count)
        ]
        try:
            self.ask(self.bench.store.enqueue(jobs))
        except QueueFull:
            return
        self.payload_bytes.update({job.id: len(job.payload) for job in jobs})

    @rule(number=st.integers(0, 5))
    def enqueue_with_key(self, number):
        job = self.bench.new(key=f"k{number}")
        try:
            done = self.ask(self.bench.store.enqueue([job]))[0]
        except QueueFull:
            return
        assert done.id == job.id
        assert done.duplicate == (job.id in self.payload_bytes)
        self.payload_bytes.setdefault(job.id, len(job.payload))

    @rule(pick=st.integers(0, 10**6))
    @precondition(lambda self: self.payload_bytes)
    def cancel(self, pick):
        ids = sorted(self.payload_bytes)
        job_id = ids[pick % len(ids)]
        if job_id not in self.forgettable:
            self.ask(self.bench.store.cancel(job_id))

    # ------------------------------------------------------------ batches

    @rule(allowed=st.sampled_from([None, 0, 1]))
    @precondition(lambda self: len(self.batches) < 4)
    def open_batch(self, allowed):
        batch = NewBatch(
            keys.new_batch_id(self.bench.code),
            self.bench.queue,
            allowed_failures=allowed,
            followers={kind: self.bench.new() for kind in ("then", "catch", "finally")},
        )
        self.ask(self.bench.store.open_batch(batch))
        self.batches.append(Batch(batch))

    @rule(
        pick=st.integers(0, 3),
        count=st.integers(1, 3),
        deadline=st.sampled_from([None, None, 5.0]),
        again=st.booleans(),
    )
    @precondition(lambda self: self.batches)
    def enqueue_into_batch(self, pick, count, deadline, again):
        batch = self.batches[pick % len(self.batches)]
        jobs = [self.bench.new(batch=batch.new.id, deadline_seconds=deadline) for _ in range(count)]
        try:
            for _ in range(1 + again):
                self.ask(self.bench.store.enqueue(jobs))
        except QueueFull:
            return
        except BatchConflict:
            assert batch.sealed
            return
        assert not batch.sealed
        batch.jobs += [job.id for job in jobs]
        self.payload_bytes.update({job.id: len(job.payload) for job in jobs})

    @rule(pick=st.integers(0, 3), cancel=st.booleans())
    @precondition(lambda self: self.batches)
    def close_batch(self, pick, cancel):
        batch = self.batches[pick % len(self.batches)]
        batch.sealed = True
        if cancel:
            self.ask(self.bench.store.cancel_batch(batch.new.id, offset=0, limit=100))
        else:
            self.ask(self.bench.store.seal_batch(batch.new.id))

    # ------------------------------------------------------------ workers

    @rule(worker=st.sampled_from(WORKERS), slots=st.integers(1, 5), clean=st.booleans())
    def claim(self, worker, slots, clean):
        reply = self.ask(self.bench.claim(slots, worker=worker, clean=clean))
        assert len(reply.grants) <= slots
        most = self.bench.config.per_tenant.max_in_flight
        for tenant in {grant.tenant for grant in reply.grants} if most else ():
            of_tenant = sum(grant.tenant == tenant for grant in reply.grants)
            assert of_tenant <= most
        for grant in reply.grants:
            assert grant.fence not in self.held
            assert clean or grant.crashes == 0
            tokens = max(grant.input_tokens, grant.output_tokens)
            self.held[grant.fence] = Held(grant, worker, tokens=tokens)
            if grant.handler == FAILURE:
                self.payload_bytes.setdefault(grant.id, 0)

    def _held(self, pick: int, *, sent: bool | None = None) -> Held | None:
        fences = sorted(f for f, held in self.held.items() if sent is None or held.sent == sent)
        return self.held[fences[pick % len(fences)]] if fences else None

    def _handling(self, pick: int, *, sent: bool, late: bool = False) -> Held | None:
        """A run of a handler that makes calls."""
        pool = self.forgotten if late else self.held
        found = sorted(
            fence for fence, held in pool.items() if held.grant.handler == "h" and held.sent == sent
        )
        return pool[found[pick % len(found)]] if found else None

    @rule(pick=st.integers(0, 50), tokens=st.integers(1, 700), cheap=st.booleans())
    def acquire(self, pick, tokens, cheap):
        held = self._handling(pick, sent=False)
        if held is None:
            return
        worst = 1_000_000 if cheap else 9_000_000
        reply = self.ask(
            acquire(self.bench, held.grant, held.call, tokens=(1, tokens), worst_nano_usd=worst)
        )
        if reply.verdict == "granted":
            held.acquired = True
            held.tokens = max(reply.input_tokens, reply.output_tokens)
        elif reply.verdict == "lost":
            del self.held[held.grant.fence]
            self.forgotten[held.grant.fence] = held

    @rule(
        pick=st.integers(0, 50),
        kind=st.sampled_from([OutcomeClass.SUCCESS, OutcomeClass.SUCCESS, OutcomeClass.PERMANENT]),
        late=st.booleans(),
        repeat=st.booleans(),
    )
    def finish_call(self, pick, kind, late, repeat):
        held = self._handling(pick, sent=True, late=late)
        if held is None:
            return
        goes_on = self.ask(finish(self.bench, held.grant, held.call, kind))
        self.finished_calls.add((held.grant.fence, held.call))
        if repeat:
            assert self.ask(finish(self.bench, held.grant, held.call, kind)) == goes_on
        held.sent = held.acquired = False
        held.call += 1
        if not goes_on:
            self.held.pop(held.grant.fence, None)
            self.forgotten.pop(held.grant.fence, None)
        elif late:
            # Its worker is dead: whatever it held comes back by its lease.
            self.forgotten.pop(held.grant.fence, None)
        if kind is OutcomeClass.SUCCESS and held.grant.id not in self.forgettable:
            journal = self.ask(self.bench.store.journal(self.bench.queue, held.grant.id))
            state = self.ask(self.bench.redis.hget(self.bench.key("j", held.grant.id), "s"))
            if state is not None and state.decode() not in TERMINAL:
                assert f"n{held.call - 1}" in journal.answers, "a paid answer was not kept"

    @rule(worker=st.sampled_from(WORKERS), repeat=st.booleans())
    def run_a_handler(self, worker, repeat):
        """The usual course: a claim, and one call after the other."""
        self.enqueue(1, 10, "", "", (1, 20), 0.0, None, True, None, "h")
        self.claim(worker, 2, True)
        for held in [h for h in self.held.values() if h.grant.handler == "h" and not h.sent]:
            reply = self.ask(acquire(self.bench, held.grant, held.call, tokens=(1, 20)))
            if reply.verdict != "granted":
                continue
            (ok,) = self.ask(self.bench.send(held.grant))
            if not ok:
                del self.held[held.grant.fence]
                continue
            held.tokens = max(reply.input_tokens, reply.output_tokens)
            self.sent_calls.add((held.grant.fence, held.call))
            self.sent_fences.add(held.grant.fence)
            self.sent_log.append((self.ask(self.bench.now_ms()), 1, held.tokens))
            goes_on = self.ask(finish(self.bench, held.grant, held.call))
            if repeat:
                assert self.ask(finish(self.bench, held.grant, held.call)) == goes_on
            self.finished_calls.add((held.grant.fence, held.call))
            held.acquired, held.call = False, held.call + 1
            if not goes_on:
                del self.held[held.grant.fence]

    @rule(pick=st.integers(0, 50), good=st.booleans())
    def end_run(self, pick, good):
        """A handler's own code, or that for a failure, comes to its end."""
        fences = sorted(
            fence for fence, held in self.held.items() if held.grant.handler and not held.sent
        )
        if fences:
            held = self.held.pop(fences[pick % len(fences)])
            kind = OutcomeClass.SUCCESS if good else OutcomeClass.PERMANENT
            self._settle(held.grant, kind, sent=False, own=True)

    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=4))
    def send(self, picks):
        chosen = {}
        for pick in picks:
            held = self._held(pick)
            if held and not held.free and not (held.grant.handler and not held.acquired):
                chosen[held.grant.fence] = held
        if not chosen:
            return
        answers = self.ask(self.bench.send(*(held.grant for held in chosen.values())))
        now = self.ask(self.bench.now_ms())
        for ok, held in zip(answers, chosen.values(), strict=True):
            grant = held.grant
            if not ok:
                del self.held[grant.fence]
            elif not held.sent:
                held.sent = True
                self.sent_fences.add(grant.fence)
                self.sent_calls.add((grant.fence, held.call))
                self.sent_log.append((now, 1, held.tokens))

    @rule(
        pick=st.integers(0, 50),
        kind=st.sampled_from(
            [OutcomeClass.SUCCESS] * 4
            + [k for k in OutcomeClass if k not in (OutcomeClass.SUCCESS, OutcomeClass.CANCELLED)]
        ),
        late=st.booleans(),
        retry_after=st.sampled_from([None, None, 2.0]),
    )
    def settle(self, pick, kind, late, retry_after):
        pool = self.forgotten if late else self.held
        fences = sorted(f for f, held in pool.items() if held.sent)
        if not fences:
            return
        held = pool.pop(fences[pick % len(fences)])
        if held.grant.handler and kind is OutcomeClass.SUCCESS:
            kind = OutcomeClass.RATE  # only a failed call ends a handler's run
        self._settle(held.grant, kind, call=held.call, retry_after_seconds=retry_after)

    def _settle(self, grant: Grant, kind: OutcomeClass, *, call: int = 1, **outcome: Any) -> None:
        if outcome.get("sent", True):
            self.finished_calls.add((grant.fence, call))
        if kind is OutcomeClass.SUCCESS:
            outcome["usage"] = Usage(grant.input_tokens, 5)
        before = self.terminal.get(grant.id)
        reply = self.ask(self.bench.settle(grant, kind, call=call, **outcome))
        assert grant.fence not in self.settled, "a fence was settled twice"
        assert reply.verdict in ("settled", "fenced")
        if before:
            assert reply.verdict == "fenced"
        self.settled[grant.fence] = str(reply.state)
        again = self.ask(self.bench.settle(grant, OutcomeClass.PERMANENT))
        assert again.verdict == "repeated"
        assert str(again.state) == str(reply.state)

    @rule(pick=st.integers(0, 50))
    def settle_unsent(self, pick):
        held = self._held(pick, sent=False)
        if held:
            del self.held[held.grant.fence]
            own = bool(held.grant.handler)
            self._settle(held.grant, OutcomeClass.TRANSIENT, sent=False, own=own)

    @rule(pick=st.integers(0, 50))
    def release(self, pick):
        held = self._held(pick, sent=False)
        if held:
            del self.held[held.grant.fence]
            grant = held.grant
            self.ask(self.bench.store.release(self.bench.queue, [(grant.id, grant.fence)]))

    @rule(worker=st.sampled_from(WORKERS), knows=st.booleans())
    def beat(self, worker, knows):
        mine = [h for h in self.held.values() if h.worker == worker]
        leases = {h.grant.id: h.grant.fence for h in mine}
        known = {h.grant.id: known_of(h.grant, sent_seconds=1.0 if h.sent else None) for h in mine}
        beat = Beat(self.bench.queue, worker, 5, leases, held=known if knows else {})
        reply = self.ask(self.bench.store.beat(beat))
        for fence, held in list(self.held.items()):
            if held.worker == worker and held.grant.id in reply.lost:
                del self.held[fence]
                self.forgotten[fence] = held

    @rule(worker=st.sampled_from(WORKERS))
    def kill(self, worker):
        for fence, held in list(self.held.items()):
            if held.worker == worker:
                del self.held[fence]
                self.forgotten[fence] = held

    # ------------------------------------------------------------ planner, time

    @rule(worker=st.sampled_from(WORKERS), on=st.booleans())
    def mark(self, worker, on):
        store, queue = self.bench.store, self.bench.queue
        if on:
            counts = self.ask(store.mark_drain(queue, [worker], seconds=5))
            assert counts[worker] >= sum(
                1 for h in self.held.values() if h.worker == worker and h.sent
            )
        else:
            self.ask(store.unmark_drain(queue, [worker]))

    @rule(on=st.booleans())
    def suspend(self, on):
        self.ask(self.bench.store.set_suspended(self.bench.queue, on))

    @rule(most=st.sampled_from([None, 1, TENANT_MOST]))
    def limit_tenants(self, most):
        self.ask(self.bench.configure(queue={"per_tenant": TenantLimits(None, None, most)}))

    @rule()
    def resume(self):
        self.ask(self.bench.store.resume(self.bench.queue))

    @rule(seconds=st.sampled_from([0.2, 0.4, 0.6, 1.0, 2.0, 3.0, 4.0]))
    def advance(self, seconds):
        self.ask(self.bench.advance(seconds))

    @rule(seconds=st.sampled_from([6.0, 30.0, 300.0]))
    def outage(self, seconds):
        self.ask(self.bench.advance(seconds, outage=True))
        self.ask(self.bench.store.snapshot(self.bench.queue, horizon_seconds=0))

    @rule()
    def look(self):
        self.ask(self.bench.store.snapshot(self.bench.queue, horizon_seconds=10))

    # ------------------------------------------------------------ what must always hold

    @invariant()
    def structures_agree(self):
        self.ask(self._check_structures())

    async def _check_structures(self) -> None:
        redis, key, queue = self.bench.redis, self.bench.key, self.bench.queue
        places: Counter[str] = Counter()
        listed: Counter[str] = Counter()
        async for raw in redis.scan_iter(
            match=key("ready", queue, "*").replace("{", "\\{"), count=1000
        ):
            listed.update(i.decode() for i in await redis.lrange(raw, 0, -1))
        for band in range(4):
            listed.update(
                i.decode() for i in await redis.zrange(key("front", queue, str(band)), 0, -1)
            )
        free = {i.decode() for i in await redis.zrange(key("free", queue), 0, -1)}
        listed.update(free)
        where = {
            "D": await redis.zrange(key("delayed", queue), 0, -1),
            "LS": await redis.zrange(key("leases", queue), 0, -1),
            "V": await redis.zrange(key("review", queue), 0, -1),
        }
        for letter, name in TERMINAL.items():
            where[letter] = await redis.zrange(key("end", queue, name), 0, -1)
        found: Counter[str] = Counter()
        holders: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        size = failures_held = 0
        start = len(key("j", ""))
        kept = set()
        async for raw in redis.scan_iter(match=key("j", "*").replace("{", "\\{"), count=1000):
            job_id = raw.decode()[start:]
            fields = {k.decode(): v.decode() for k, v in (await redis.hgetall(raw)).items()}
            state = fields["s"]
            if fields.get("g") == "2":
                assert listed[job_id] == 1
                continue
            kept.add(job_id)
            found[state] += 1
            if state in "LS":
                holders[fields["w"]] += 1
                failures_held += fields.get("H") == FAILURE
            if fields.get("H") == FAILURE:
                failures[job_id.rpartition(".f")[0]] += 1
                assert (job_id in free) == (state == "R")
            if state not in TERMINAL:
                size += int(fields["l"])
            if state == "R":
                assert listed[job_id] == 1, f"ready job listed {listed[job_id]} times"
            elif "g" in fields:
                assert listed[job_id] == 1
            else:
                assert listed[job_id] == 0, f"{state} job is in a ready list"
            for letters, ids in where.items():
                places[job_id] += job_id.encode() in ids
                assert (job_id.encode() in ids) == (state in letters), (state, letters)
            was = self.terminal.get(job_id)
            if was:
                assert was == state, "a terminal state changed"
            elif state in TERMINAL:
                self.terminal[job_id] = state
        st_hash = await redis.hgetall(key("st", queue))
        counters = {k.decode(): int(v) for k, v in st_hash.items() if k.decode() in STATES}
        assert {k: v for k, v in counters.items() if v} == dict(found)
        assert int(st_hash.get(b"bytes", 0)) == size
        held = await redis.hgetall(key("held", queue))
        assert {k.decode(): int(v) for k, v in held.items()} == dict(holders)
        for job_id in set(self.payload_bytes) - kept - self.forgettable:
            assert job_id in self.terminal, "a job disappeared"
            self.forgettable.add(job_id)
        assert int(st_hash.get(b"held_failures", 0)) == failures_held
        assert int(st_hash.get(b"free", 0)) == len(free)
        total = len(where["LS"]) - failures_held
        assert total <= 9, "more in flight than allowed"
        await self._check_failures(failures)

    async def _check_failures(self, failures: Counter[str]) -> None:
        """Each job that is dead or in review was reported, as often as its own count says."""
        redis, key = self.bench.redis, self.bench.key
        start = len(key("j", ""))
        async for raw in redis.scan_iter(match=key("j", "*").replace("{", "\\{"), count=1000):
            job_id = raw.decode()[start:]
            fields = {k.decode(): v.decode() for k, v in (await redis.hgetall(raw)).items()}
            if fields.get("H") == FAILURE or fields.get("g") == "2":
                continue
            reported = int(fields.get("F", 0))
            assert reported >= (fields["s"] in "XV"), "a failure was not reported"
            assert failures[job_id] <= reported, "a failure was reported twice"

    @invariant()
    def tenants_have_their_place(self):
        self.ask(self._check_tenants())

    async def _check_tenants(self) -> None:
        """Who has something ready is in turn or parked, once; counts by tenant and band are right."""
        redis, key, queue = self.bench.redis, self.bench.key, self.bench.queue
        places: Counter[tuple[str, str]] = Counter()
        lists: set[tuple[str, str]] = set()
        for band in "0123":
            for tenant in await redis.lrange(key("lanes", queue, band), 0, -1):
                places[band, tenant.decode()] += 1
        for member in await redis.zrange(key("parked", queue), 0, -1):
            band, tenant = member.decode().split(" ", 1)
            places[band, tenant] += 1
        start = len(key("ready", queue, ""))
        async for raw in redis.scan_iter(
            match=key("ready", queue, "*").replace("{", "\\{"), count=1000
        ):
            band, lane = raw.decode()[start:].split(":", 1)
            tenant, feature = lane.split("\x1f")
            lists.add((band, tenant))
            features = await redis.lrange(key("lanes", queue, band, tenant), 0, -1)
            assert features.count(feature.encode()) == 1, "a lane without its turn"
        assert set(places) == lists
        assert all(count == 1 for count in places.values()), "a tenant has two turns a round"
        await self._check_counts(await redis.hgetall(key("st", queue)))

    async def _check_counts(self, counted: dict[bytes, bytes]) -> None:
        redis, key, queue = self.bench.redis, self.bench.key, self.bench.queue
        found: Counter[str] = Counter()
        holders: Counter[str] = Counter()
        async for raw in redis.scan_iter(match=key("j", "*").replace("{", "\\{"), count=1000):
            state, band, tenant, handler = await redis.hmget(raw, "s", "b", "t", "H")
            if handler == FAILURE.encode():
                continue
            if state in (b"L", b"S"):
                found[f"H{band.decode()}"] += 1
                holders[(tenant or b"").decode()] += 1
            elif state == b"R":
                found[f"R{band.decode()}"] += 1
        names = [f"{kind}{band}" for kind in "RH" for band in range(4)]
        assert {n: int(counted.get(n.encode(), 0)) for n in names} == {n: found[n] for n in names}
        limits = self.bench.config.per_tenant
        if limits and limits.max_in_flight:
            held = await redis.hgetall(key("th", queue))
            assert {t.decode(): int(n) for t, n in held.items()} == dict(holders)

    @invariant()
    def batches_agree(self):
        for batch in self.batches:
            self.ask(self._check_batch(batch))

    async def _check_batch(self, batch: Batch) -> None:
        redis, key = self.bench.redis, self.bench.key
        view = await self.bench.store.batch(batch.new.id)
        assert await self.bench.store.batch_jobs(view.id, offset=0, limit=1000) == batch.jobs
        states = []
        for job_id in batch.jobs:
            raw = await redis.hget(key("j", job_id), "s")
            assert raw or view.finished_at, "a job of a batch that goes on was dropped"
            states.append(raw.decode() if raw else self.terminal[job_id])
        ended = [state for state in states if state in TERMINAL]
        failed = sum(state != "F" for state in ended)
        assert (view.total, view.pending) == (len(states), len(states) - len(ended))
        assert (view.succeeded, view.failed) == (len(ended) - failed, failed)
        over = batch.sealed and len(ended) == len(states)
        assert (view.finished_at is not None) == over
        allowed = batch.new.allowed_failures
        too_many = allowed is not None and failed > allowed
        due = {"catch": too_many, "then": over and not too_many, "finally": over}
        for kind, job in batch.new.followers.items():
            number = await redis.hget(key("j", job.id), "n")
            if number:
                assert self.followers.setdefault(job.id, number) == number, "stored twice"
                self.payload_bytes.setdefault(job.id, len(job.payload))
            assert (job.id in self.followers) == due[kind], f"{kind} of {view}"

    @invariant()
    def no_window_is_over(self):
        log = sorted(self.sent_log)
        for start, (at, _, _) in enumerate(log):
            inside = [row for row in log[start:] if row[0] < at + WINDOW_SECONDS * 1000 + TRAVEL_MS]
            for limit, total in zip(
                LIMITS, (sum(r[1] for r in inside), sum(r[2] for r in inside)), strict=True
            ):
                assert total <= limit.limit, f"{total} of {limit.name} in one window"

    @invariant()
    def ledger_is_the_bill(self):
        rows = self.ask(self.bench.redis.xrange(self.bench.key("ledger")))
        booked = Counter(
            (row[b"f"].decode(), json.loads(row[b"e"])["call"])
            for _, row in rows
            if row[b"k"] != b"correction"
        )
        assert all(count <= 1 for count in booked.values()), "a call is in the ledger twice"
        assert self.finished_calls <= set(booked), "a settled call is not in the ledger"
        assert set(booked) <= self.sent_calls, "the ledger has a call that was never sent"

    @invariant()
    def meters_are_the_bill(self):
        """Each thing is counted once, and nothing that is counted ever falls."""
        assert self.ask(counted(self.bench)) == self.ask(billed(self.bench))
        found = self.ask(raw_meters(self.bench))
        stats = self.ask(self.bench.redis.hgetall(self.bench.key("st", self.bench.queue)))
        left = sum(int(stats.get(letter, 0)) for letter in (b"R", b"D", b"L", b"S", b"V"))
        assert found.enqueued - sum(found.ended.values()) == left, "a job was not counted"
        assert sum(found.dead.values()) == found.ended[JobState.DEAD]
        raw = self.ask(self.bench.redis.hgetall(self.bench.key("m", self.bench.queue)))
        totals = {k: int(v) for k, v in raw.items() if k not in (b"models", b"credit")}
        assert all(totals[name] >= value for name, value in self.totals.items()), "a counter fell"
        self.totals = totals
