"""Several queues on one budget: weights, lending, giving back."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest

from llmqueue.config import BudgetConfig, Limit, QueueConfig
from llmqueue.outcome import Usage
from llmqueue.states import LimitUnit, OutcomeClass, ProviderType, WaitReason
from llmqueue.store import RedisStore
from llmqueue.store.port import Grant
from support.handlerbench import acquire, finish
from support.storebench import StoreBench, assert_leases, beat

BUDGET = "default/~one"
A, B = "default/a", "default/b"
RPM = 600
_SET_CLOCK = """
local t = redis.call('TIME')
local real = math.floor(t[1] * 1000 + t[2] / 1000)
redis.call('HSET', KEYS[1], 'off', string.format('%d', ARGV[1] - real))
"""


@dataclass
class Together:
    """Two queues on one budget, each with workers that come when they were told to."""

    store: RedisStore
    limits: tuple[Limit, ...] = (Limit(LimitUnit.REQUESTS, RPM),)
    max_in_flight: int | None = None
    weights: Mapping[str, int] = field(default_factory=lambda: {A: 2, B: 1})
    call_seconds: float = 1.0
    handlers: bool = False
    benches: dict[str, StoreBench] = field(default_factory=dict[str, StoreBench])
    due: dict[str, float] = field(default_factory=dict[str, float])
    """Worker -> when it claims next."""
    running: list[tuple[float, str, Grant]] = field(default_factory=list[tuple[float, str, Grant]])
    sent: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    claims: Counter[str] = field(default_factory=Counter[str])
    now: float = 0.0
    began: int = 0

    async def configure(self) -> None:
        budget = BudgetConfig(BUDGET, self.limits, max_in_flight=self.max_in_flight)
        queues = [
            QueueConfig(name, BUDGET, ProviderType.OPENAI, weight=weight, handlers=self.handlers)
            for name, weight in self.weights.items()
        ]
        await self.store.configure(budget, queues)
        code = (await self.store.registry())[A].code
        self.benches = {q.queue: StoreBench(self.store, q.queue, budget, q, code) for q in queues}

    def staff(self, queue: str, workers: int) -> None:
        for n in range(workers):
            self.due.setdefault(f"{queue}#{n}:1", self.now)

    async def run(self, seconds: float, *, slots: int = 4, step: float = 0.05) -> None:
        """Move on; a worker claims at its time while it has free slots."""
        await self.store.snapshot(BUDGET, horizon_seconds=0)
        await self._pass(0)
        end = self.now + seconds
        while self.now < end:
            await self._finish()
            for worker in sorted(w for w, at in self.due.items() if at <= self.now):
                await self._claim(worker, slots)
            await self._pass(step)

    async def _pass(self, seconds: float) -> None:
        """So much later by the store's clock, however long the last step really took."""
        bench = self.benches[A]
        last = await bench.now_ms()
        self.began = self.began or last
        wanted = max(last, self.began + round((self.now + seconds) * 1000))
        await bench.redis.eval(_SET_CLOCK, 1, bench.key("run"), wanted)
        self.now = (wanted - self.began) / 1000

    async def _claim(self, worker: str, slots: int) -> None:
        queue = worker.partition("#")[0]
        busy = sum(1 for _, holder, _ in self.running if holder == worker)
        if busy == slots:
            self.due[worker] = self.now + 0.05
            return
        bench = self.benches[queue]
        reply = await bench.claim(slots - busy, worker=worker)
        self.claims[str(reply.reason)] += 1
        for grant in reply.grants:
            assert await bench.send(grant) == [True]
            self.sent.append(((await bench.now_ms() - self.began) / 1000, queue))
            self.running.append((self.now + self.call_seconds, worker, grant))
        self.due[worker] = self.now + max(0.05, min(reply.wait_seconds, 5.0))

    async def _finish(self) -> None:
        for row in [row for row in self.running if row[0] <= self.now]:
            self.running.remove(row)
            await self.benches[row[1].partition("#")[0]].settle(row[2])

    def granted(self, since: float, until: float) -> Counter[str]:
        return Counter(queue for at, queue in self.sent if since <= at < until)

    def worst_window(self, seconds: float = 60.0) -> int:
        times = [at for at, _ in self.sent]
        return max(sum(1 for at in times if t <= at < t + seconds) for t in times)


@pytest.fixture
async def both(valkey_url: str) -> AsyncIterator[Together]:
    store = RedisStore(valkey_url)
    await store._redis.client.flushall()
    yield Together(store)
    await store.close()


