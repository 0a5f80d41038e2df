"""Tests that a machine can't run: left out by name, and failed where nothing may be left out."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

COMPLETE = "LLMQUEUE_TEST_COMPLETE"
"""Set where nothing may be left out."""


def leave_out(why: object) -> NoReturn:
    """Ends the test that asks."""
    if os.environ.get(COMPLETE):
        pytest.fail(str(why))
    pytest.skip(f"LEFT OUT: {why}")
