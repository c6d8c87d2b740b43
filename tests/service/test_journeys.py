"""A request crosses as many files as ADR 0058 says: a reader has to open each of them."""

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import keyhouse
from keyhouse import open_engine
from keyhouse.clock import SystemClock
from keyhouse.metrics import Metrics
from keyhouse.serve.listener import listening
from tests.systems.rosey.support.harness import Harness, harness
from tests.systems.streamkit.support.service import app_of, token

PACKAGE = str(Path(keyhouse.__file__).parent)
GET_FILES_MAX = 20
SET_FILES_MAX = 30
ADVICE = "merge two of them, or change the limit in ADR 0058 with its reason"


async def files_crossed(request: Callable[[], Awaitable[object]]) -> list[str]:
    """Return the files of the package with a function that runs on this thread for a request,
    with warm caches."""
    for _ in range(3):
        await request()
    seen = set()

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        await request()
    finally:
        sys.setprofile(before)
    return sorted(seen)


def test_a_get_over_http_crosses_few_files(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        opened = await open_engine(f"sqlite:{tmp_path}/streamkit.db?layout=streamkit")
        engine = Metrics("0").metered("streamkit", opened)
        app = app_of(engine, tmp_path)
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        async with listening(app, bound, drain_seconds=5):
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            bearer = token("12345", SystemClock())

            async def send(line: str, body: bytes = b"") -> None:
                head = f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n"
                kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write((head + kind).encode() + body)
                answered = await reader.readuntil(b"\r\n\r\n")
                assert answered.split()[1].startswith(b"20"), answered
                size = answered.lower().partition(b"content-length:")[2].split()[0]
                await reader.readexactly(int(size))

            note = {"id": "x", "title": "Ideas", "content": ""}
            await send("POST /streamkit/configs/notes", json.dumps(note).encode())
            crossed = await files_crossed(lambda: send("GET /streamkit/configs/notes/x"))
            writer.close()
        await engine.close()
        return crossed

    crossed = [name for name in asyncio.run(scenario()) if "operation_log" not in name]
    assert len(crossed) <= GET_FILES_MAX, (ADVICE, crossed)


def test_a_set_over_nats_crosses_few_files(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with harness("sqlite", tmp_path) as built:
            return await files_crossed(lambda: _set(built))

    logging = ("operation_log", "rosey/messages")  # tests log at DEBUG
    crossed = [name for name in asyncio.run(scenario()) if not any(x in name for x in logging)]
    assert len(crossed) <= SET_FILES_MAX, (ADVICE, crossed)


async def _set(built: Harness) -> None:
    assert await built.ask("trivia.set", {"key": "k", "value": {"a": 1}}) == {"success": True}
