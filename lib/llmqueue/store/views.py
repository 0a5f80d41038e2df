"""What readers see, from what the store holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmqueue.job import BANDS, JobView, Progress
from llmqueue.states import JobState, Severity
from llmqueue.store import codec

_SET_OF_STATE = {
    JobState.SUCCEEDED: "end:{queue}:succeeded",
    JobState.DEAD: "end:{queue}:dead",
    JobState.CANCELLED: "end:{queue}:cancelled",
    JobState.EXPIRED: "end:{queue}:expired",
    JobState.REVIEW: "review:{queue}",
    JobState.DELAYED: "delayed:{queue}",
    JobState.LEASED: "leases:{queue}",
    JobState.SENT: "leases:{queue}",
}
_NOTHING: Mapping[str, Any] = {}
_WITHOUT_RESULT = frozenset({JobState.SUCCEEDED})


def number(text: str | None) -> float | None:
    """A number that was written as text; None for nothing."""
    return float(text) if text else None


async def ids_in_state(
    client: Any, start: str, queue: str, state: JobState, limit: int
) -> list[str]:
    """Up to `limit` ids, oldest first; ready ones band by band, lane by lane, parked ones last."""
    if state is not JobState.READY:
        name = start + _SET_OF_STATE[state].format(queue=queue)
        return [raw.decode() for raw in await client.zrange(name, 0, limit - 1)]
    found: list[bytes] = await client.zrange(f"{start}free:{queue}", 0, limit - 1)
    parked = [
        member.split(b" ", 1) for member in await client.zrange(f"{start}parked:{queue}", 0, -1)
    ]
    for band in range(BANDS):
        found += await client.zrange(f"{start}front:{queue}:{band}", 0, limit - 1)
        tenants = await client.lrange(f"{start}lanes:{queue}:{band}", 0, -1)
        tenants += [tenant for of_band, tenant in parked if int(of_band) == band]
        for tenant in tenants:
            features = await client.lrange(f"{start}lanes:{queue}:{band}:{tenant.decode()}", 0, -1)
            for feature in features:
                lane = f"{tenant.decode()}\x1f{feature.decode()}"
                found += await client.lrange(f"{start}ready:{queue}:{band}:{lane}", 0, limit - 1)
                if len(found) >= limit:
                    return [raw.decode() for raw in found[:limit]]
    return [raw.decode() for raw in found[:limit]]


def _attempts(raw: Sequence[bytes]) -> list[dict[str, Any]]:
    """One record a call and run: what was reported late stands for what was assumed of it."""
    records: list[dict[str, Any]] = [json.loads(each) for each in raw]
    return list({(record["fence"], record.get("call")): record for record in records}.values())


def _cost(attempts: Sequence[Mapping[str, Any]], dropped: str) -> int | None:
    """Nano-dollars of all calls; None where no call was made or one has no price.

    `dropped`: of records that are not kept any more, "?" where one has no price.
    """
    costs = [attempt["nano_usd"] for attempt in attempts if "nano_usd" in attempt]
    if dropped:
        costs.append(int(dropped) if dropped != "?" else None)
    return sum(costs) if costs and None not in costs else None


def _error(
    state: JobState, why: str, attempts: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    if state in (JobState.SUCCEEDED, JobState.READY, JobState.LEASED, JobState.SENT):
        return None
    last = attempts[-1] if attempts else _NOTHING
    if state is JobState.DELAYED and not attempts:
        return None
    return {
        "class": last.get("class"),
        "message": last.get("message") or why,
        "status": last.get("status"),
        "severity": last.get("severity", str(Severity.ERROR)),
        "reason": why or None,
    }


def progress_of(raw: bytes | None) -> Progress | None:
    """What a running job reported, as progress.lua wrote it."""
    return Progress(**json.loads(raw)) if raw else None


def job_view(
    job_id: str,
    fields: Mapping[bytes, bytes],
    data: bytes | None,
    raw_attempts: Sequence[bytes],
    *,
    due_ms: float | None = None,
    progress: bytes | None = None,
) -> JobView:
    """A job from its hash, its payload or result, its attempt records, and its progress."""

    def text(name: str) -> str:
        return fields.get(name.encode(), b"").decode()

    def seconds(name: str) -> float | None:
        raw = text(name)
        return int(raw) / 1000 if raw else None

    state = codec.STATES[text("s")]
    attempts = _attempts(raw_attempts)
    ended = state in _WITHOUT_RESULT
    return JobView(
        id=job_id,
        queue=text("q"),
        state=state,
        priority=int(text("p") or 5),
        tenant=text("t"),
        feature=text("f"),
        model=text("v"),
        created_at=seconds("c") or 0.0,
        finished_at=seconds("E"),
        not_before=due_ms / 1000 if due_ms is not None else None,
        deadline_at=seconds("D"),
        attempts_used=int(text("a") or 0),
        attempts=attempts,
        payload=None if ended else data,
        result=data if ended else None,
        error=_error(state, text("m"), attempts),
        cost_nano_usd=_cost(attempts, text("Y")),
        possible_duplicate=text("d") == "1",
        correlation_id=text("C"),
        handler=text("H"),
        batch=text("bi"),
        progress=progress_of(progress),
    )


def queue_status(
    queue: str, snapshot: Mapping[str, Any], plan: Mapping[str, str]
) -> dict[str, Any]:
    """The fixed words of `llmqueue queue --json`, and some more."""
    mine = next((row for row in snapshot.get("queues", ()) if row["queue"] == queue), _NOTHING)
    letters: Mapping[str, int] = mine.get("states", _NOTHING)
    states = {str(state): int(letters.get(letter, 0)) for letter, state in codec.STATES.items()}
    workers: Sequence[Mapping[str, Any]] = snapshot.get("workers", ())
    return {
        "queue": queue,
        "states": states,
        "in_flight": states["leased"] + states["sent"],
        "workers": {
            "desired": int(number(plan.get("desired")) or 0),
            "actual": int(number(plan.get("actual")) or 0),
            "seen": sum(worker["queue"] == queue for worker in workers),
        },
        "bound_by": plan.get("bound_by") or None,
        "reason": plan.get("reason") or None,
        "effective_rpm": number(plan.get("effective_rpm")),
        "eta_seconds": number(plan.get("eta_seconds")),
        "limits": [
            {
                "name": limit["name"],
                "declared": int(limit["declared"]),
                "effective": int(limit["effective"]),
                "used": int(limit["used"]),
                "frees_seconds": limit["frees_ms"] / 1000,
            }
            for limit in snapshot.get("limits", ())
        ],
        "oldest_ready_seconds": mine.get("oldest_ms", 0) / 1000,
        "blocked_seconds": snapshot.get("blocked_ms", 0) / 1000,
        "breaker": snapshot.get("breaker", "closed"),
        "paused": [
            {
                "credential": pause["credential"],
                "kind": pause["kind"],
                "message": pause["message"],
                "next_probe_seconds": pause["next_ms"] / 1000,
            }
            for pause in snapshot.get("pauses", ())
        ],
        "suspended": bool(mine.get("suspended", False)),
        "configured": bool(snapshot.get("epoch")),
    }


def explain(
    job: JobView,
    snapshot: Mapping[str, Any],
    plan: Mapping[str, str],
    ahead: int,
    *,
    parked: bool = False,
) -> dict[str, Any]:
    """Why a job is where it is: state, reason, how long, its position, and the limit that binds."""
    answer: dict[str, Any] = {
        "id": job.id,
        "state": str(job.state),
        "reason": None,
        "wait_seconds": None,
        "position": None,
        "limit": None,
    }
    if job.state is JobState.READY:
        reason, wait = _hold_up(job.queue, snapshot)
        if reason is None and parked:
            reason = "its tenant is at its own limit (spec.limits.perTenant)"
        rate = number(plan.get("effective_rpm")) or 0.0
        answer["position"] = ahead + 1
        answer["limit"] = plan.get("bound_by") or None
        answer["reason"] = reason or "waits for its turn"
        answer["wait_seconds"] = wait + (ahead * 60 / rate if rate else 0.0)
    elif job.state is JobState.DELAYED:
        answer["reason"] = "not before its time" if not job.attempts else "waits for its retry"
        answer["wait_seconds"] = (
            max(0.0, job.not_before - snapshot.get("now_ms", 0) / 1000) if job.not_before else None
        )
    elif job.state in (JobState.LEASED, JobState.SENT):
        answer["reason"] = "is being called now"
    elif job.error is not None:
        answer["reason"] = job.error["reason"] or job.error["message"]
    return answer


def _hold_up(queue: str, snapshot: Mapping[str, Any]) -> tuple[str | None, float]:
    """What stops a whole queue, and for how long."""
    if not snapshot.get("epoch"):
        return "the store has no configuration of this queue", 0.0
    for row in snapshot["queues"]:
        if row["queue"] == queue and row["suspended"]:
            return "the queue is suspended", 0.0
    for pause in snapshot["pauses"]:
        return f"the credential is paused ({pause['kind']})", pause["next_ms"] / 1000
    if snapshot["blocked_ms"] > 0:
        return "the provider asked to wait", snapshot["blocked_ms"] / 1000
    if snapshot["breaker"] != "closed":
        return "the breaker is open", max(0.0, snapshot["breaker_ms"] / 1000)
    for limit in snapshot["limits"]:
        if limit["used"] >= limit["effective"] and not limit["paced"]:
            return f"{limit['name']} is used up", limit["frees_ms"] / 1000
    return None, 0.0
