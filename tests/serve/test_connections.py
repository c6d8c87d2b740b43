"""Invalid requests on a raw connection to the real listener."""

import asyncio
import gc
import re

import pytest
from prometheus_client import CollectorRegistry

from keyhouse.http.limits import HTTP_HEAD_BYTES_MAX
from keyhouse.serve.http1 import Connection
from tests.serve.support.raw_connections import GET, Wide, problem, run, served, to_the_end
from tests.support.polling import until

CLOSING = GET[:-2] + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS, to a port without TLS
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
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\n"
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_an_invalid_request_is_rejected_with_a_problem_document_and_the_connection_closed(
    sent: bytes,
) -> None:
    async def scenario() -> None:
        async with served() as port:
            answer = await to_the_end(port, sent)
            assert problem(answer, 400)["detail"] == "Invalid HTTP request."
            assert (await to_the_end(port, CLOSING)).startswith(b"HTTP/1.1 200 "), (
                "the next one is served"
            )

    run(scenario)


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
def test_a_request_has_one_host_header_and_rejections_are_counted(sent: bytes, status: int) -> None:
    async def scenario() -> None:
        registry = CollectorRegistry()
        async with served(registry=registry) as port:
            answer = await to_the_end(port, sent)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            if status == 400:
                assert "must have one Host header" in problem(answer, 400)["detail"]
            count = registry.get_sample_value("keyhouse_http_refused_total", {"status": "400"})
            assert count == (1.0 if b"400 Bad Request" in answer else None)

    run(scenario)


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
def test_a_head_that_is_too_large_is_rejected_as_soon_as_that_is_known(pieces: list[bytes]) -> None:
    """Regression: it was all buffered, so endless headers filled the memory of the machine."""

    async def scenario() -> None:
        async with served() as port:
            answer = await to_the_end(port, *pieces)
            refused = problem(answer[answer.rindex(b"HTTP/1.1 ") :], 431)
            assert refused["code"] == "HEADERS_TOO_LARGE" and refused["fields"] == {
                "limit": HTTP_HEAD_BYTES_MAX
            }

    run(scenario)


def test_a_head_within_the_limit_is_accepted_and_a_large_body_does_not_count() -> None:
    async def scenario() -> None:
        async with served() as port:
            head = (
                b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                + HEADER * (LINES - 3)
                + b"\r\n"
            )
            assert (await to_the_end(port, head)).startswith(b"HTTP/1.1 200 ")
            body = b'"' + b"x" * 200_000 + b'"'
            post = (
                b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body)
            )
            answer = await to_the_end(port, post + body + head[:20], head[20:])
            assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"200"]

    run(scenario)


def test_an_invalid_pipelined_request_does_not_answer_the_one_before_it() -> None:
    """Regression: the rejection came first, and the client mistook it for the response to a request
    that was carried out.
    """

    async def scenario() -> None:
        wide = Wide()
        async with served(wide) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /wide/wait HTTP/1.1\r\nHost: x\r\n\r\n")
            await wide.started.wait()
            writer.write(b"NONSENSE\r\n\r\n")
            await to_the_end(port, CLOSING)  # a later one is answered: it has been read
            wide.resume.set()
            answer = await reader.read()
            writer.close()
            assert (
                answer.count(b"HTTP/1.1") == 1
                and answer.startswith(b"HTTP/1.1 200 ")
                and b"done" in answer
            )

    run(scenario)


def test_an_invalid_pipelined_body_does_not_answer_the_request_before_it() -> None:
    async def scenario() -> None:
        wide = Wide()
        broken = b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        broken += b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
        async with served(wide) as port:
            assert (
                await to_the_end(port, b"GET /wide/wait HTTP/1.1\r\nHost: x\r\n\r\n" + broken)
                == b""
            )
            wide.resume.set()

    run(scenario)


def test_an_upgrade_is_answered_as_a_plain_request_and_closes_the_connection() -> None:
    """Regression: requests after it were swallowed, and their clients waited without end."""

    async def scenario() -> None:
        async with served() as port:
            for wanted in (b"websocket", b"h2c"):
                asked = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: " + wanted + b"\r\n\r\n"
                answer = await to_the_end(port, asked + GET)
                assert answer.count(b"HTTP/1.1 200 ") == 1 and b"connection: close" in answer

    run(scenario)


def test_a_closed_connection_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: each left some twenty objects that refer to each other; a collection of those of
    many short connections delayed every request by milliseconds. One that its client had reset was
    held by the timer of its keep-alive."""

    async def scenario() -> None:
        wide = Wide()
        async with served(wide) as port:
            aborted = GET.replace(b"/shop/things/drinks", b"/wide/wait")
            for request, replies in ((GET, 1), (GET * 3, 3), (GET * 3, 0), (aborted, 0)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                if request is aborted:
                    await wide.started.wait()
                elif not replies:
                    await reader.read(1)  # and what is unread resets the connection
                for _ in range(replies):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                writer.close()
                await writer.wait_closed()
            wide.resume.set()
            assert (await to_the_end(port, CLOSING)).startswith(b"HTTP/1.1 200 ")
            await until(lambda: not connections())

    gc.collect()
    gc.disable()
    try:
        run(scenario)
    finally:
        gc.enable()


def connections() -> list[Connection]:
    return [each for each in gc.get_objects() if type(each) is Connection]
