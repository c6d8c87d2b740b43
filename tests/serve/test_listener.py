"""The HTTP listener over real sockets."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import structlog

from keyhouse.errors import UsageError
from keyhouse.http import HttpSettings, Response, Route, Stream, make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.service.spec import ServiceSpec
from keyhouse.settings.settings import Address
from tests.http.support.shop import shop
from tests.studio.support.library import library, token

Ask = Callable[[bytes], Awaitable[bytes]]


class Slow:
    """Routes that wait until they are released."""

    def __init__(self) -> None:
        self.started, self.resume, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(self) -> dict[str, bool]:
        """Respond when released."""
        self.started.set()
        await self.resume.wait()
        return {"done": True}

    async def endless(self) -> Response[Stream]:
        """Stream without end."""

        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 10_000
                    await asyncio.sleep(0)
            finally:
                self.ended.set()

        return Response(pieces(), media_type="text/plain")

    async def breaks(self) -> Response[Stream]:
        """Fail when half is sent."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"half"
            raise RuntimeError("password=hunter2")

        return Response(pieces(), media_type="text/plain")

    def part(self) -> ServiceSpec:
        routes = [("/wait", self.wait), ("/endless", self.endless), ("/breaks", self.breaks)]
        return ServiceSpec(
            name="slow",
            routes=[Route(method="GET", path=path, handler=handler) for path, handler in routes],
        )


@asynccontextmanager
async def served(slow: Slow | None = None) -> AsyncIterator[int]:
    parts = [shop(), *([slow.part()] if slow else [])]
    app = make_app(parts, settings=HttpSettings(body_bytes_max=1_000))
    with bind(Address("127.0.0.1", 0)) as bound:
        async with listening(app, bound, drain_seconds=5) as address:
            yield address.port


