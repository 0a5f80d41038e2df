"""`python -m llmqueue_operator`."""

from __future__ import annotations

import sys

from llmqueue_operator.process import run

if __name__ == "__main__":
    sys.exit(run())
