"""celery: `celery -A celery_program worker`, single enqueues through one producer."""

from __future__ import annotations

from typing import Any

import body
from celery import Celery

app = Celery("bench", broker=body.URL)
# Without acks_late a killed worker's job is lost by design; who needs it back sets this.
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True)


@app.task(name="job")
def job(argument: dict[str, Any]) -> None:
    body.job_sync(argument)


def produce() -> None:
    jobs = [body.payload(n) for n in range(body.wanted())]
    with app.producer_or_acquire() as producer:
        producer.connection.ensure_connection(max_retries=3)
        with body.Clock():
            for argument in jobs:
                job.apply_async((argument,), producer=producer)


if __name__ == "__main__":
    produce()
