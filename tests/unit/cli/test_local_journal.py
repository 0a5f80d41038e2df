"""Log lines of `up`."""

from __future__ import annotations

import json
import re

from llmqueue_cli.local.journal import Journal


def test_people_read_one_sentence_a_line() -> None:
    lines: list[str] = []
    journal = Journal(as_json=False, write=lines.append)
    journal.say("workers", "workers 2 → 5: RequestsPerMinute", subject="default/q", after=5)
    journal.say("stopped", "everything has ended in order")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  default/q: workers 2 → 5: RequestsPerMinute", lines[0])
    assert lines[1].endswith("  everything has ended in order")


def test_programs_read_fields() -> None:
    lines: list[str] = []
    Journal(as_json=True, write=lines.append).say(
        "workers", "workers 2 → 5", subject="default/q", before=2, after=5
    )
    record = json.loads(lines[0])
    assert record.pop("time") > 0
    assert record == {
        "event": "workers", "queue": "default/q", "before": 2, "after": 5,
        "message": "workers 2 → 5",
    }  # fmt: skip
