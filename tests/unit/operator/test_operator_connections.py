"""Redis connections in folders, as mounted Secrets are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing

from llmqueue.errors import LlmqueueError, StoreUnavailable
from llmqueue.spec import LLMQueue
from llmqueue_operator import connections as module
from llmqueue_operator.connections import Connections
from llmqueue_operator.errors import UnusableConnection
from llmqueue_operator.pods import WorkerRedis
from support.clusterobjects import llmqueue


class Store:
    """Stands for an open store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class Opened:
    """Every store that was opened."""

    def __init__(self) -> None:
        self.stores: list[Store] = []
        self.away = False
        self.warnings: list[str] = []

    async def connect(self, url: str, *, warn: Callable[[str], None]) -> Store:
        await asyncio.sleep(0)
        for text in self.warnings:
            warn(text)
        if self.away:
            raise StoreUnavailable("Redis cannot be reached")
        self.stores.append(Store(url))
        return self.stores[-1]

    @property
    def open(self) -> list[Store]:
        return [store for store in self.stores if not store.closed]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    opened = Opened()
    monkeypatch.setattr(module, "connect", opened.connect)
    return opened


def write(folder: Path, name: str = "default", **files: str) -> Connections:
    """`worker_url` is the file worker-url."""
    (folder / name).mkdir(exist_ok=True)
    for file, text in files.items():
        (folder / name / file.replace("_", "-")).write_text(text)
    return Connections(folder)


def queue(**redis: object) -> LLMQueue:
    raw = llmqueue(redis=redis)
    return LLMQueue.model_validate(
        {"apiVersion": "llmqueue.dev/v1alpha1", "kind": "LLMQueue", **raw}
    )


# ---------------------------------------------------------------- stores


async def test_opened_once(tmp_path: Path, opened: Opened) -> None:
    connections = write(tmp_path, url="redis://a\n")
    store = await connections.store("default")
    assert await connections.store("default") is store
    assert [each.url for each in opened.stores] == ["redis://a"]
    await connections.close()
    assert opened.open == []


async def test_asked_for_by_many_at_once(tmp_path: Path, opened: Opened) -> None:
    """The ticks and the listener both ask at the start: one is opened for all, none leaks."""
    connections = write(tmp_path, url="redis://a")
    found = await asyncio.gather(*(connections.store("default") for _ in range(5)))
    assert len({id(store) for store in found}) == 1
    assert len(opened.open) == 1
    await connections.close()
    assert opened.open == []


async def test_a_changed_url_is_opened_anew(tmp_path: Path, opened: Opened) -> None:
    """S17: Redis is elsewhere, or its password has changed."""
    connections = write(tmp_path, url="redis://a")
    await connections.store("default")
    write(tmp_path, url="redis://b")
    assert (await connections.store("default")).url == "redis://b"  # type: ignore[attr-defined]
    assert [each.url for each in opened.open] == ["redis://b"]


async def test_a_changed_url_while_many_ask(tmp_path: Path, opened: Opened) -> None:
    connections = write(tmp_path, url="redis://a")
    await connections.store("default")
    write(tmp_path, url="redis://b")
    found = await asyncio.gather(*(connections.store("default") for _ in range(5)))
    assert {store.url for store in found} == {"redis://b"}  # type: ignore[attr-defined]
    assert [each.url for each in opened.open] == ["redis://b"]
    assert all(store.closed <= 1 for store in opened.stores)


async def test_a_url_that_changes_while_it_is_opened(tmp_path: Path, opened: Opened) -> None:
    connections = write(tmp_path, url="redis://a")
    first = asyncio.create_task(connections.store("default"))
    await asyncio.sleep(0)
    write(tmp_path, url="redis://b")
    second = asyncio.create_task(connections.store("default"))
    await asyncio.gather(first, second)
    assert (await connections.store("default")).url == "redis://b"  # type: ignore[attr-defined]
    assert len(opened.open) == 1


async def test_a_store_that_is_away_is_tried_again(tmp_path: Path, opened: Opened) -> None:
    """S17."""
    connections = write(tmp_path, url="redis://a")
    opened.away = True
    with pytest.raises(StoreUnavailable):
        await connections.store("default")
    opened.away = False
    await connections.store("default")
    assert len(opened.open) == 1


async def test_closing_goes_on_after_a_failure(tmp_path: Path, opened: Opened) -> None:
    write(tmp_path, "a", url="redis://a")
    connections = write(tmp_path, "b", url="redis://b")
    broken = await connections.store("a")
    await connections.store("b")

    async def fail() -> None:
        raise StoreUnavailable("gone")

    broken.close = fail  # type: ignore[method-assign]
    await connections.close()
    assert [each.url for each in opened.open] == ["redis://a"]


