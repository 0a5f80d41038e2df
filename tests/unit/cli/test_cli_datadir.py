"""The data folder, and how commands find the store of the `up` that runs on it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from llmqueue.errors import StoreUnavailable, UsageError
from llmqueue_cli.datadir import DataDir, default_folder, store_url, write_private


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"LLMQUEUE_DATA_DIR": "/a"}, "/a", id="named"),
        pytest.param({"XDG_DATA_HOME": "/x"}, "/x/llmqueue", id="XDG"),
        pytest.param({"HOME": "/h"}, "/h/.local/share/llmqueue", id="its default"),
    ],
)
def test_the_default_folder(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LLMQUEUE_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_folder() == Path(expected)


def test_a_named_store_wins_over_the_folder(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.write_note(redis_url="unix:///folder.sock")
    assert store_url("redis://named", tmp_path) == "redis://named"
    assert store_url(None, tmp_path) == "unix:///folder.sock"


@pytest.mark.parametrize("note", [None, "", "{", "[]", "{}"])
def test_without_a_running_up_the_error_says_what_to_do(tmp_path: Path, note: str | None) -> None:
    if note is not None:
        DataDir(tmp_path).note.write_text(note)
    with pytest.raises(StoreUnavailable, match="start one, or name a store with --redis-url"):
        store_url(None, tmp_path)


def test_the_note_is_private_and_replaced_in_one_step(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.write_note(pid=1, redis_url="redis://:secret@host")
    folder.write_note(pid=2, redis_url="redis://:secret@host")
    assert stat.S_IMODE(folder.note.stat().st_mode) == 0o600
    assert folder.read_note()["pid"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]


def test_a_private_file_takes_over_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folders_are_for_their_owner(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "deep" / "data")
    folder.create()
    for path in (folder.folder, folder.run, folder.valkey):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_the_user_s_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--data-dir"):
        DataDir(tmp_path / "file" / "data").create()
