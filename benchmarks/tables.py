"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are aligned in the source too; numbers stand right."""
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    right = [n > 0 and all(_is_number(row[n]) for row in rows) for n in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width - 1) + (":" if to_right else "-")
        for width, to_right in zip(widths, right, strict=True)
    ]
    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").strip().isdigit() or text == "–"
