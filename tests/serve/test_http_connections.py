"""One connection, byte by byte: what is no request, what never ends, and who never reads. On the real server."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.server import ServerState

from keyhouse.limits import HTTP_HEAD_BYTES_MAX
from keyhouse.serve.corked import HELD_BYTES_MAX, CorkedTransport
from keyhouse.serve.http import Reply, Route, Stream, make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.serve.part import Part
from keyhouse.serve.protocol import Protocol
from keyhouse.serve.settings import Address
from keyhouse.serve.unsent import Unsent
from tests.serve.http_shop import shop

GET = b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE_SECONDS = 10
BRIEF = 0.1


class Wide:
    """Answers that are larger than what a connection holds, and one that waits until it is told."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def endless(self) -> Reply[Stream]:
        """Never end by itself."""

        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 100_000
            finally:
                self.ended.set()

        return Reply(pieces(), media_type="text/plain")

    async def wait(self) -> dict[str, bool]:
        """Answer when told to."""
        self.begun.set()
        await self.go_on.wait()
        return {"done": True}

    async def large(self) -> Reply[bytes]:
        """More than is held back, at once."""
        return Reply(b"y" * 1_000_000, media_type="text/plain")

    def part(self) -> Part:
        routes = [("/endless", self.endless), ("/wait", self.wait), ("/large", self.large)]
        return Part(name="wide", routes=[Route(method="GET", path=path, handler=handler) for path, handler in routes])


@asynccontextmanager
async def served(
    wide: Wide | None = None, registry: CollectorRegistry | None = None, **seconds: float
) -> AsyncIterator[int]:
    app = make_app([shop(), *([wide.part()] if wide else [])], registry=registry)
    with bind(Address("127.0.0.1", 0)) as bound:
        async with listening(app, bound, drain_seconds=5, refused=app.metrics.refuse, **seconds) as address:
            yield address.port


def story(told: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(3 * PATIENCE_SECONDS):
            await told()

    asyncio.run(limited())


async def to_the_end(port: int, *pieces: bytes) -> bytes:
    """All that the server says to these pieces, until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)  # so that the server sees them one by one
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    finally:
        writer.close()


def problem(answer: bytes, status: int) -> dict[str, Any]:
    """What the refusal says, if it is whole, and has what every answer has."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d " % status), answer
    for line in (b"content-type: application/problem+json", b"x-content-type-options: nosniff", b"connection: close"):
        assert lines.count(line) == 1
    assert b"x-frame-options: deny" in lines and b"content-length: %d" % len(body) in lines
    told: dict[str, Any] = json.loads(body)
    assert told["status"] == status and f"x-request-id: {told['requestId']}".encode() in lines
    return told


# What is no request


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, to a port that speaks none
        b"HELLO\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /shop/mine HTTP/9.9\r\n\r\n",
        b"GET /shop/mine HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET /shop/mine HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
        b"GET /shop/mine HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
        b"GET /shop/mine HTTP/1.1\r\nHost: x\r\n A: folded\r\n\r\n",
        b"GET /sh\x80p HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n[1]",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n[1]",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_request_is_refused_by_a_problem_document_and_the_connection_ends(sent: bytes) -> None:
    async def told() -> None:
        async with served() as port:
            answer = await to_the_end(port, sent)
            assert problem(answer, 400)["detail"] == "What was sent is no HTTP request."
            assert (await to_the_end(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).startswith(
                b"HTTP/1.1 200 "
            ), "the next one is served"

    story(told)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /shop/things/drinks HTTP/1.1\r\n\r\n", 400),
        (b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n", 400),
        (GET + b"GET /shop/things/drinks HTTP/1.1\r\n\r\n", 200),
        (b"GET /shop/things/drinks HTTP/1.0\r\n\r\n", 200),
    ],
    ids=["none", "two", "none behind a good one", "none is needed"],
)
def test_a_request_names_its_host_once_and_a_refusal_is_counted(sent: bytes, status: int) -> None:
    async def told() -> None:
        registry = CollectorRegistry()
        async with served(registry=registry) as port:
            answer = await to_the_end(port, sent)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            if status == 400:
                assert "send one Host header" in problem(answer, 400)["detail"]
            count = registry.get_sample_value("keyhouse_http_refused_total", {"status": "400"})
            assert count == (1.0 if b"400 Bad Request" in answer else None)

    story(told)


