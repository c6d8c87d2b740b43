"""Timeouts, the write-buffer limit, and write coalescing of one connection."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from keyhouse.http import make_app
from keyhouse.http.limits import HTTP_KEEP_ALIVE_SECONDS
from keyhouse.http.response import EncodedResponse
from keyhouse.serve import listener
from keyhouse.serve.uvicorn_protocol import HttpProtocol
from keyhouse.serve.write_buffer_limit import WriteBufferLimit
from keyhouse.serve.write_coalescing import WriteBatch, coalesced
from tests.http.support.shop import shop
from tests.serve.support.raw_connections import (
    BRIEF,
    GET,
    TIMEOUT_SECONDS,
    Wide,
    problem,
    run,
    served,
    to_the_end,
)

# Header timeout


INCOMPLETE: dict[str, tuple[list[bytes], int | None]] = {
    "nothing": ([], None),
    "empty lines": ([b"\r\n", b"\r\n"], None),
    "a letter": ([b"G"], 408),
    "headers": ([b"GET /shop/mine HTTP/1.1\r\n", b"Host: x\r\n", b"A: b\r\n"], 408),
    "a second request": ([GET, b"GET /shop"], 408),
    "a line behind one": ([GET, b"\r\n"], None),
    "a body nobody reads": (
        [b"GET /shop/mine HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"x"],
        None,
    ),
}


def test_connections_without_a_complete_head_are_closed() -> None:
    """Slowloris: many connections that each send a little from time to time, and never a whole
    request.
    """

    async def check(port: int, name: str) -> None:
        pieces, status = INCOMPLETE[name]
        answer = await to_the_end(port, *pieces)
        if status is not None:
            last = answer[answer.rindex(b"HTTP/1.1 ") :]
            assert problem(last, status)["detail"] == "The headers were not received in time."
        else:
            requests = [piece for piece in pieces if b"HTTP" in piece]
            assert answer.count(b"HTTP/1.1") == len(requests), name

    async def scenario() -> None:
        async with served(header_timeout_seconds=1) as port:  # enough to send all pieces
            await asyncio.gather(*(check(port, name) for name in INCOMPLETE))

    run(scenario)


def test_the_header_timeout_counts_from_the_first_byte() -> None:
    async def scenario() -> None:
        async with served(header_timeout_seconds=0.3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            began = asyncio.get_running_loop().time()
            writer.write(b"GET /shop HTTP/1.1\r\n")
            while (
                not reader.at_eof() and asyncio.get_running_loop().time() < began + TIMEOUT_SECONDS
            ):
                writer.write(b"A: b\r\n")
                try:
                    async with asyncio.timeout(0.05):
                        await reader.read(1_000)
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            assert asyncio.get_running_loop().time() < began + TIMEOUT_SECONDS
            writer.close()

    run(scenario)


def test_a_slow_handler_is_not_subject_to_the_header_timeout() -> None:
    async def scenario() -> None:
        wide = Wide()
        async with served(wide, header_timeout_seconds=0.5, write_timeout_seconds=BRIEF) as port:
            talking = asyncio.create_task(
                to_the_end(port, b"GET /wide/wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            )
            await wide.started.wait()
            await asyncio.sleep(1)
            wide.resume.set()
            assert b"done" in await talking

    run(scenario)


def test_an_idle_connection_is_kept_longer_than_clients_and_proxies_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy service closed connections after five seconds, as the pool of a client does: requests
    that were on their way ended in a reset."""
    assert HTTP_KEEP_ALIVE_SECONDS > 60
    monkeypatch.setattr(listener, "HTTP_KEEP_ALIVE_SECONDS", BRIEF)

    async def scenario() -> None:
        async with served(header_timeout_seconds=TIMEOUT_SECONDS) as port:
            assert (await to_the_end(port, GET)).count(b"HTTP/1.1 ") == 1

    run(scenario)


# Write timeout


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """The stream never waits, so this also shows that it yields to the event loop. Regression: it
    blocked the loop.
    """

    async def scenario() -> None:
        wide = Wide()
        async with served(wide, write_timeout_seconds=BRIEF) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /wide/endless HTTP/1.1\r\nHost: x\r\n\r\n")
                await wide.ended.wait()

    run(scenario)


def test_a_client_that_reads_slowly_is_not_disconnected() -> None:
    async def scenario() -> None:
        config = uvicorn.Config(make_app([shop()]), lifespan="off")
        under = Written()
        protocol = HttpProtocol(
            config,
            ServerState(),
            {},
            header_timeout_seconds=TIMEOUT_SECONDS,
            write_timeout_seconds=0.001,
        )
        protocol.connection_made(under)
        under.unread = [9, 8, 5, 1, 1]  # at each look
        protocol.pause_writing()
        await under.aborted.wait()
        assert under.unread == []
        protocol.connection_lost(None)

    run(scenario)


