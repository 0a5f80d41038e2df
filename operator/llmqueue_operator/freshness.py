"""Whether the watches still bring news: what a full list shows must have come, or come soon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from llmqueue_operator.kube.kinds import Kind
from llmqueue_operator.world import newer

PATIENCE_SECONDS = 60.0
"""How late a watch may be."""

Object = Mapping[str, Any]


class Freshness:
    """`clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._versions: dict[Kind, dict[str, str]] = {}
        """uid → version that the watch brought last."""
        self._missing: dict[tuple[Kind, str], tuple[str, float]] = {}
        """(kind, uid) → version that a list showed and the watch did not, and since when."""

    def seen(self, kind: Kind, raw: Object, *, deleted: bool = False) -> None:
        """The watch brought this."""
        meta = raw["metadata"]
        if deleted:
            self._versions.get(kind, {}).pop(meta["uid"], None)
            self._missing.pop((kind, meta["uid"]), None)
            return
        self._versions.setdefault(kind, {})[meta["uid"]] = meta["resourceVersion"]
        missing = self._missing.get((kind, meta["uid"]))
        if missing and not newer(missing[0], meta["resourceVersion"]):
            del self._missing[kind, meta["uid"]]

    def listed(self, kind: Kind, objects: Iterable[Object]) -> None:
        """A full list showed these."""
        known, now = self._versions.setdefault(kind, {}), self._clock()
        present: dict[str, str] = {}
        for raw in objects:
            meta = raw["metadata"]
            uid, version = meta["uid"], meta["resourceVersion"]
            if uid in known:
                present[uid] = known[uid]
            if uid not in known or newer(version, known[uid]):
                self._missing.setdefault((kind, uid), (version, now))
        listed = {raw["metadata"]["uid"] for raw in objects}
        self._versions[kind] = present
        for entry in [entry for entry in self._missing if entry[0] is kind]:
            if entry[1] not in listed:
                del self._missing[entry]

    def stale(self) -> str | None:
        """The kind whose watch seems to bring nothing any more; None while all is well.

        An object may have gone before the watch began: ask again after another full list.
        """
        now = self._clock()
        for (kind, _), (_, since) in self._missing.items():
            if now - since > PATIENCE_SECONDS:
                return kind.plural
        return None