async def talk(port: int, sent: bytes) -> bytes:
    """Send a request, and return everything the server sends until it disconnects."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def say(*requests: bytes, slow: Slow | None = None) -> list[bytes]:
    async def all_of_them() -> list[bytes]:
        async with served(slow) as port:
            return [await talk(port, request) for request in requests]

    return asyncio.run(all_of_them())


GET = b"GET /shop/things/drinks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
POST = b"POST /shop/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_response_has_each_header_once_and_its_length() -> None:
    [answer] = say(GET)
    head, _, body = answer.partition(b"\r\n\r\n")
    names = [line.split(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert len(names) == len(set(names))
    assert f"content-length: {len(body)}".encode() in head


def test_responses_without_a_body_keep_the_connection_in_order() -> None:
    """A body after one of them would be read as the next response."""
    put = (
        b"PUT /shop/things/drinks/tea HTTP/1.1\r\nHost: x\r\n"
        b"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n"
    )
    asked = [
        put + b'{"name":"tea"}',
        b"HEAD /shop/things/drinks/tea HTTP/1.1\r\nHost: x\r\n\r\n",
        b'GET /shop/things/drinks/tea HTTP/1.1\r\nHost: x\r\nIf-None-Match: "1"\r\n\r\n',
        b"DELETE /shop/things/drinks/tea HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HEAD /shop/export HTTP/1.1\r\nHost: x\r\n\r\n",
        GET,
    ]
    [answer] = say(b"".join(asked))
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)
    assert statuses == [b"201", b"200", b"304", b"204", b"200", b"200"]
    assert answer.endswith(b'{"names":[],"limit":10,"tag":[],"after":null}')


def test_a_chunked_body_is_read_and_an_endless_one_rejected() -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    fine, endless = say(
        chunked + b"5\r\n[1,2,\r\n2\r\n3]\r\n0\r\n\r\n",
        chunked + (b"190\r\n" + b"x" * 400 + b"\r\n") * 9,
    )
    assert fine.startswith(b"HTTP/1.1 200 ") and b'"body":[1,2,3]' in fine
    assert endless.startswith(b"HTTP/1.1 413 ") and b"VALUE_TOO_LARGE" in endless


def test_a_body_that_is_declared_too_large_is_rejected_before_it_is_sent() -> None:
    [answer] = say(POST + b"Content-Length: 1000000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer


def test_a_request_with_two_lengths_is_rejected() -> None:
    [answer] = say(
        POST
        + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + b"GET /shop/mine HTTP/1.1\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1") == 1 and answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "path",
    [b"/shop/things/drinks/%00", b"/shop/things/drinks/%ff", b"/shop/%2e%2e/docs", b"//shop"],
)
def test_an_odd_path_is_rejected(path: bytes) -> None:
    [answer] = say(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer[9:12] in (b"400", b"404") and b"application/problem+json" in answer


def test_a_response_that_fails_half_way_is_aborted_without_details() -> None:
    with structlog.testing.capture_logs() as lines:
        [answer] = say(b"GET /slow/breaks HTTP/1.1\r\nHost: x\r\n\r\n", slow=Slow())
    assert [line["event"] for line in lines] == ["response aborted"]
    assert f"x-request-id: {lines[0]['id']}".encode() in answer
    assert b"half" in answer and b"hunter2" not in answer
    assert not answer.endswith(b"0\r\n\r\n"), "a client must not take half for the whole"


def test_a_header_with_a_line_break_is_never_sent() -> None:
    """A line break in a value would start another header, or another response."""

    async def scenario() -> None:
        hostile = ["a\r\nset-cookie: b=c", "a\nb", "a\rb", "a\0b", "a\x7fb", "fine"]

        async def odd(number: int) -> Response[bytes]:
            """Return the given header."""
            return Response(b"{}", headers=(("X-Odd", hostile[number]),))

        app = make_app(
            [ServiceSpec(name="odd", routes=[Route(method="GET", path="/{number}", handler=odd)])]
        )
        with bind(Address("127.0.0.1", 0)) as bound:
            async with listening(app, bound, drain_seconds=5) as address:
                for number, value in enumerate(hostile):
                    path = b"/odd/%d" % number
                    answer = await talk(
                        address.port,
                        b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.0\r\n\r\n",
                    )
                    assert (value == "fine") == answer.startswith(b"HTTP/1.1 200 "), answer
                    assert b"set-cookie" not in answer and (b"\nx-odd: fine\r\n" in answer) == (
                        value == "fine"
                    )

    asyncio.run(scenario())


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_a_whole_response_is_the_same_with_each_method_and_version(
    method: bytes, close: bytes, version: bytes
) -> None:
    async def scenario() -> None:
        asked = (
            method
            + b" /shop/things/drinks "
            + version
            + b"\r\nHost: x\r\nX-Request-Id: 1\r\n"
            + close
            + b"\r\n"
        )
        async with served() as port:
            answer = (
                await talk(port, asked + GET)
                if version == b"HTTP/1.1" and not close
                else await talk(port, asked)
            )
        head, _, body = answer.partition(b"\r\n\r\n")
        ends = bool(close) or version == b"HTTP/1.0"
        lines = re.sub(rb"date: [^\r]+", b"date: now", head).split(b"\r\n")
        assert lines == [
            b"HTTP/1.1 200 OK",
            b"date: now",
            b"content-type: application/json",
            b"x-content-type-options: nosniff",
            b"x-frame-options: DENY",
            b"x-request-id: 1",
            b"content-length: 45",
            *([b"connection: close"] if ends else []),
        ]
        plain = b'{"names":[],"limit":10,"tag":[],"after":null}'
        first = b"" if method == b"HEAD" else plain
        assert body == first if ends else body.startswith(first + b"HTTP/1.1 200 OK")

    asyncio.run(scenario())


def test_a_stream_ends_when_its_client_disconnects() -> None:
    async def story() -> None:
        slow = Slow()
        async with served(slow) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /slow/endless HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readexactly(50_000)
            writer.transport.abort()
            async with asyncio.timeout(30):
                await slow.ended.wait()

    asyncio.run(story())


def test_requests_in_flight_are_answered_at_shutdown() -> None:
    async def story() -> bytes:
        slow = Slow()
        async with served(slow) as port:
            talking = asyncio.create_task(talk(port, b"GET /slow/wait HTTP/1.1\r\nHost: x\r\n\r\n"))
            await slow.started.wait()
            asyncio.get_running_loop().call_later(0.1, slow.resume.set)
        return await talking

    answer = asyncio.run(story())
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b'{"done":true}')


def test_requests_without_the_path_that_a_proxy_removed_have_it_in_links(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path) as served:
            with bind(Address("127.0.0.1", 0)) as bound:
                async with (
                    listening(served.app, bound, drain_seconds=1, root_path="/data") as address,
                    httpx.AsyncClient(base_url=address.url, timeout=30) as client,
                ):
                    answer = await client.get("/studio/library/")
                    assert answer.headers["location"].startswith("/data/studio/login?next=")
                    answer = await client.post("/studio/login", data={"token": token()})
                    assert answer.headers["location"] == "/data/studio/"
                    cookie = answer.headers["set-cookie"].partition(";")[0]
                    assert "Path=/data/studio;" in answer.headers["set-cookie"]
                    page = await client.get("/studio/", headers={"Cookie": cookie})
                    assert page.status_code == 200
                    assert 'href="/data/studio/library/"' in page.text

    asyncio.run(main())


def test_a_root_path_that_is_not_a_path_is_rejected() -> None:
    for text in ("data", "/data/", "//data", "/", "/a b", "/a?b"):
        with pytest.raises(UsageError, match="starts with a slash"):
            HttpSettings(root_path=text)


@pytest.mark.parametrize("option", ["--http", "--port"])
def test_two_that_bind_one_port_at_once_get_a_sentence(option: str) -> None:
    """Both can bind a port on which nobody listens; the second that listens raises."""

    async def main() -> None:
        app = make_app([Slow().part()])
        with bind(Address("127.0.0.1", 0)) as first:
            address = Address(*first.getsockname()[:2])
            with bind(address, option=option) as second:
                async with listening(app, first, drain_seconds=1):
                    with pytest.raises(UsageError, match=f"with {option} \\(port 0 is any\\)"):
                        async with listening(app, second, drain_seconds=1, option=option):
                            pass
                    with pytest.raises(UsageError, match=option):
                        bind(address, option=option)

    asyncio.run(main())
