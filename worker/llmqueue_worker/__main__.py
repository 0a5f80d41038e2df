"""`python -m llmqueue_worker`: signals first, then all that takes time to import."""

from __future__ import annotations

import sys

from llmqueue_worker.signals import StopSignals


def main() -> int:
    """Run a worker; returns the exit code."""
    signals = StopSignals()
    signals.install()
    from llmqueue_worker.process import run  # noqa: PLC0415 - heavy

    return run(signals)


if __name__ == "__main__":
    sys.exit(main())
