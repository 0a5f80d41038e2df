"""`llmqueue fake-provider` as a process of its own."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

import llmqueue_cli.simulate
from llmqueue_cli.main import app
from support.fakecalls import ANTHROPIC, OPENAI, body
from support.fakeprovider import FakeProviderProcess, arguments

TRACE = Path(__file__).parents[3] / "examples/traces/azure_llm_2023_conv_excerpt.csv"


async def test_options_reach_the_provider_and_counts_come_back() -> None:
    async with (
        FakeProviderProcess(
            shape="anthropic", rpm=3, itpm=5000, latency="0.05", output="constant:7"
        ) as fake,
        httpx2.AsyncClient(trust_env=False, timeout=10) as http,
    ):
        for number in range(4):
            headers = {"idempotency-key": f"job{number % 2}/{number}"}
            answer = await http.post(fake.url + ANTHROPIC, json=body(), headers=headers)
        assert answer.status_code == 429
        stats = await fake.stats()
        assert (stats["answered_429"], stats["worst_60s"], stats["limit"]) == (1, 4, 3)
        assert stats["billed"]["output_tokens"] == 21
        assert await fake.billed() == {"job0": 2, "job1": 1}
        assert [each["status"] for each in await fake.calls(since=2)] == [200, 429]
        await fake.limits(rpm=None)
        await fake.faults([{"fault": "529"}])
        answer = await http.post(fake.url + ANTHROPIC, json=body())
        assert answer.status_code == 529
        await fake.reset()
        assert (await fake.stats())["calls"] == 0
        final = await fake.stop()
    assert final["calls"] == 0
    assert final["shape"] == "anthropic"


async def test_a_script_and_a_trace_from_files(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"fault": "rate429", "count": 1, "retry_after": "3"}]')
    async with (
        FakeProviderProcess(script=script, trace=TRACE, seconds_per_token=0.001) as fake,
        httpx2.AsyncClient(trust_env=False, timeout=10) as http,
    ):
        first = await http.post(fake.url + OPENAI, json=body())
        assert (first.status_code, first.headers["retry-after"]) == (429, "3")
        # The first row of the trace went to the call that was turned away.
        second = await http.post(fake.url + OPENAI, json=body())
        assert second.json()["usage"]["completion_tokens"] == 100
        (_, record) = await fake.calls()
        assert record["end"] - record["start"] >= 0.1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_the_counts(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "llmqueue_cli", "fake-provider", "--rpm", "60", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        os.kill(process.pid, number)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    (line,) = output.splitlines()
    stats = json.loads(line)
    assert (stats["calls"], stats["limits"]["requests"]) == (0, 60)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param(["--latency", "soon"], "lognormal:MEAN,SIGMA", id="latency"),
        pytest.param(["--output", "-3"], "is none of", id="output"),
        pytest.param(["--trace", "/nowhere.csv"], "No such file", id="trace"),
        pytest.param(["--script", "/nowhere.json"], "No such file", id="script"),
        pytest.param(["--shape", "other"], "openai", id="shape"),
        pytest.param(["--rpm", "-1"], "'--rpm'", id="limit"),
    ],
)
def test_wrong_options_are_wrong_use(options: list[str], complaint: str) -> None:
    found = CliRunner().invoke(app, ["fake-provider", *options], env={"COLUMNS": "200"})
    assert found.exit_code == 2
    assert complaint in found.output


def test_a_script_with_an_unknown_fault_is_wrong_use(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"fault": "cut_bdy"}')
    command = ["fake-provider", "--script", str(script)]
    found = CliRunner().invoke(app, command, env={"COLUMNS": "2000"})
    assert found.exit_code == 2
    assert "rule 1: unknown fault 'cut_bdy'" in found.output


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "llmqueue_cli", "fake-provider", "--port", str(port)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith(f"llmqueue: cannot listen on 127.0.0.1:{port}")
    assert "Traceback" not in found.stderr


def test_the_help_names_the_faults() -> None:
    found = CliRunner().invoke(app, ["fake-provider", "--help"], env={"COLUMNS": "200"})
    assert "reset_after_billing" in found.output
    assert "sim:fault=NAME" in found.output


def test_it_shares_no_code_with_what_it_tests() -> None:
    folder = Path(llmqueue_cli.simulate.__file__).parent
    imported = {
        name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert "llmqueue_cli.simulate.limiter" in imported
    assert not {name for name in imported if name.split(".")[0] == "llmqueue"}


def test_options_as_a_command_line() -> None:
    options = {"rpm": 60, "per_second": True, "count_refused": False, "tpm": None}
    assert arguments(options) == ["--rpm", "60", "--per-second"]


async def test_many_calls_cost_little() -> None:
    """600 calls, a minute's worth at 600 RPM, take a few per cent of one core."""
    async with (
        FakeProviderProcess(latency="0.01") as fake,
        httpx2.AsyncClient(trust_env=False, timeout=30) as http,
    ):
        before = _cpu_seconds(fake.pid)
        for _ in range(12):
            calls = (http.post(fake.url + OPENAI, json=body()) for _ in range(50))
            assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}
        used = _cpu_seconds(fake.pid) - before
    assert used < 3.0


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