@pytest.mark.parametrize("name", ["missing", "empty", "binary"])
async def test_a_connection_that_is_not_in_the_settings(tmp_path: Path, name: str) -> None:
    """S38: a wrong name is said, with the name; a Secret full of rubbish stops nobody else."""
    connections = write(tmp_path, "empty", url=" \n")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "url").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnusableConnection, match=name):
        await connections.store(name)


@pytest.mark.parametrize("url", ["valkey:6379", "redis://[::1", "http://x", "redis://h:port/0"])
async def test_a_url_that_is_none(tmp_path: Path, url: str) -> None:
    """One connection's mistake is an error of ours, which the tick survives."""
    with pytest.raises(LlmqueueError):
        await write(tmp_path, url=url).store("default")


def test_names(tmp_path: Path) -> None:
    """A mounted Secret has folders and links of its own, beginning with dots."""
    write(tmp_path, "b", url="redis://b")
    write(tmp_path, "a", url="redis://a")
    write(tmp_path, "..data", url="redis://c")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "file").write_text("x")
    assert Connections(tmp_path).names() == ["a", "b"]
    assert Connections(tmp_path / "nowhere").names() == []


# ---------------------------------------------------------------- what workers are given


@pytest.mark.parametrize(
    ("files", "redis", "given"),
    [
        pytest.param(
            {"url": "redis://v:6379/0\n"}, {}, WorkerRedis(url="redis://v:6379/0"), id="the same"
        ),
        pytest.param(
            {"url": "redis+sentinel://a:1,b:2/m"},
            {},
            WorkerRedis(url="redis+sentinel://a:1,b:2/m"),
            id="Sentinels",
        ),
        pytest.param(
            {"url": "redis://:pw@v", "worker_url": "redis://v2"},
            {},
            WorkerRedis(url="redis://v2"),
            id="another one",
        ),
        pytest.param(
            {"url": "redis://:pw@v", "worker_secret_name": "workers\n"},
            {},
            WorkerRedis(secret="workers", key="url"),
            id="a Secret",
        ),
        pytest.param(
            {"url": "redis://v", "worker_secret_name": "workers", "worker_secret_key": "dsn"},
            {},
            WorkerRedis(secret="workers", key="dsn"),
            id="a key of a Secret",
        ),
        pytest.param(
            {"url": "redis://:pw@v", "worker_secret_name": "workers"},
            {"workerSecretRef": {"name": "mine"}},
            WorkerRedis(secret="mine", key="url"),
            id="the queue's own Secret goes first",
        ),
    ],
)
def test_worker_redis(
    tmp_path: Path, files: dict[str, str], redis: dict[str, object], given: WorkerRedis
) -> None:
    assert write(tmp_path, **files).worker_redis(queue(**redis)) == given


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"url": "redis://:geheim@v"}, "workerSecretRef", id="a password"),
        pytest.param(
            {"url": "redis+cluster://:geheim@a,b"}, "workerSecretRef", id="a cluster's password"
        ),
        pytest.param(
            {"url": "redis+sentinel://a,b/m?sentinel_password=geheim"},
            "workerSecretRef",
            id="the Sentinels' password",
        ),
        pytest.param(
            {"url": "redis://v", "worker_url": "redis://u:geheim@v"}, "workerSecretRef", id="theirs"
        ),
        pytest.param({}, "not in the operator's settings", id="no URL"),
        pytest.param({"url": "redis://:geheim@[::1"}, "default", id="no URL at all"),
    ],
)
def test_workers_that_cannot_be_given_a_redis(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(UnusableConnection, match=message) as refused:
        write(tmp_path, **files).worker_redis(queue())
    assert "geheim" not in str(refused.value)


def test_the_files_of_a_worker() -> None:
    """Either a variable or a file, and a file's folder is what the Secret is mounted to."""
    plain, secret = WorkerRedis(url="redis://v"), WorkerRedis(secret="s", key="k")
    assert plain.environment == {"LLMQUEUE_REDIS_URL": "redis://v"}
    assert (plain.volumes, plain.mounts) == ([], [])
    (volume,), (mount,) = secret.volumes, secret.mounts
    assert volume["secret"] == {"secretName": "s", "items": [{"key": "k", "path": "url"}]}
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert secret.environment == {"LLMQUEUE_REDIS_URL_FILE": f"{mount['mountPath']}/url"}


async def test_warnings_of_a_redis_are_logged_once(tmp_path: Path, opened: Opened) -> None:
    opened.warnings = ["append-only file is off"]
    connections = write(tmp_path, url="redis://one")
    with structlog.testing.capture_logs() as logs:
        await connections.store("default")
        await connections.store("default")
    assert [(line["connection"], line["message"]) for line in logs] == [
        ("default", "append-only file is off")
    ]
