"""What a worker's probes ask.

Liveness looks at the loop only: restarting a worker because Redis or the provider is away would
destroy results that wait to be settled.
"""

from __future__ import annotations

from llmqueue.probes import LoopWatch, ProbeServer
from llmqueue_worker.metrics import Stats, registry


def health_server(stats: Stats, watch: LoopWatch, *, port: int, host: str = "") -> ProbeServer:
    """Raises OSError where the port is taken."""
    return ProbeServer(
        {
            "/livez": lambda: None if watch.alive else "the event loop is stuck",
            "/readyz": lambda: None if stats.ready else "no claim was answered yet",
        },
        registry(stats),
        port=port,
        host=host,
    )
