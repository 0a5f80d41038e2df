"""The worker process: takes jobs, makes their calls, settles them, drains."""