async def test_two_to_one_while_both_are_busy(both: Together) -> None:
    """S46: 400 and 200 of 600 a minute, and together never more than the budget."""
    await both.configure()
    for queue in (A, B):
        await both.benches[queue].enqueue(2000)
        both.staff(queue, 10)
    await both.run(150)
    per_minute = both.granted(75, 135)
    assert per_minute[A] + per_minute[B] >= 0.95 * RPM
    assert per_minute[A] == pytest.approx(2 * per_minute[B], rel=0.03)
    assert both.worst_window() <= RPM


async def test_an_idle_queues_share_is_lent_and_given_back_at_once(both: Together) -> None:
    """S46: alone it has everything; the other one's first jobs come within moments."""
    await both.configure()
    await both.benches[A].enqueue(3000)
    both.staff(A, 10)
    both.staff(B, 10)
    await both.run(100)
    alone = both.granted(40, 100)
    assert alone[A] >= 0.95 * RPM
    back = both.now
    await both.benches[B].enqueue(1000)
    for worker in [w for w in both.due if w.startswith(B)]:
        both.due[worker] = both.now  # they are woken
    await both.run(30)
    soon = both.granted(back, back + 3)
    assert soon[B] >= 7, f"a third of 30 grants, got {soon}"
    later = both.granted(back + 3, back + 30)
    assert later[A] == pytest.approx(2 * later[B], rel=0.1)
    assert both.worst_window() <= RPM


async def test_what_a_queue_left_unused_is_not_owed_to_it(both: Together) -> None:
    """It gets its share from now on, not what it might have had in the hour before."""
    await both.configure()
    await both.benches[A].enqueue(3000)
    both.staff(A, 10)
    await both.run(120)
    both.staff(B, 10)
    await both.benches[B].enqueue(1000)
    start = both.now
    await both.run(20)
    counts = both.granted(start + 1, start + 20)
    assert counts[A] >= 1.8 * counts[B]


async def test_a_queue_that_can_use_little_leaves_the_rest(both: Together) -> None:
    """B has one slot and calls of 2 s: 30 a minute of its 200; A takes what is left, and B never
    waits for it."""
    both.call_seconds = 2.0
    await both.configure()
    await both.benches[A].enqueue(3000)
    await both.benches[B].enqueue(500)
    both.staff(A, 20)
    both.staff(B, 1)
    await both.run(30)
    for _ in range(60):
        await both.run(1)
    counts = both.granted(30, 90)
    assert counts[A] + counts[B] >= 0.9 * RPM
    assert counts[B] >= 90


async def test_a_queue_whose_workers_are_gone_is_not_waited_for(both: Together) -> None:
    """Its demand ends 2 s after the time that its last claim was told."""
    await both.configure()
    for queue in (A, B):
        await both.benches[queue].enqueue(3000)
        both.staff(queue, 5)
    await both.run(80)
    for worker in [w for w in both.due if w.startswith(B)]:
        del both.due[worker]
    gone = both.now
    await both.run(20)
    counts = both.granted(gone + 5, gone + 20)
    assert counts[A] >= 0.9 * RPM / 4


async def test_a_long_wait_keeps_no_share_for_workers_that_are_gone(both: Together) -> None:
    """B's call has to wait for the next day: it is waited for while its workers come back to ask."""
    both.limits = (Limit(LimitUnit.TOKENS, 10_000, 86_400),)
    both.weights = {A: 1, B: 1}
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await a.warm()
    await a.enqueue(tokens=(10, 2000))
    await a.run_one(usage=Usage(10, 2000), result=b"{}")
    await b.enqueue(tokens=(10, 9000))
    assert (await b.claim()).wait_seconds > 3600
    await a.enqueue(tokens=(10, 100))
    assert (await a.claim()).reason is WaitReason.SHARE
    await a.advance(33)
    assert (await a.claim()).grants


async def test_tokens_are_shared_and_not_calls(both: Together) -> None:
    """With equal weights a queue of large calls gets as many tokens as one of small ones."""
    both.limits = (Limit(LimitUnit.TOKENS, 60_000),)
    both.weights = {A: 1, B: 1}
    await both.configure()
    await both.benches[A].enqueue(500, tokens=(10, 1000))
    await both.benches[B].enqueue(4000, tokens=(10, 100))
    both.staff(A, 5)
    both.staff(B, 5)
    await both.run(150, slots=16)
    counts = both.granted(75, 135)
    assert counts[A] * 1000 == pytest.approx(counts[B] * 100, rel=0.1)


async def test_calls_in_flight_are_shared(both: Together) -> None:
    both.limits, both.max_in_flight = (), 12
    await both.configure()
    for queue in (A, B):
        await both.benches[queue].enqueue(1000)
        both.staff(queue, 5)
    await both.run(40)
    counts = both.granted(10, 40)
    assert counts[A] == pytest.approx(2 * counts[B], rel=0.15)
    assert counts[A] + counts[B] >= 0.8 * 12 * 30