def test_beyond_the_write_buffer_limit_the_longest_waiting_client_is_aborted() -> None:
    """Regression: each client kept its response buffered by reading a byte at a time: forty of
    them, 340 MB.
    """

    async def scenario() -> None:
        config = uvicorn.Config(make_app([shop()]), lifespan="off")
        unread, timeout = WriteBufferLimit(10), TIMEOUT_SECONDS
        unders = [Written() for _ in range(5)]
        protocols = [
            HttpProtocol(
                config,
                ServerState(),
                {},
                header_timeout_seconds=timeout,
                write_timeout_seconds=timeout,
                write_buffer_limit=unread,
            )
            for _ in unders
        ]
        for protocol, under, size in zip(protocols, unders, (6, 3, 1, 4, 90), strict=True):
            protocol.connection_made(under)
            under.unread = [size, size]
        for number in (0, 1, 2):
            protocols[number].pause_writing()
        protocols[2].resume_writing()
        protocols[3].pause_writing()
        assert [under.aborted.is_set() for under in unders] == [True, False, False, False, False]
        protocols[4].pause_writing()
        assert [under.aborted.is_set() for under in unders] == [True, True, False, True, False], (
            "its own size does not matter"
        )
        for protocol in protocols:
            protocol.connection_lost(None)
        assert not unread

    run(scenario)


def test_a_stream_of_large_documents_counts_as_what_it_holds() -> None:
    """One with 1 MiB to write counted as 2 MiB, and has the document several times."""

    async def scenario() -> None:
        config = uvicorn.Config(make_app([shop()]), lifespan="off")
        unread = WriteBufferLimit(11 * 2**20)
        unders = [Written() for _ in range(3)]
        for under in unders:
            under.unread = [2**20] * 2
            protocol = HttpProtocol(
                config,
                ServerState(),
                {},
                header_timeout_seconds=TIMEOUT_SECONDS,
                write_timeout_seconds=TIMEOUT_SECONDS,
                write_buffer_limit=unread,
            )
            protocol.connection_made(under)
            protocol.cycle = SimpleNamespace(response_complete=False)  # type: ignore[assignment]
            protocol.pause_writing()
        assert [under.aborted.is_set() for under in unders] == [True, False, False]

    run(scenario)


# Write coalescing


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed_after: int | None = None
        self.unread: list[int] = []
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.unread.pop(0)

    def abort(self) -> None:
        self.aborted.set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        if self.closed_after is None:
            self.closed_after = len(self.writes)

    def is_closing(self) -> bool:
        return self.closed_after is not None


async def one_request(under: Written, *received: bytes, app: Any = None) -> None:
    batch = WriteBatch(asyncio.get_running_loop())
    application = coalesced(app or make_app([shop()]), batch)
    config = uvicorn.Config(application, lifespan="off", interface="asgi3")
    config.load()
    protocol = HttpProtocol(
        config,
        ServerState(),
        {},
        header_timeout_seconds=TIMEOUT_SECONDS,
        write_timeout_seconds=TIMEOUT_SECONDS,
        write_batch=batch,
    )
    protocol.connection_made(under)
    for data in received:
        protocol.data_received(data)
        while not batch._pending and not under.writes:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    protocol.connection_lost(None)


def test_a_whole_response_is_one_write() -> None:
    async def scenario() -> None:
        under = Written()
        await one_request(under, GET)
        [response] = under.writes
        assert response.startswith(b"HTTP/1.1 200 OK\r\n") and response.endswith(b"}")

    run(scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [(b"x-own", b"a\r\nx-other: b"), (b"x-own\n", b"a"), (b"connection", b"close")],
)
def test_an_invalid_header_is_not_written_with_a_whole_response(name: bytes, value: bytes) -> None:
    async def scenario() -> None:
        written: list[bool] = []

        async def app(scope: object, receive: object, send: Any) -> None:
            written.append(send.respond("an-id", EncodedResponse(200, [(name, value)], b"{}")))
            written.append(send.respond("an-id", EncodedResponse(204, [(b"x-own", b"a")])))

        under = Written()
        await one_request(under, GET, app=app)
        assert written == [False, True]
        [response] = under.writes
        assert response.startswith(b"HTTP/1.1 204 No Content\r\nx-own: a\r\n")
        assert response.endswith(b"x-request-id: an-id\r\n\r\n")

    run(scenario)


def test_middleware_around_send_sees_every_response() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        served_app = make_app([shop()])

        async def app(scope: object, receive: object, send: Any) -> None:
            async def noted(message: Any) -> None:
                seen.append(message["type"])
                await send(message)

            await served_app(scope, receive, noted)

        under = Written()
        await one_request(under, GET, app=app)
        assert seen == ["http.response.start", "http.response.body"]
        assert len(under.writes) == 1

    run(scenario)


def test_a_rejection_does_not_overtake_the_response_before_it() -> None:
    async def scenario() -> None:
        under = Written()
        await one_request(under, GET, b"HELLO\r\n\r\n")
        assert [response[:12] for response in under.writes] == [b"HTTP/1.1 200", b"HTTP/1.1 400"]
        assert under.closed_after == 2

    run(scenario)


def test_a_large_response_is_complete() -> None:
    async def scenario() -> None:
        async with served(Wide()) as port:
            answer = await to_the_end(
                port, b"GET /wide/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            assert answer.partition(b"\r\n\r\n")[2] == b"y" * 1_000_000

    run(scenario)
