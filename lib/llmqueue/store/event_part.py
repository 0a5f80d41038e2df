"""What happens to jobs and batches, told while somebody listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmqueue.store import codec, keys, views
from llmqueue.store.connection import translated
from llmqueue.store.executor import MAX_BLOCK_SECONDS, Executor
from llmqueue.store.port import Listening, News, Standing

_MOST_READ = 500


def _milliseconds_of(stream_id: str) -> int:
    return int(stream_id.split("-", 1)[0])


def _news(raw_id: bytes, fields: dict[bytes, bytes]) -> News | None:
    """A stream entry; None where it is of a kind that this version does not know."""
    stream_id = raw_id.decode()
    subject, letter = fields.get(b"j") or fields.get(b"b"), fields.get(b"s", b"").decode()
    if subject is None or letter not in codec.STATES:
        return None
    return News(
        id=stream_id,
        subject=subject.decode(),
        state=codec.STATES[letter],
        progress=views.progress_of(fields.get(b"p")),
        at=_milliseconds_of(stream_id) / 1000,
    )


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Entries of the one stream that was read. RESP3 gives a dict, with one more list around."""
    if not answer:
        return []
    rows: Any = next(iter(answer.values())) if hasattr(answer, "values") else answer[0][1]
    found: list[tuple[bytes, dict[bytes, bytes]]] = (
        rows[0] if rows and isinstance(rows[0], list) else rows
    )
    return found


class EventPart:
    """See `EventStore` in port.py."""

    _redis: Executor

    async def budget_of(self, some_id: str) -> str:
        return await self._redis.budget_of_job(some_id)

    async def listen(self, budget: str, seconds: float) -> Listening:
        last, before = await self._redis.run("listen", budget, codec.milliseconds(seconds))
        return Listening(after=last.decode(), gapless=bool(before))

    async def news(self, budget: str, after: str, *, wait_seconds: float) -> tuple[list[News], str]:
        name = keys.prefix(budget) + "events"
        with translated():
            if wait_seconds > 0:
                block = codec.milliseconds(min(wait_seconds, MAX_BLOCK_SECONDS))
                answer = await self._redis.blocking.xread({name: after}, _MOST_READ, block)
            else:
                answer = await self._redis.client.xread({name: after}, _MOST_READ)
        entries = _entries(answer)
        found = (_news(raw_id, fields) for raw_id, fields in entries)
        last = entries[-1][0].decode() if entries else after
        return [each for each in found if each is not None], last

    async def standings(self, budget: str, ids: Sequence[str]) -> list[Standing | None]:
        rows = await self._redis.run("states", budget, *ids)
        return [
            Standing(codec.STATES[letter.decode()], views.progress_of(progress)) if letter else None
            for letter, progress in rows
        ]
