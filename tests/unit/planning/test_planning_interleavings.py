"""S3: a job is taken between "idle?" and the scale call. Workers and the store's marks as a small
model; planner, marks, claims, ends and starts happen in any order."""

import random
from dataclasses import dataclass, field

import pytest

from llmqueue.states import JobState
from llmqueue_operator.planning import Memory, PodPhase, QueueInput, plan
from unit.planning.builders import QUEUE, beat, group, pod, rpm, seen, spec, store

MARK_SECONDS = 30.0


@dataclass
class Cluster:
    """Single-slot workers. `remove` ends a process at once: whatever it runs then is lost."""

    source: random.Random
    ready: int
    now: float = 0.0
    jobs: dict[str, int] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)
    starting: set[str] = field(default_factory=set)
    done: int = 0
    lost: int = 0
    arrived: int = 0
    born: int = 0
    replicas: int = 0
    memory: Memory = Memory()

    def snapshot(self, most: int):
        pods = [pod(uid) for uid in self.jobs]
        pods += [pod(uid, PodPhase.PENDING, age=1.0) for uid in sorted(self.starting)]
        workers = [
            beat(
                uid,
                in_flight=jobs,
                remaining=self.source.random() * 9,
                drain=max(0.0, self.marks.get(uid, 0.0) - self.now),
            )
            for uid, jobs in self.jobs.items()
        ]
        running = sum(self.jobs.values())
        counts = seen(ready=self.ready, sent=running)
        assert counts.states[JobState.SENT] == running
        scaling = spec(max_replicas=most, stabilization_seconds=2.0, idle_seconds=2.0)
        queue = QueueInput(QUEUE, scaling, 1, tuple(pods), self.replicas)
        return group(queue, store([counts], workers), limits=[rpm(6000)])

    def decide(self, most: int):
        """Gather and plan; what follows may happen before it is applied."""
        made = plan(self.snapshot(most), self.memory, self.now)
        self.memory = made.memory
        return made.queues[0]

    def apply(self, made):
        """Marks, unmarks, removals, in the order of a runner, with the world going on between."""
        for worker in made.mark:
            self.marks[worker.partition(":")[0]] = self.now + MARK_SECONDS
        self.meanwhile()
        for worker in made.unmark:
            self.marks.pop(worker.partition(":")[0], None)
        self.meanwhile()
        for uid in made.remove:
            self.meanwhile()
            if uid in self.jobs:
                self.lost += self.jobs.pop(uid)
            self.starting.discard(uid)
        self.replicas = made.replicas
        while len(self.jobs) + len(self.starting) < self.replicas:
            self.born += 1
            self.starting.add(f"w{self.born}")

    def meanwhile(self):
        for _ in range(self.source.randrange(3)):
            self.happen()

    def happen(self):
        """One thing that is not the planner's."""
        what = self.source.choice(("claim", "claim", "end", "arrive", "start", "time"))
        free = [u for u, n in self.jobs.items() if not n and self.marks.get(u, 0) <= self.now]
        busy = [u for u, n in self.jobs.items() if n]
        if what == "claim" and self.ready and free:
            self.jobs[self.source.choice(free)] = 1
            self.ready -= 1
        elif what == "end" and busy:
            self.jobs[self.source.choice(busy)] = 0
            self.done += 1
        elif what == "arrive":
            more = self.source.randrange(3)
            self.ready += more
            self.arrived += more
        elif what == "time":
            self.now += self.source.random() * 3

    def start(self):
        """Pods start between plans: a pod that starts during one drains like any other."""
        for uid in sorted(self.starting):
            if self.source.random() < 0.5:
                self.starting.discard(uid)
                self.jobs[uid] = 0


@pytest.mark.parametrize("block", range(6))
def test_no_job_is_lost_in_any_interleaving(block):
    """S3: 1,200 runs of plans and claims in random order: a removed worker never had a job, and no
    busy worker was removed or marked afresh while an idle one stayed."""
    removed = 0
    for run in range(200):
        source = random.Random(1000 * block + run)
        cluster = Cluster(source, ready=source.randrange(12))
        cluster.arrived = cluster.ready
        for _ in range(25):
            cluster.start()
            made = cluster.decide(most=source.choice((0, 1, 3, 8)))
            _no_busy_victim_beside_an_idle_one(cluster, made)
            before = len(cluster.jobs)
            cluster.apply(made)
            removed += before - len(cluster.jobs)
            for _ in range(source.randrange(6)):
                cluster.happen()
        assert cluster.lost == 0, f"seed {1000 * block + run}"
        assert cluster.arrived == cluster.ready + sum(cluster.jobs.values()) + cluster.done
    assert removed > 200


def _no_busy_victim_beside_an_idle_one(cluster, made):
    victims = {w.partition(":")[0] for w in made.mark}
    idle_that_stay = [u for u, jobs in cluster.jobs.items() if not jobs and u not in victims]
    busy_victims = [u for u in victims if cluster.jobs[u]]
    assert not (idle_that_stay and busy_victims)