HEADER = b"A: " + b"x" * 997 + b"\r\n"
LINES = HTTP_HEAD_BYTES_MAX // len(HEADER) + 2


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /shop/mine HTTP/1.1\r\n" + HEADER * LINES + b"\r\n"],
        [b"GET /shop/mine HTTP/1.1\r\n", *([HEADER * 8] * 6)],
        [b"GET /shop/mine HTTP/1.1\r\nA: ", *([b"x" * 8_000] * 6)],
        [b"GET /", *([b"x" * 8_000] * 6)],
        [b"GET /" + b"x" * HTTP_HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n"],
        [GET, b"GET /shop/mine HTTP/1.1\r\n", *([HEADER * 8] * 6)],
    ],
    ids=[
        "at once",
        "header by header",
        "one that never ends",
        "an endless address",
        "a long address",
        "the second request",
    ],
)
def test_a_head_that_is_too_large_is_refused_as_soon_as_that_is_known(pieces: list[bytes]) -> None:
    """uvicorn kept all of it: whoever sent headers without end took the memory of the machine."""

    async def told() -> None:
        async with served() as port:
            answer = await to_the_end(port, *pieces)
            refused = problem(answer[answer.rindex(b"HTTP/1.1 ") :], 431)
            assert refused["code"] == "HEADERS_TOO_LARGE" and refused["fields"] == {"limit": HTTP_HEAD_BYTES_MAX}

    story(told)


def test_a_head_just_within_the_limit_is_taken_and_a_large_body_does_not_count_as_one() -> None:
    async def told() -> None:
        async with served() as port:
            head = (
                b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + HEADER * (LINES - 3) + b"\r\n"
            )
            assert (await to_the_end(port, head)).startswith(b"HTTP/1.1 200 ")
            body = b'"' + b"x" * 200_000 + b'"'
            post = (
                b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            )
            answer = await to_the_end(port, post + body + head[:20], head[20:])
            assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"200"]

    story(told)


def test_a_request_that_is_wrong_behind_one_that_is_being_answered_does_not_answer_it() -> None:
    """The refusal came first, and the client took it for the answer to a request that was carried out."""

    async def told() -> None:
        wide = Wide()
        async with served(wide) as port:
            talking = asyncio.create_task(
                to_the_end(port, b"GET /wide/wait HTTP/1.1\r\nHost: x\r\n\r\n", b"NONSENSE\r\n\r\n")
            )
            await wide.begun.wait()
            await asyncio.sleep(0.05)
            wide.go_on.set()
            answer = await talking
            assert answer.count(b"HTTP/1.1") == 1 and answer.startswith(b"HTTP/1.1 200 ") and b"done" in answer

    story(told)


def test_a_body_that_is_wrong_behind_a_request_that_is_being_answered_does_not_answer_it() -> None:
    async def told() -> None:
        wide = Wide()
        broken = b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        broken += b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
        async with served(wide) as port:
            assert await to_the_end(port, b"GET /wide/wait HTTP/1.1\r\nHost: x\r\n\r\n" + broken) == b""
            wide.go_on.set()

    story(told)


def test_an_upgrade_is_answered_as_any_request_and_is_the_last_of_its_connection() -> None:
    """What came behind one was swallowed, and its client waited without end."""

    async def told() -> None:
        async with served() as port:
            for wanted in (b"websocket", b"h2c"):
                asked = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: " + wanted + b"\r\n\r\n"
                answer = await to_the_end(port, asked + GET)
                assert answer.count(b"HTTP/1.1 200 ") == 1 and b"connection: close" in answer

    story(told)


# What never ends


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([], None),
        ([b"\r\n", b"\r\n"], None),
        ([b"G"], 408),
        ([b"GET /shop/mine HTTP/1.1\r\n", b"Host: x\r\n", b"A: b\r\n"], 408),
        ([GET, b"GET /shop"], 408),
        ([GET, b"\r\n"], None),
        ([b"GET /shop/mine HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"x"], None),
    ],
    ids=[
        "nothing",
        "empty lines",
        "a letter",
        "headers",
        "a second request",
        "a line behind one",
        "a body nobody reads",
    ],
)
def test_a_connection_whose_head_does_not_come_is_closed(pieces: list[bytes], status: int | None) -> None:
    """Slowloris: many connections, each of which sends a little now and then, and none of which ever ends."""

    async def told() -> None:
        async with served(head_seconds_max=BRIEF) as port:
            answer = await to_the_end(port, *pieces)
            if status is not None:
                last = answer[answer.rindex(b"HTTP/1.1 ") :]
                assert problem(last, status)["detail"] == "The head of the request did not come in time."
            else:
                assert answer.count(b"HTTP/1.1") == len([piece for piece in pieces if b"HTTP" in piece])

    story(told)


