"""Compare enqueue, process and CPU per job with other queues in one run."""
