"""Hostile HTTP requests: all responses are documented, and memory stays flat over many of them."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.abuse import routes
from tests.abuse.support.server import ServerProcess
from tests.sizes import size

INPUTS = size(900, 3_000, 200_000)
IN_FLIGHT = 32
RESPONSE_SECONDS = 0.3
"""A request that a mutation left incomplete has no response: it is given up after this."""

RSS_GROWTH_BYTES_MAX = 48 * 1_024 * 1_024
"""From the end of the first third, when caches are filled, to the end."""

HOSTILE = [
    *(b"", b"\x00", b"%00", b"%2e%2e%2f", b"..", b"//", b"\xff\xfe", b"\r\n", b"\n", b" ", b"\t"),
    *("ª".encode(), "𝔘".encode(), b"\xed\xa0\x80", b"'", b'"', b"\\", b"$", b"*", b">", b"|"),
    *(b"-1", b"0", b"1e999", b"NaN", b"9" * 400, b"null", b"true", b"[]", b"{}", b'""'),
    *(b"[" * 200, b'{"a":' * 150, b"x" * 5_000, b"Transfer-Encoding: chunked\r\n"),
    *(b"Content-Length: 0\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n"),
    *(b"If-Match: *\r\n", b"Accept: text/xml\r\n", b"Host: y\r\n", b"Origin: null\r\n"),
]
STATUSES = {
    *(200, 201, 204, 206, 303, 304, 307),
    *(400, 401, 403, 404, 405, 406, 408, 409, 412, 413, 415, 416, 422, 429, 431, 507),
}


def mutated(request: bytes, chance: random.Random) -> bytes:
    """Return the request with some pieces replaced, inserted, deleted or repeated."""
    head, _, body = request.partition(b"\r\n\r\n")
    if chance.random() < 0.6:  # a well-formed head with a hostile body
        body = _changed(body or b"{}", chance)
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body
    if chance.random() < 0.5:  # a hostile target
        method, target, version = head.split(b"\r\n")[0].split(b" ")
        first = b" ".join((method, _changed(target, chance).replace(b" ", b"%20"), version))
        return head.replace(b" ".join((method, target, version)), first, 1) + b"\r\n\r\n" + body
    return _changed(request, chance)


def _changed(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.choice((0, 0, 1, 4, 16)))
        piece = chance.choice(HOSTILE)
        if chance.random() < 0.2:
            piece = data[start:end] * chance.randint(1, 50)
        data = data[:start] + piece + data[end:]
    return data


async def status_of(server: ServerProcess, request: bytes) -> int | None:
    """Send a request on its own connection and return the status; None if there is no response."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        writer.write(request)
        async with asyncio.timeout(RESPONSE_SECONDS):
            line = await reader.readline()
            while line.startswith(b"HTTP/1.1 100 "):  # the final response follows
                await reader.readline()
                line = await reader.readline()
        return int(line.split(b" ")[1]) if line else None
    except (TimeoutError, ConnectionError):
        return None
    finally:
        writer.transport.abort()


async def fuzz(server: ServerProcess, requests: list[bytes], seed: int, count: int) -> None:
    """Send `count` mutated requests, and assert that every status is documented."""
    chance = random.Random(seed)
    unexpected: dict[int, bytes] = {}
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            request = mutated(chance.choice(requests), chance)
            status = await status_of(server, request)
            if status is not None and status not in STATUSES:
                unexpected[status] = request

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    assert not unexpected, f"seed {seed}: {unexpected}"


@pytest.mark.long
@pytest.mark.soak
def test_hostile_requests_get_documented_responses_and_memory_stays_flat(tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000
    fast = {"rate_per_second": 1e6, "rate_burst": 1_000_000}
    with ServerProcess(tmp_path, streamkit=fast) as server:
        systems = ("streamkit", "rosey", "")
        calls = [call for name in systems for call in routes.route_calls(server, name)]
        routes.prepare(server, calls[:6])
        requests = [call.raw() for call in calls]
        asyncio.run(fuzz(server, requests, seed, INPUTS // 3))
        filled = server.rss_bytes
        asyncio.run(fuzz(server, requests, seed + 1, INPUTS - INPUTS // 3))
        growth = server.rss_bytes - filled
        print(
            f"{INPUTS} inputs, RSS {filled >> 20} MB after a third, {growth >> 20:+} MB at the end"
        )
        assert growth <= RSS_GROWTH_BYTES_MAX, f"seed {seed}: {growth >> 20} MB"
        log = server.log.read_text()
        assert "unhandled exception" not in log and "Traceback" not in log, log[-3_000:]
