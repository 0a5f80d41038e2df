"""Asking a process' probes over a real socket."""

from __future__ import annotations

import urllib.error
import urllib.request


def probed(port: int, path: str) -> tuple[int, str]:
    """Status and text of what is served on this machine's port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()
