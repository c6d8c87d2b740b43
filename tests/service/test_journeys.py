"""A request crosses as many files as ADR 0058 says: a reader has to open each of them."""

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from keyhouse import open_engine
from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.serve.listener import listening
from keyhouse.serve.metrics import Metrics
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_scan import album, books, scan, segments
from systems.rosey.tests.support.harness import Harness, harness
from systems.streamkit.tests.support.service import app_of, token
from tests.support import engine_openers

SOURCE_FOLDERS = [str(path) for path in Path(__file__).parents[2].glob("**/src")]
GET_FILES_MAX = 23
SET_FILES_MAX = 33
POSITION_FILES_MAX = 58
FOLLOWER = ("follower", "raw_rows", "work_turns", "watch_loop", "watcher", "keyhouse/keys/key")
"""Files of the search index, which follows the commit on the same thread."""
ADVICE = "merge two of them, or change the limit in ADR 0058 with its reason"


@contextmanager
def crossed_files() -> Iterator[set[str]]:
    """Collect the files of the library and the systems with a function that runs on this thread."""
    crossed = set[str]()
    folders = tuple(f"{folder}/" for folder in SOURCE_FOLDERS)

    def trace(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(folders):
            crossed.add(path.rpartition("/src/")[2])

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield crossed
    finally:
        sys.setprofile(before)


async def files_crossed(request: Callable[[], Awaitable[object]]) -> list[str]:
    """Return the files that a request crosses with warm caches, on the thread of the loop."""
    for _ in range(3):
        await request()
    with crossed_files() as crossed:
        await request()
    return sorted(crossed)


def without(files: list[str], *names: str) -> list[str]:
    """Leave out the log, which tests write at DEBUG, and files that are not of the request."""
    return [file for file in files if Path(file).stem not in names and file[:-3] not in names]


def test_a_get_over_http_crosses_few_files(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        opened = await open_engine(f"sqlite:{tmp_path}/streamkit.db?layout=streamkit")
        engine = Metrics("0").served("streamkit", opened)
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

    crossed = without(asyncio.run(scenario()), "operation_log")
    assert len(crossed) <= GET_FILES_MAX, (ADVICE, crossed)


def test_a_set_over_nats_crosses_few_files(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with harness("sqlite", tmp_path) as built:
            return await files_crossed(lambda: _set(built))

    crossed = without(asyncio.run(scenario()), "operation_log", "keyhouse_rosey/messages")
    assert len(crossed) <= SET_FILES_MAX, (ADVICE, crossed)


async def _set(built: Harness) -> None:
    assert await built.ask("trivia.set", {"key": "k", "value": {"a": 1}}) == {"success": True}


def test_saving_a_position_of_an_audiobook_crosses_few_files(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    opener = engine_openers.sqlite(tmp_path)
    with LibraryService(opener, tmp_path / "data", roots=[tmp_path / "books"]) as service:
        admin = service.admin()
        album(tmp_path / "books", 1, 100)
        scan(admin)
        [book] = books(admin)
        [segment] = segments(admin, book)

        def save(seconds: int) -> None:
            body = {"segment_id": segment["id"], "position_seconds": seconds}
            service.clock.advance(seconds=1)
            assert admin.post(f"/books/{book['id']}/position", json=body).status_code == 200

        for second in range(3):
            save(second)
        recording = crossed_files()

        async def start(_: Engine) -> set[str]:
            return recording.__enter__()

        async def stop(_: Engine) -> None:
            recording.__exit__(None, None, None)

        files = service.on_engine(start)
        save(3)
        service.on_engine(stop)
    crossed = without(sorted(files), "operation_log", *FOLLOWER)
    assert len(crossed) <= POSITION_FILES_MAX, (ADVICE, crossed)
