"""The how-to's Python is run, and its names exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HOW_TO = Path(__file__).parents[3] / "docs/how-to/handlers.md"


def test_the_example_defines_a_handler() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "team.jobs"}
    exec(compile(code, "handlers.md", "exec", dont_inherit=True), names)
    assert set(names["app"].handlers) == {"summarise"}
    assert names["app"].failed is not None
    assert names["summarise"].job(document="x", language="fr").args == {
        "document": "x",
        "language": "fr",
    }
