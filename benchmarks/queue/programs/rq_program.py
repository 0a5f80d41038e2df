"""RQ: `rq worker`, bulk enqueue."""

from __future__ import annotations

import body
from redis import Redis
from rq import Queue


def produce() -> None:
    redis = Redis.from_url(body.URL)
    redis.ping()
    queue = Queue(connection=redis)
    jobs = [body.payload(n) for n in range(body.wanted())]
    with body.Clock():
        for start in range(0, len(jobs), body.CHUNK):
            queue.enqueue_many(
                [
                    Queue.prepare_data("body.job_sync", (argument,))
                    for argument in jobs[start : start + body.CHUNK]
                ]
            )


if __name__ == "__main__":
    produce()