def test_a_head_that_drips_is_closed_by_its_beginning_and_not_by_its_last_byte() -> None:
    async def told() -> None:
        async with served(head_seconds_max=0.3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            began = asyncio.get_running_loop().time()
            writer.write(b"GET /shop HTTP/1.1\r\n")
            while not reader.at_eof() and asyncio.get_running_loop().time() < began + PATIENCE_SECONDS:
                writer.write(b"A: b\r\n")
                try:
                    async with asyncio.timeout(0.05):
                        await reader.read(1_000)
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            assert asyncio.get_running_loop().time() < began + PATIENCE_SECONDS
            writer.close()

    story(told)


def test_a_request_that_takes_long_to_answer_is_not_what_the_heads_time_is_about() -> None:
    async def told() -> None:
        wide = Wide()
        async with served(wide, head_seconds_max=BRIEF, stall_seconds_max=BRIEF) as port:
            talking = asyncio.create_task(
                to_the_end(port, b"GET /wide/wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            )
            await wide.begun.wait()
            await asyncio.sleep(4 * BRIEF)
            wide.go_on.set()
            assert b"done" in await talking

    story(told)


# Who never reads


def test_a_client_that_takes_nothing_of_its_answer_is_hung_up_on() -> None:
    """The stream never waits by itself, so it also shows that one gives others their turn: it kept the whole loop busy."""

    async def told() -> None:
        wide = Wide()
        async with served(wide, stall_seconds_max=BRIEF) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /wide/endless HTTP/1.1\r\nHost: x\r\n\r\n")
                await wide.ended.wait()

    story(told)


def test_a_client_that_takes_something_now_and_then_is_not_hung_up_on() -> None:
    async def told() -> None:
        config = uvicorn.Config(make_app([shop()]), lifespan="off")
        under = Written()
        protocol = Protocol(config, ServerState(), {}, head_seconds_max=PATIENCE_SECONDS, stall_seconds_max=0.001)
        protocol.connection_made(under)
        under.unsent = [9, 8, 5, 1, 1]  # at each look
        protocol.pause_writing()
        await under.aborted.wait()
        assert under.unsent == []
        protocol.connection_lost(None)

    story(told)


def test_of_clients_that_leave_too_much_to_be_taken_the_one_that_does_so_longest_is_cut_off() -> None:
    """Each could have its answer held for as long as it took a byte of it now and then: forty of them, 340 MB."""

    async def told() -> None:
        config = uvicorn.Config(make_app([shop()]), lifespan="off")
        unsent, patience = Unsent(10), PATIENCE_SECONDS
        unders = [Written() for _ in range(5)]
        protocols = [
            Protocol(config, ServerState(), {}, head_seconds_max=patience, stall_seconds_max=patience, unsent=unsent)
            for _ in unders
        ]
        for protocol, under, size in zip(protocols, unders, (6, 3, 1, 4, 90), strict=True):
            protocol.connection_made(under)
            under.unsent = [size, size]
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
        assert not unsent

    story(told)


# What is held back, so that an answer is one write


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed_after: int | None = None
        self.unsent: list[int] = []
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.unsent.pop(0)

    def abort(self) -> None:
        self.aborted.set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed_after = len(self.writes)


def test_what_is_written_in_one_step_is_one_write_and_what_is_large_goes_at_once() -> None:
    async def told() -> None:
        under = Written()
        corked = CorkedTransport(under, asyncio.get_running_loop())
        corked.write(b"head")
        corked.write(b"body")
        assert under.writes == []
        await asyncio.sleep(0)
        assert under.writes == [b"headbody"]
        half = b"x" * (HELD_BYTES_MAX // 2)
        corked.write(half)
        corked.write(half)
        assert len(under.writes) == 1, "up to the limit it is held"
        corked.write(b"y")
        assert under.writes[1:] == [half + half + b"y"], "beyond it, it is not"
        corked.write(b"z")
        corked.close()
        assert under.writes[2:] == [b"z"] and under.closed_after == 3
        await asyncio.sleep(0)
        assert len(under.writes) == 3, "and nothing is written twice"

    story(told)


def test_an_answer_larger_than_what_is_held_comes_whole() -> None:
    async def told() -> None:
        async with served(Wide()) as port:
            answer = await to_the_end(port, b"GET /wide/large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert answer.partition(b"\r\n\r\n")[2] == b"y" * 1_000_000

    story(told)
