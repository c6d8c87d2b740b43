"""A minimal HTTP client, so that the server is what is measured.

Keep-alive connections send the same bytes again after each response; the end of a body is
recognised by its known last bytes.
"""

import asyncio
from collections.abc import Iterator
from typing import Any


class _Connection(asyncio.Protocol):
    def __init__(self, run: "Run") -> None:
        self._run = run
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._run.next_request())

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        if not data.endswith(self._run.end):
            self._buffer = data
            return
        self._buffer = b""
        if not data.startswith(self._run.start):
            self._run.fail(data)
        elif self._run.count_response():
            self._transport.write(self._run.next_request())

    def connection_lost(self, error: Exception | None) -> None:
        self._run.fail(b"the connection was lost")


class Run:
    """`count` requests over `connections` connections; every response ends with `end`."""

    def __init__(self, request: bytes, end: bytes, count: int) -> None:
        self.request = request
        self.end = end
        self.start = b"HTTP/1.1 200 "
        self._remaining = count
        self._count = count
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes:
        return self.request

    def count_response(self) -> bool:
        """Return whether to send another request."""
        self._remaining -= 1
        if self._remaining <= 0 and not self._done.done():
            self._done.set_result(None)
        return self._remaining > 0

    def fail(self, data: bytes) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(f"unexpected response: {data[:500]!r}"))

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
        return self._count


class RequestRun(Run):
    """Sends another request each time."""

    def __init__(
        self, requests: Iterator[bytes], end: bytes, count: int, *, created: bool = False
    ) -> None:
        super().__init__(b"", end, count)
        self._requests = requests
        self.start = b"HTTP/1.1 201 " if created else b"HTTP/1.1 200 "

    def next_request(self) -> bytes:
        return next(self._requests)


def sent(method: str, path: str, token: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str, token: str | None = None) -> bytes:
    headers = f"Authorization: Bearer {token}\r\n" if token is not None else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{headers}\r\n".encode()
