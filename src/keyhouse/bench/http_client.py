"""A client that costs little: keep-alive connections that each ask the same again when the answer is there, in bare bytes.

It looks for the end of the body that it knows, and counts. So the server is what is measured, and not the client.
"""

import asyncio
from typing import Any


class _Connection(asyncio.Protocol):
    def __init__(self, run: "Run") -> None:
        self._run = run
        self._pieces = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        if self._pieces:
            data = self._pieces + data
        if not data.endswith(self._run.end):
            self._pieces = data
            return
        self._pieces = b""
        if not data.startswith(b"HTTP/1.1 200 "):
            self._run.failed(data)
        elif self._run.goes_on():
            self._transport.write(self._run.request)

    def connection_lost(self, error: Exception | None) -> None:
        self._run.failed(b"the connection was lost")


class Run:
    """`count` requests over `connections` connections; `end` is how every answer ends."""

    def __init__(self, request: bytes, end: bytes, count: int) -> None:
        self.request = request
        self.end = end
        self._left = count
        self._asked = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def goes_on(self) -> bool:
        self._left -= 1
        if self._left <= 0 and not self._done.done():
            self._done.set_result(None)
        return self._left > 0

    def failed(self, data: bytes) -> None:
        if not self._done.done():
            self._done.set_exception(
                RuntimeError(f"not the answer that was asked for: {data[:500]!r}")
            )

    async def over(self, port: int, connections: int) -> int:
        loop = asyncio.get_running_loop()
        opened = [
            await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port)
            for _ in range(connections)
        ]
        try:
            await self._done
        finally:
            for transport, _ in opened:
                transport.close()
        return self._asked


def get(path: str, token: str | None = None) -> bytes:
    headers = f"Authorization: Bearer {token}\r\n" if token is not None else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{headers}\r\n".encode()
