"""Raw connections to the real HTTP listener."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from prometheus_client import CollectorRegistry

from keyhouse.http import Response, Route, Stream, make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings.settings import Address
from tests.http.support.shop import shop

GET = b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUT_SECONDS = 10
BRIEF = 0.1


class Wide:
    """Routes with responses larger than the write buffer, and one that waits until released."""

    def __init__(self) -> None:
        self.started, self.resume, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def endless(self) -> Response[Stream]:
        """Stream without end."""

        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 100_000
            finally:
                self.ended.set()

        return Response(pieces(), media_type="text/plain")

    async def wait(self) -> dict[str, bool]:
        """Respond when released."""
        self.started.set()
        await self.resume.wait()
        return {"done": True}

    async def large(self) -> Response[bytes]:
        """Return a large body."""
        return Response(b"y" * 1_000_000, media_type="text/plain")

    def part(self) -> ServiceSpec:
        routes = [("/endless", self.endless), ("/wait", self.wait), ("/large", self.large)]
        return ServiceSpec(
            name="wide",
            routes=[Route(method="GET", path=path, handler=handler) for path, handler in routes],
        )


@asynccontextmanager
async def served(
    wide: Wide | None = None, registry: CollectorRegistry | None = None, **seconds: Any
) -> AsyncIterator[int]:
    app = make_app([shop(), *([wide.part()] if wide else [])], registry=registry)
    with bind(Address("127.0.0.1", 0)) as bound:
        async with listening(app, bound, drain_seconds=5, reject=app.reject, **seconds) as address:
            yield address.port


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(3 * TIMEOUT_SECONDS):
            await scenario()

    asyncio.run(limited())


async def to_the_end(port: int, *pieces: bytes) -> bytes:
    """Send the pieces, and return everything the server sends until it disconnects.

    It reads while it sends: a server that closes before it has read all pieces resets the
    connection, and what has arrived but was not read would be lost.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    receiving = asyncio.create_task(_received(reader))
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)  # so that the server sees them one by one
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await receiving
    finally:
        receiving.cancel()
        writer.close()


async def _received(reader: asyncio.StreamReader) -> bytes:
    """Return everything until the end of the connection, or its reset."""
    received = b""
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            received += piece
    return received


def problem(answer: bytes, status: int) -> dict[str, Any]:
    """Return the problem document of a response, after checking its headers."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d " % status), answer
    for line in (
        b"content-type: application/problem+json",
        b"x-content-type-options: nosniff",
        b"connection: close",
    ):
        assert lines.count(line) == 1
    assert b"x-frame-options: deny" in lines and b"content-length: %d" % len(body) in lines
    logged: dict[str, Any] = json.loads(body)
    assert logged["status"] == status and f"x-request-id: {logged['requestId']}".encode() in lines
    return logged
