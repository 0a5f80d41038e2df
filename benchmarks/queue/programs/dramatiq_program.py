"""dramatiq: `dramatiq dramatiq_program`, single enqueues (it has no bulk one)."""

from __future__ import annotations

from typing import Any

import body
import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=body.URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def job(argument: dict[str, Any]) -> None:
    body.job_sync(argument)


def produce() -> None:
    broker.client.ping()
    jobs = [body.payload(n) for n in range(body.wanted())]
    with body.Clock():
        for argument in jobs:
            job.send(argument)


if __name__ == "__main__":
    produce()
