"""Files by HTTP: ranges, conditions, and paths that must not leave the root."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import KeyhouseError, NotFoundError, UsageError
from keyhouse.http import FileResponse, FileRoot, Route
from keyhouse.http.file_response import PIECE_BYTES, byte_range
from keyhouse.service.blocking import BlockingPool
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import Served, run, serving
from tests.support.polling import until

CONTENT = bytes(range(256)) * 4_000  # several pieces


def files(root: Path, **options: Any) -> ServiceSpec:
    it = FileRoot(root, **options)

    async def file(path: str) -> FileResponse:
        """One file."""
        return FileResponse(it, path, media_type="audio/mpeg")

    async def named(path: str) -> FileResponse:
        """One file, to be saved."""
        return FileResponse(it, path, media_type="audio/mpeg", etag='"v1"')

    return ServiceSpec(
        name="files",
        routes=[
            Route(method="GET", path="/file/{path}", handler=file),
            Route(method="GET", path="/named/{path}", handler=named),
        ],
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "books").mkdir(parents=True)
    (folder / "books" / "one.mp3").write_bytes(CONTENT)
    (folder / "empty").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


def asking(root: Path, scenario: Any, **options: Any) -> None:
    async def served() -> None:
        async with serving(files(root, **options)) as client:
            await scenario(client)

    run(served)


ONE = "/file/books%2Fone.mp3"


def test_a_file_comes_whole_with_its_headers(root: Path) -> None:
    async def scenario(client: Served) -> None:
        whole = await client.get(ONE)
        assert (whole.status_code, whole.content) == (200, CONTENT)
        assert whole.headers["content-type"] == "audio/mpeg"
        assert whole.headers["content-length"] == str(len(CONTENT))
        assert whole.headers["accept-ranges"] == "bytes"
        assert "transfer-encoding" not in whole.headers
        head = await client.head(ONE)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "etag", "last-modified", "content-type"):
            assert head.headers[name] == whole.headers[name]
        assert (await client.get("/file/empty")).content == b""
        named = await client.get("/named/books%2Fone.mp3")
        assert named.headers["etag"] == '"v1"'

    asking(root, scenario)


SIZE = len(CONTENT)


@pytest.mark.parametrize(
    ("sent", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-", 0, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        ("bytes=100-299", 100, 300),
        ("bytes=-7", SIZE - 7, SIZE),
        (f"bytes=-{10 * SIZE}", 0, SIZE),
        (f"bytes=10-{10 * SIZE}", 10, SIZE),
        (f"bytes=10-{'9' * 23}", 10, SIZE),
        (f"bytes=-{'9' * 5_000}", 0, SIZE),
        (f"bytes={'0' * 30}5-{'0' * 30}6", 5, 7),
        (f"bytes={PIECE_BYTES - 1}-{PIECE_BYTES}", PIECE_BYTES - 1, PIECE_BYTES + 1),
    ],
)
def test_a_range_is_sent_exactly(root: Path, sent: str, start: int, end: int) -> None:
    async def scenario(client: Served) -> None:
        part = await client.get(ONE, headers={"Range": sent})
        assert (part.status_code, part.content) == (206, CONTENT[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{SIZE}"
        assert part.headers["content-length"] == str(end - start)

    asking(root, scenario)


@pytest.mark.parametrize(
    "sent", ["bytes=0-1,5-9", "bytes=5-3", "bytes=-", "bytes=a-b", "items=0-1", "bytes=1-2-3", ""]
)
def test_several_or_invalid_ranges_get_the_whole_file(root: Path, sent: str) -> None:
    async def scenario(client: Served) -> None:
        whole = await client.get(ONE, headers={"Range": sent})
        assert (whole.status_code, len(whole.content)) == (200, SIZE)

    asking(root, scenario)


def test_a_range_after_the_end_is_rejected_with_the_size(root: Path) -> None:
    async def scenario(client: Served) -> None:
        for sent in (
            f"bytes={SIZE}-",
            f"bytes={SIZE + 5}-{SIZE + 9}",
            "bytes=-0",
            "bytes=" + "9" * 23 + "-",
        ):
            rejected = await client.get(ONE, headers={"Range": sent})
            assert (rejected.status_code, rejected.json()["code"]) == (416, "RANGE_NOT_SATISFIABLE")
            assert rejected.headers["content-range"] == f"bytes */{SIZE}"

    asking(root, scenario)


def test_conditions_are_checked_before_the_range(root: Path) -> None:
    async def scenario(client: Served) -> None:
        whole = await client.head(ONE)
        tag, modified = whole.headers["etag"], whole.headers["last-modified"]

        async def status(**headers: str) -> int:
            sent = {name.replace("_", "-"): text for name, text in headers.items()}
            return (await client.get(ONE, headers=sent)).status_code

        assert await status(If_None_Match=tag) == 304
        assert await status(If_None_Match='"other"') == 200
        assert await status(If_Modified_Since=modified) == 304
        assert await status(If_Modified_Since="Mon, 01 Jan 1990 00:00:00 GMT") == 200
        assert await status(If_Modified_Since="nonsense") == 200
        assert await status(If_None_Match='"other"', If_Modified_Since=modified) == 200
        assert await status(If_Match='"other"') == 412
        assert await status(If_Match=tag, Range="bytes=0-1") == 206
        assert await status(Range="bytes=0-1", If_Range=tag) == 206
        assert await status(Range="bytes=0-1", If_Range=modified) == 206
        assert await status(Range="bytes=0-1", If_Range='"other"') == 200
        assert await status(Range="bytes=0-1", If_Range="W/" + tag) == 200
        assert await status(Range="bytes=0-1", If_None_Match=tag) == 304

    asking(root, scenario)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "books/../../secret",
        "/etc/passwd",
        "books//one.mp3",
        "./empty",
        "books",
        "",
        "none",
        "books/one.mp3/x",
        "x" * 300,
        "a\0b",
        "out",
        "folder/secret",
        "pipe",
    ],
)
def test_no_path_leads_out_of_the_root(root: Path, path: str) -> None:
    (root / "out").symlink_to(root.parent / "secret")
    (root / "folder").symlink_to(root.parent)
    os.mkfifo(root / "pipe")

    async def scenario() -> None:
        files = FileRoot(root)
        with pytest.raises(NotFoundError):
            await files.open(path)
        assert files.open_files == 0

    run(scenario)


@given(st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "", "a", "\0"])).map("/".join))
def test_any_path_is_a_file_below_the_root_or_not_found(path: str) -> None:
    async def scenario() -> None:
        try:
            (await FileRoot(Path(__file__).parent / "support").open(path)).close()
        except KeyhouseError as error:
            assert error.status == 404

    asyncio.run(scenario())


@given(st.binary(max_size=30) | st.from_regex(rb"bytes=\d{0,25}-\d{0,25}", fullmatch=True))
def test_any_range_header_is_a_range_of_the_file_or_ignored(header: bytes) -> None:
    try:
        found = byte_range(header, 100)
    except KeyhouseError as error:
        assert error.status == 416
    else:
        assert found is None or 0 <= found[0] < found[1] <= 100


def test_descriptors_are_closed_when_either_side_ends_the_response(root: Path) -> None:
    (root / "large").write_bytes(b"x" * 50_000_000)

    async def scenario() -> None:
        pool = BlockingPool(threads_max=2)
        it = FileRoot(root, run=pool.run, open_files_max=3)

        async def file(name: str) -> FileResponse:
            """One file."""
            return FileResponse(it, name, media_type="text/plain")

        route = Route(method="GET", path="/{name}", handler=file)
        async with serving(ServiceSpec(name="files", routes=[route])) as client:
            for _ in range(3):
                assert (await client.get("/empty")).status_code == 200
                assert (await client.head("/large")).status_code == 200
            reading = [client.stream("GET", "/large") for _ in range(3)]
            for each in reading:
                assert (await each.__aenter__()).status_code == 200
            busy = await client.get("/empty")
            assert (busy.status_code, it.open_files) == (503, 3)
            for each in reading:  # they disconnect in the middle
                await each.__aexit__(None, None, None)
            await until(lambda: not it.open_files)
            assert (await client.get("/empty")).status_code == 200
        assert it.open_files == 0
        await pool.close()

    run(scenario)


def test_a_root_that_does_not_exist_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        FileRoot(tmp_path / "none")
