"""Submitting jobs and following them: `Client`, and `SyncClient` for code without an event loop."""

from __future__ import annotations

from llmqueue.app import HandlerCall
from llmqueue.client.admission import CHUNK_JOBS, chunks, new_batch_job, new_job, queue_id
from llmqueue.client.batches import BatchHandle
from llmqueue.client.client import Client
from llmqueue.client.handle import JobEvent, JobHandle
from llmqueue.client.spec import Job, JobOptions, JobSpec, parse_spec
from llmqueue.client.sync import SyncBatchHandle, SyncClient, SyncJobHandle

__all__ = [
    "CHUNK_JOBS",
    "BatchHandle",
    "Client",
    "HandlerCall",
    "Job",
    "JobEvent",
    "JobHandle",
    "JobOptions",
    "JobSpec",
    "SyncBatchHandle",
    "SyncClient",
    "SyncJobHandle",
    "chunks",
    "new_batch_job",
    "new_job",
    "parse_spec",
    "queue_id",
]
