"""The page of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from llmqueue_operator.reference import REFERENCE, main, render

ROOT = Path(__file__).parents[3]


class Example(BaseSettings):
    """Of each kind of setting one."""

    model_config = SettingsConfigDict(env_prefix="EXAMPLE_")

    given: str = Field(min_length=1)
    """What must be | said,
    in two lines."""
    one_of: Literal["this", "that"] = "this"
    bounded: int = Field(default=3, ge=0, le=9)
    """Some."""
    share: float = Field(default=0.5, gt=0)
    folder: Path = Path("/a")


def test_the_committed_page_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main()
    written = (tmp_path / REFERENCE).read_text()
    assert (ROOT / REFERENCE).read_text() == written, "run `make docs` and commit what it writes"


@pytest.mark.parametrize(
    "row",
    [
        "| `EXAMPLE_GIVEN` | text | required | What must be \\| said, in two lines. |",
        "| `EXAMPLE_ONE_OF` | `this`, `that` | `this` |  |",
        "| `EXAMPLE_BOUNDED` | integer, ≥ 0, ≤ 9 | `3` | Some. |",
        "| `EXAMPLE_SHARE` | number, > 0 | `0.5` |  |",
        "| `EXAMPLE_FOLDER` | path | `/a` |  |",
    ],
)
def test_a_setting(row: str) -> None:
    assert row in render(Example).splitlines()
