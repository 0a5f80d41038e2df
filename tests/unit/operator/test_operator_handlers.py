"""What kopf is asked to do, and what never."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import kopf
import pytest

from llmqueue_operator.handlers import Backoffs, configured_settings, registry
from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES, PODS, Kind
from support.clusterobjects import llmqueue


class Controller:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Kind, str, bool]] = []

    def observe(self, kind: Kind, raw: dict[str, Any], *, deleted: bool) -> None:
        self.seen.append((kind, raw["metadata"]["name"], deleted))


def handlers(controller: Controller) -> Any:
    unused: Any = None
    found: Any = registry(controller, unused)  # type: ignore[arg-type]
    return found


def test_only_watches() -> None:
    """S48, S49: any other handler would put finalizers or annotations on LLMQueues, and one could
    not be deleted while no operator runs."""
    found = handlers(Controller())
    for forbidden in (found._changing, found._spawning, found._indexing, found._webhooks):
        assert not forbidden._handlers
    watched = {handler.id for handler in found._watching._handlers}
    assert watched == {LLMQUEUES.plural, DEPLOYMENTS.plural, PODS.plural}


@pytest.mark.parametrize(
    ("event", "deleted"),
    [("ADDED", False), ("MODIFIED", False), ("DELETED", True), (None, False)],
)
def test_what_is_seen_is_passed_on(event: str | None, deleted: bool) -> None:
    """None is what a list shows at the start of a watch."""
    controller = Controller()
    for handler in handlers(controller)._watching._handlers:
        asyncio.run(handler.fn(event={"type": event, "object": llmqueue("q")}))
    kinds = {kind for kind, _, _ in controller.seen}
    assert kinds == {LLMQUEUES, DEPLOYMENTS, PODS}
    assert {(name, gone) for _, name, gone in controller.seen} == {("q", deleted)}


def test_settings() -> None:
    """No events of kopf's own, no peering, no scan for new kinds; watches that notice silence."""
    found: kopf.OperatorSettings = configured_settings()
    assert found.posting.enabled is False
    assert found.scanning.disabled is True
    assert found.peering.standalone is True
    selectors: Any = found.watching.label_selectors
    for kind in (DEPLOYMENTS, PODS):
        assert selectors[kind.group, kind.version, kind.plural] == "llmqueue.dev/queue"
    assert found.watching.inactivity_timeout is not None
    assert found.watching.inactivity_timeout > 60, "bookmarks come once a minute"


def test_back_offs_never_end_and_begin_anew() -> None:
    """S50: fifteen minutes without a server, or a week."""
    backoffs = Backoffs()
    for _ in range(2):
        pauses = list(itertools.islice(backoffs, 500))
        assert pauses[0] < 1
        assert all(2 <= pause <= 4 for pause in pauses[10:])
        assert len(set(pauses)) > 100, "jittered"
