"""A TCP proxy before a server that can lose an answer: the request arrives, the reply does not."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class LossyProxy:
    """`async with LossyProxy(url) as proxy: … proxy.url`.

    `lose(word)`: of the next request that holds the word, the answer is read and thrown away, and its
    connection is cut.
    """

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._word = b""
        self._left = 0
        self.lost = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def lose(self, word: bytes, *, times: int = 1) -> None:
        self._word, self._left = word, times

    @property
    def url(self) -> str:
        assert self._server is not None, "the proxy is not running"
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._target._replace(netloc=f"127.0.0.1:{port}"))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        up_reader, up_writer = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        cut = asyncio.Event()
        answers = asyncio.create_task(self._answer(up_reader, writer, cut))
        try:
            while data := await reader.read(1 << 20):
                if self._left and self._word in data:
                    self._left -= 1
                    cut.set()
                up_writer.write(data)
                await up_writer.drain()
        except ConnectionError:
            pass
        finally:
            up_writer.close()
            answers.cancel()
            writer.close()

    async def _answer(
        self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await up_reader.read(1 << 20):
            if cut.is_set():
                self.lost += 1
                writer.close()
                return
            writer.write(data)
            await writer.drain()
