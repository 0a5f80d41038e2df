"""Keys: read from their file, replaced while the process runs, never shown."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from llmqueue.credentials import NO_CREDENTIAL, CredentialFile, fingerprint
from llmqueue.errors import UsageError


@pytest.mark.parametrize("key", [None, ""], ids=repr)
def test_no_key_has_no_name(key: str | None) -> None:
    assert fingerprint(key) == ""


def test_a_fingerprint_names_a_key_and_gives_nothing_away() -> None:
    assert fingerprint("sk-abc") == hashlib.sha256(b"sk-abc").hexdigest()[:12]


def test_no_file_no_key() -> None:
    assert CredentialFile(None).read() is NO_CREDENTIAL


@pytest.mark.parametrize(
    "content", [b"sk-abc", b"sk-abc\n", b"  sk-abc\r\n\n"], ids=["plain", "newline", "blanks"]
)
def test_the_key_is_stripped_and_never_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    found = CredentialFile(path).read()
    assert (found.key, found.fingerprint) == ("sk-abc", fingerprint("sk-abc"))
    assert "sk-abc" not in repr(found)


def test_read_again_only_when_the_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    path.write_text("sk-one")
    file = CredentialFile(path)
    first = file.read()
    assert file.read() is first
    # As the kubelet replaces a mounted Secret: a link that points elsewhere.
    new = tmp_path / "new"
    new.write_text("sk-two")
    os.replace(new, path)
    assert file.read().key == "sk-two"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n", "is empty", id="blank"),
        pytest.param(b"sk-a\nsk-b", "one key on one line", id="two lines"),
        pytest.param(b"sk a", "without blanks", id="blank inside"),
        pytest.param("sk-\u00e4".encode(), "plain ASCII", id="not ASCII"),
        pytest.param(b"x" * 20_000, "too large", id="no key at all"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        CredentialFile(path).read()
    assert str(path) in str(caught.value)
    assert "sk-" not in str(caught.value)


def test_a_key_that_was_removed_is_not_used_any_more(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-one")
    file = CredentialFile(path)
    file.read()
    path.unlink()
    for _ in range(2):
        with pytest.raises(UsageError):
            file.read()
    path.write_text("sk-one")
    assert file.read().key == "sk-one"
