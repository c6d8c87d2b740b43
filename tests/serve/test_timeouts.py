"""Timeouts, the write-buffer limit, and write coalescing of one connection."""

import asyncio
import socket
from typing import Any

import pytest
import structlog

from keyhouse.http import make_app
from keyhouse.http.limits import HTTP_KEEP_ALIVE_SECONDS
from keyhouse.http.response import EncodedResponse, ResponseSender
from keyhouse.serve import listener
from keyhouse.serve.http1 import Connection
from keyhouse.serve.http1_server import Http1Server, WriteBufferLimit
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
from tests.support.polling import loop_turns, until

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
            await to_the_end(port, b"GET /shop HTTP/1.1\r\n")  # the timeout of a later request
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
        under = Written()
        protocol = connected(http1_server(write_timeout_seconds=0.001), under)
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
        unread = WriteBufferLimit(10)
        server = http1_server(write_buffer_limit=unread)
        unders = [Written() for _ in range(5)]
        protocols = [connected(server, under) for under in unders]
        for under, size in zip(unders, (6, 3, 1, 4, 90), strict=True):
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
        server = http1_server(write_buffer_limit=WriteBufferLimit(11 * 2**20))
        unders = [Written() for _ in range(3)]
        for under in unders:
            under.unread = [2**20] * 2
            protocol = connected(server, under)
            protocol.data_received(GET)  # its response is not complete
            protocol.pause_writing()
        assert [under.aborted.is_set() for under in unders] == [True, False, False]

    run(scenario)


# Buffers and shutdown


def test_a_body_that_nobody_reads_is_not_buffered() -> None:
    """Regression: a large read resumed reading, however much of the body waited already."""

    async def scenario() -> None:
        resume = asyncio.Event()
        received = 0

        async def app(scope: object, receive: Any, send: ResponseSender) -> None:
            nonlocal received
            await resume.wait()
            while (message := await receive())["more_body"]:
                received += len(message["body"])
            await send.send_response("an-id", EncodedResponse(204, []))

        under = Written()
        connection = connected(http1_server(app), under)
        size = 40_000
        head = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (3 * size)
        for data in (head, b"x" * size):
            connection.data_received(data)
            assert under.is_reading()
        connection.data_received(b"x" * size)
        assert not under.is_reading()
        resume.set()
        await until(lambda: under.is_reading() and received == 2 * size)
        connection.data_received(b"x" * size)
        await until(lambda: under.writes)
        connection.connection_lost(None)

    run(scenario)


def test_a_request_that_takes_longer_than_the_shutdown_may_is_cancelled() -> None:
    async def scenario() -> None:
        server, under = http1_server(app=never_responds), Written()
        connection = connected(server, under)
        connection.data_received(GET)
        await loop_turns(1)
        await server.drain(0)
        await until(lambda: under.writes)
        assert under.writes[0].startswith(b"HTTP/1.1 500 ") and under.closed_after == 1
        connection.connection_lost(None)
        await server.drain(TIMEOUT_SECONDS)

    run(scenario)


async def never_responds(scope: object, receive: object, send: object) -> None:
    await asyncio.Event().wait()


# Write coalescing

SECURITY_LINES = (
    b"x-content-type-options: nosniff\r\nx-frame-options: DENY\r\nx-request-id: an-id\r\n\r\n"
)


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed_after: int | None = None
        self.unread: list[int] = []
        self.aborted = asyncio.Event()
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_reading(self) -> bool:
        return not self.is_paused

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


def http1_server(app: Any = None, **settings: Any) -> Http1Server:
    seconds = ("header_timeout_seconds", "write_timeout_seconds", "keep_alive_seconds")
    settings = dict.fromkeys(seconds, TIMEOUT_SECONDS) | settings
    return Http1Server(app or make_app([shop()]), **settings)


def connected(server: Http1Server, under: Written) -> Connection:
    connection = Connection(server)
    connection.connection_made(under)
    return connection


async def one_request(under: Written, *received: bytes, app: Any = None) -> None:
    server = http1_server(app)
    connection = connected(server, under)
    for data in received:
        connection.data_received(data)
        while not server.pending_writes and not under.writes:
            await loop_turns(1)
    await loop_turns(1)
    connection.connection_lost(None)


def test_a_whole_response_is_one_write() -> None:
    async def scenario() -> None:
        under = Written()
        await one_request(under, GET)
        [response] = under.writes
        assert response.startswith(b"HTTP/1.1 200 OK\r\n") and response.endswith(b"}")

    run(scenario)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ((b"x-own", b"a"), b"204 No Content"),
        ((b"x-own", b"a\r\nx-other: b"), b"500 Internal Server Error"),
        ((b"x-own\n", b"a"), b"500 Internal Server Error"),
        ((b"connection", b"close"), b"204 No Content"),
    ],
)
def test_an_invalid_header_is_not_written_with_a_whole_response(
    header: tuple[bytes, bytes], status: bytes
) -> None:
    async def scenario() -> None:
        async def app(scope: object, receive: object, send: ResponseSender) -> None:
            await send.send_response("an-id", EncodedResponse(204, [header]))

        under = Written()
        with structlog.testing.capture_logs() as lines:
            await one_request(under, GET, app=app)
        [response] = under.writes
        assert response.startswith(b"HTTP/1.1 %b\r\ndate: " % status)
        if status.startswith(b"204"):
            assert response.endswith(b"\r\n%b: %b\r\n" % header + SECURITY_LINES), response
            assert not lines
        else:
            assert b"x-other" not in response
            assert [line["event"] for line in lines] == ["application failed"]
        assert (under.closed_after is None) == (header == (b"x-own", b"a"))

    run(scenario)


def test_a_complete_response_is_sent_although_its_application_fails_after_it() -> None:
    """Regression: the connection was closed before the end of the turn of the event loop, in which
    the response leaves."""

    async def scenario() -> None:
        async def app(scope: object, receive: object, send: ResponseSender) -> None:
            await send.send_response("an-id", EncodedResponse(200, [], b"{}"))
            raise ValueError

        under = Written()
        await one_request(under, GET, app=app)
        [response] = under.writes
        assert response.startswith(b"HTTP/1.1 200 ") and under.closed_after is None

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
