"""Reading what the jobs noted: 8-byte records `s000001\\n` (started) and `e000001\\n` (ended)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RECORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Marks:
    """The file that all jobs of one run append to."""

    path: Path

    def count(self) -> int:
        """Records so far."""
        return self.path.stat().st_size // RECORD_BYTES if self.path.exists() else 0

    def numbers(self, kind: str) -> list[int]:
        """Job numbers noted with `kind`, in order, repeats included."""
        if not self.path.exists():
            return []
        return [
            int(line[1:]) for line in self.path.read_text().splitlines() if line.startswith(kind)
        ]
