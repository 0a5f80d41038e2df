"""Where a worker finds its Redis: a variable, or a file where the URL has a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from llmqueue.errors import UsageError
from llmqueue.settings import WorkerSettings

NEEDED = {
    "QUEUE": "default/q",
    "WORKER_UID": "pod",
    "PROVIDER": "openai",
    "BASE_URL": "http://unused",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in NEEDED.items():
        monkeypatch.setenv(f"LLMQUEUE_{name}", value)
    for name in ("REDIS_URL", "REDIS_URL_FILE"):
        monkeypatch.delenv(f"LLMQUEUE_{name}", raising=False)
    return monkeypatch


def settings() -> WorkerSettings:
    return WorkerSettings()  # type: ignore[call-arg]


def test_a_variable(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LLMQUEUE_REDIS_URL", "redis://a")
    assert settings().store_url() == "redis://a"


def test_a_file_is_read_at_each_connect(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kubelet brings a rotated password into a mounted folder; nobody restarts the worker."""
    file = tmp_path / "url"
    environment.setenv("LLMQUEUE_REDIS_URL_FILE", str(file))
    file.write_text("redis://:eins@a\n")
    found = settings()
    assert found.store_url() == "redis://:eins@a"
    file.write_text("  redis://:zwei@a  \n\n")
    assert found.store_url() == "redis://:zwei@a"


def test_the_variable_goes_first(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv("LLMQUEUE_REDIS_URL", "redis://a")
    environment.setenv("LLMQUEUE_REDIS_URL_FILE", str(tmp_path / "missing"))
    assert settings().store_url() == "redis://a"


@pytest.mark.parametrize("value", [None, ""])
def test_neither(environment: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        environment.setenv("LLMQUEUE_REDIS_URL", value)
    with pytest.raises(ValidationError, match="LLMQUEUE_REDIS_URL or LLMQUEUE_REDIS_URL_FILE"):
        settings()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "no text"])
def test_a_file_that_cannot_be_read_is_named(
    environment: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    environment.setenv("LLMQUEUE_REDIS_URL_FILE", str(file))
    with pytest.raises(UsageError, match=str(file)):
        settings().store_url()


def test_a_url_is_not_shown(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("LLMQUEUE_REDIS_URL", "redis://:geheim@a")
    assert "geheim" not in repr(settings())
