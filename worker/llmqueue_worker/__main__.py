"""`python -m llmqueue_worker`: signals are caught before anything heavy is loaded."""

from __future__ import annotations

import signal
import sys
from types import FrameType

stop_asked = False


def _note(_signal: int, _frame: FrameType | None) -> None:
    global stop_asked  # noqa: PLW0603 - the event loop is not there yet
    stop_asked = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _note)
    signal.signal(signal.SIGINT, _note)

    from llmqueue_worker.process import main

    sys.exit(main(lambda: stop_asked))
