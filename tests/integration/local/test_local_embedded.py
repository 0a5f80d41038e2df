"""The embedded Valkey of a data folder, and its keeper."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from llmqueue.errors import UsageError
from llmqueue.store import connect
from llmqueue_cli.datadir import DataDir
from llmqueue_cli.local.embedded import EmbeddedValkey, FolderLock
from llmqueue_cli.local.respond import answers, ask
from support.localup import alive

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def folder(tmp_path: Path) -> DataDir:
    found = DataDir(tmp_path / "data")
    found.create()
    return found


@pytest.fixture
async def server(folder: DataDir) -> AsyncIterator[EmbeddedValkey]:
    server = EmbeddedValkey(folder)
    await server.start()
    yield server
    await server.stop()


def say(server: EmbeddedValkey, command: str) -> str:
    return ask(server.socket, command.encode() + b"\r\n").decode()


def pid_of(server: EmbeddedValkey) -> int:
    info = say(server, "INFO server")
    return int(info.partition("process_id:")[2].split()[0])


async def until(true: Callable[[], bool], *, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        await asyncio.sleep(0.05)


async def test_it_is_durable_private_and_never_evicts(server: EmbeddedValkey) -> None:
    store = await connect(server.url)
    assert await store.check() == [], "no warning: append-only, noeviction"
    await store.close()
    assert say(server, "CONFIG GET appendfsync").split()[-1] == "everysec"
    assert say(server, "CONFIG GET port").split()[-1] == "0"
    assert os.stat(server.socket).st_mode & 0o077 == 0


async def test_data_survives_an_orderly_end(folder: DataDir) -> None:
    found: list[str] = []
    for _ in range(2):
        server = EmbeddedValkey(folder)
        await server.start()
        found.append(say(server, "GET a"))
        say(server, "SET a kept")
        pid = pid_of(server)
        await server.stop()
        assert not alive(pid)
    assert found == ["", "kept"]


async def test_a_killed_server_is_restarted_with_its_data(server: EmbeddedValkey) -> None:
    say(server, "SET a kept")
    assert await server.ensure() is False
    pid = pid_of(server)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not alive(pid))
    await asyncio.sleep(0.3)
    assert await server.ensure() is True
    assert say(server, "GET a") == "kept"


async def test_a_server_that_hangs_is_not_doubled(server: EmbeddedValkey) -> None:
    pid = pid_of(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert await server.ensure() is False
    finally:
        os.kill(pid, signal.SIGCONT)
    assert pid_of(server) == pid


async def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / ("long" * 25))
    folder.create()
    server = EmbeddedValkey(folder)
    await server.start()
    socket = Path(server.socket)
    assert len(str(socket)) < 100
    assert answers(server.socket)
    await server.stop()
    assert not socket.parent.exists()


def test_one_up_at_a_time(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    lock = FolderLock(folder)
    folder.write_note(pid=4711)
    with pytest.raises(UsageError, match=r"pid 4711.*--data-dir"):
        FolderLock(folder)
    lock.release()
    FolderLock(folder).release()


KILLED_UP = """
    import asyncio, sys, time
    from pathlib import Path
    from llmqueue_cli.datadir import DataDir
    from llmqueue_cli.local.embedded import EmbeddedValkey
    async def main():
        folder = DataDir(Path(sys.argv[1]))
        server = EmbeddedValkey(folder)
        await server.start()
        folder.write_note(socket=server.socket)
        print("up", flush=True)
        time.sleep(60)
    asyncio.run(main())
"""


def killed_up(folder: DataDir) -> EmbeddedValkey:
    """What an `up` that was killed leaves behind."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED_UP), str(folder.folder)],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    return EmbeddedValkey(folder)


async def test_after_a_killed_up_the_server_ends_when_nobody_needs_it(folder: DataDir) -> None:
    left = killed_up(folder)
    pid = pid_of(left)
    await until(lambda: not alive(pid))


async def test_a_draining_worker_keeps_the_server_and_the_next_up_adopts_it(
    folder: DataDir,
) -> None:
    left = killed_up(folder)
    pid = pid_of(left)
    worker = await connect(left.url)
    await asyncio.sleep(4.5)
    assert alive(pid), "a connected client needs it"
    server = EmbeddedValkey(folder)
    await server.start()
    assert pid_of(server) == pid, "not a second one on the same files"
    assert await server.ensure() is False
    await worker.close()
    await server.stop()
    assert not alive(pid)