async def test_a_refusal_says_share(both: Together) -> None:
    """The one ahead is told that another queue's turn is waited for."""
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await a.enqueue(50)
    await b.enqueue(50)
    await a.warm()
    assert (await b.claim(40)).reason is not WaitReason.SHARE
    while (await b.claim(8, worker="b:2")).grants:
        pass
    await a.claim(8)
    await both.benches[A].advance(1.0)
    replies = [await a.claim(8, worker=f"a:{n}") for n in range(4)]
    assert WaitReason.SHARE in {reply.reason for reply in replies}
    assert sum(len(reply.grants) for reply in replies) > 0


async def test_what_was_not_sent_is_owed_again(both: Together) -> None:
    """A queue that gives jobs back is not taken to have used its share."""
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await a.enqueue(50)
    await b.enqueue(50)
    await a.warm()
    run = a.key("run")
    grant = await a.take()
    before = float(await a.redis.hget(run, f"v:{A}"))
    await a.store.release(A, [(grant.id, grant.fence)])
    after = float(await a.redis.hget(run, f"v:{A}"))
    assert after == pytest.approx(before - 1 / RPM / 2)


async def test_what_a_failover_lost_is_paid_when_it_is_taken_back(both: Together) -> None:
    """A lease that comes back by a heartbeat and is given back leaves the queue's share as it was."""
    await both.configure()
    a = both.benches[A]
    await a.enqueue(50)
    await a.warm()
    grant = await a.take()
    run = a.key("run")
    paid = float(await a.redis.hget(run, f"v:{A}"))
    await a.store.release(A, [(grant.id, grant.fence)])
    await a.redis.delete(a.key("gb", grant.fence))  # lost with the claim
    await assert_leases(a, grant)
    assert float(await a.redis.hget(run, f"v:{A}")) == pytest.approx(paid)


@pytest.mark.parametrize("busy", [A, B])
async def test_what_one_queue_has_to_forget_holds_up_no_other(both: Together, busy: str) -> None:
    """Its thousands of old jobs are dropped some at a time: meanwhile the other's due job runs."""
    await both.configure()
    full, other = both.benches[busy], both.benches[A if busy == B else B]
    jobs = [job for _ in range(40) for job in await full.enqueue()]
    for job in jobs:
        await full.store.cancel(job)
    await other.warm()
    await full.advance(30 * 86400)
    await other.enqueue(delay_seconds=1)
    await other.advance(2)
    assert (await other.claim()).grants


async def test_a_queue_counts_its_own_workers(both: Together) -> None:
    await both.configure()
    await beat(both.benches[A], "a:1")
    await beat(both.benches[A], "a:2")
    await beat(both.benches[B], "b:1")
    seen = [(await both.store.queue_status(queue))["workers"]["seen"] for queue in (A, B)]
    assert seen == [2, 1]


async def test_a_block_is_everybodys(both: Together) -> None:
    """S44: a 429 to one queue stops both, since the account is one."""
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await a.enqueue(5)
    await b.enqueue(5)
    await a.warm()
    grant = await a.take()
    await a.send(grant)
    await a.settle(grant, OutcomeClass.RATE, retry_after_seconds=30)
    assert (await b.claim()).reason is WaitReason.BLOCKED


async def test_one_queues_bands_are_its_own(both: Together) -> None:
    """The turn of lower bands comes after 20 grants of the same queue."""
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await b.enqueue(40, priority=5)
    await a.enqueue(30, priority=9)
    low = await a.enqueue(1, priority=1)
    await a.warm()
    order: list[str] = []
    for n in range(24):
        order += [grant.id for grant in (await a.claim(1, worker=f"a:{n}")).grants]
        await b.claim(1, worker=f"b:{n}")
        await a.advance(1)
    assert order.index(low[0]) == 19


async def test_a_handlers_further_calls_wait_for_the_others_turn(both: Together) -> None:
    """A queue of few jobs with many calls gets no more than its share."""
    both.handlers = True
    await both.configure()
    a, b = both.benches[A], both.benches[B]
    await a.enqueue(1, handler="h")
    await b.enqueue(50)
    await a.warm()
    grant = await a.take()
    assert (await acquire(a, grant, 1)).verdict == "granted"
    await a.send(grant)
    await finish(a, grant, 1)
    soon = await a.now_ms() + 60_000
    demand = {f"d:{A}": soon, f"d:{B}": soon}
    await a.redis.hset(a.key("run"), mapping={**demand, f"v:{A}": 1, f"v:{B}": 0})
    reply = await acquire(a, grant, 2)
    assert (reply.verdict, reply.reason) == ("wait", WaitReason.SHARE)
    assert 0.05 <= reply.wait_seconds < 1
    await a.redis.hset(a.key("run"), f"v:{B}", 1)
    assert (await acquire(a, grant, 2)).verdict == "granted"
