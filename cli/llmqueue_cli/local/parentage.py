"""Children that do not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC: ctypes.CDLL | None = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(signal_number: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends the child this signal when its parent dies (Linux only).

    It does nothing that could block between fork and exec: no import, no lock, no log.
    """
    parent = os.getpid()

    def ask_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal_number))
            if os.getppid() != parent:  # it died before the kernel was asked
                os.kill(os.getpid(), signal_number)

    return ask_kernel
