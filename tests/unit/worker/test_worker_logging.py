"""Log lines: structured, and without what must never be in them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog

from llmqueue import logging


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_one_json_object_a_line_with_the_process_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.configure("info", "json", queue="default/q")
    log = structlog.get_logger()
    log.debug("too-much")
    log.info("claimed", jobs=3)
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("timestamp").endswith("Z")
    assert found == {"event": "claimed", "level": "info", "queue": "default/q", "jobs": 3}


def test_secrets_and_payloads_do_not_get_out(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("info", "json")
    log = structlog.get_logger()
    secret = "sk-live1234567890"
    log.warning("x", payload={"a": 1}, api_key="plain", message=f"Bearer {secret} was refused")
    try:
        raise ValueError(f"key {secret}\nand more")
    except ValueError:
        log.exception("y")
    text = capsys.readouterr().err
    assert secret not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0]["payload"] == lines[0]["api_key"] == "[secret]"
    assert "refused" in lines[0]["message"]
    assert "Traceback" in lines[1]["exception"]


def test_long_fields_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("info", "json")
    structlog.get_logger().error("x", message="word " * 10_000)
    assert len(capsys.readouterr().err) < 2000


def test_a_closed_stream_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the pipe has gone: the process goes on."""
    logging.configure("info", "json")
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        structlog.get_logger().error("nobody-reads-this")
        with suppress(OSError):
            stream.close()
        structlog.get_logger().error("nor-this")


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logging.configure("warning", "console")
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud", job="j1")
    told = capsys.readouterr().err
    assert "loud" in told
    assert "job=j1" in told
    assert "quiet" not in told
