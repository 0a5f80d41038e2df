"""RQ: a worker of its own that has the job's module loaded, as its documentation advises: the child
of each job would else import it anew. Bulk enqueue."""

from __future__ import annotations

import sys

import body
from redis import Redis
from rq import Queue, Worker


def work() -> None:
    redis = Redis.from_url(body.URL)
    Worker([Queue(connection=redis)], connection=redis).work(logging_level="WARNING")


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
    work() if sys.argv[1] == "work" else produce()
