"""kopf's part: watches that feed the controller, and the controller's start and end.

Only `on.event`: other handlers would put finalizers and annotations on LLMQueues, which then could
not be deleted while no operator runs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from llmqueue_operator.controller import Controller
from llmqueue_operator.kube import KubeClient
from llmqueue_operator.kube.kinds import DEPLOYMENTS, LLMQUEUES, PODS, Kind
from llmqueue_operator.names import QUEUE_LABEL

_LOGIN_SECONDS = 1800.0
_FIRST_BACKOFF_SECONDS = 0.25
_MOST_BACKOFF_SECONDS = 3.0
"""Short, since changes of LLMQueues are not seen meanwhile; it is one request for each kind."""


class Backoffs:
    """Endless growing pauses; each iteration begins anew."""

    def __iter__(self) -> Iterator[float]:
        for attempt in itertools.count():
            pause = min(_MOST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt, 10))
            yield pause * random.uniform(0.75, 1.25)


def configured_settings() -> kopf.OperatorSettings:
    """kopf, watching and nothing else."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # Handlers only hand over, so none has to be waited for at the end.
    settings.queueing.idle_timeout = 1.0
    settings.queueing.exit_timeout = 0.5
    settings.networking.error_backoffs = Backoffs()
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 3
    settings.watching.server_timeout = 600
    settings.watching.connect_timeout = 3
    settings.watching.inactivity_timeout = 70
    for kind in (DEPLOYMENTS, PODS):
        selectors: Any = settings.watching.label_selectors
        selectors[kind.group, kind.version, kind.plural] = QUEUE_LABEL
    return settings


def registry(controller: Controller, client: KubeClient) -> kopf.OperatorRegistry:
    """The handlers of one controller."""
    found = kopf.OperatorRegistry()

    @kopf.on.startup(registry=found)
    async def start(**_: Any) -> None:
        controller.start()

    @kopf.on.cleanup(registry=found)
    async def stop(**_: Any) -> None:
        await controller.stop()

    @kopf.on.login(registry=found)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        # kopf's own way in needs the cluster's DNS, ours does not.
        access = await client.access()
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_path,
            token=access.token,
            certificate_path=access.certificate_path,
            private_key_path=access.private_key_path,
            insecure=access.insecure,
            # What equals a connection that was refused once, kopf does not try again; and a token
            # of a service account is to be read anew before it ends.
            expiration=datetime.now(UTC) + timedelta(seconds=_LOGIN_SECONDS),
        )

    for kind in (LLMQUEUES, DEPLOYMENTS, PODS):
        _watch(found, kind, controller)
    return found


def _watch(found: kopf.OperatorRegistry, kind: Kind, controller: Controller) -> None:
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        controller.observe(kind, event["object"], deleted=event["type"] == "DELETED")

    on_event: Any = kopf.on.event
    on_event(kind.group, kind.version, kind.plural, registry=found, id=kind.plural)(seen)
