"""The typed client, the demonstration library, and the import of the original program's store."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from keyhouse.cli.app import app as keyhouse
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import CallerError, KeyhouseError, NotFoundError, UsageError
from keyhouse.store import Store, verify
from keyhouse_audiobooks.client import Audiobooks, NewerPlaceError
from keyhouse_audiobooks.commands import app
from keyhouse_audiobooks.files.demo import write_demo
from keyhouse_audiobooks.remote import connect
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOK_PLAYS,
    BOOKS_BY_TITLE,
    PLAYLIST_ITEM,
    SCHEMAS,
    WORK_PLAYS,
)
from keyhouse_audiobooks.transfer import OriginalImport, import_lines
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService

ONE, TWO, THREE = (f"01J0000000000000000000000{number}" for number in (1, 2, 3))
AT = "2026-01-18T12:00:00Z"
MAIN = ("--space", "main")


def test_the_client_scans_lists_and_plays_the_demonstration_library(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    assert write_demo(root, seconds=20) == 14
    with pytest.raises(UsageError):
        write_demo(root)
    url = service.url.removesuffix("/api/v1")
    plain = httpx.HTTPTransport(verify=False)
    with Audiobooks.sign_in(url, "admin", PASSWORD, transport=plain) as library:
        done = library.wait(library.scan().id)
        assert done.status == "completed" and "6 added" not in library.log(done.id)[-1]
        assert "13 added" in library.log(done.id)[-1] and "1 broken" in library.log(done.id)[-1]
        assert len(list(library.books(page=2))) == 6
        [series] = {book.series_id for book in library.books() if book.series_id}
        assert [book.title for book in library.books(series_id=series)] == [
            "The Lamp",
            "The Fog",
            "The Storm",
        ]
        [book] = library.books(title_prefix="the lamp")
        first = library.segments(book.id)[0].id
        state = library.save(book.id, first, 5, event_type="start")
        with Audiobooks.sign_in(url, "admin", PASSWORD, transport=_plain()) as other:
            newer = other.save(book.id, first, 9, based_on=state.revision)
        with pytest.raises(KeyhouseError) as raised:
            library.save(book.id, first, 6, based_on=state.revision)
        assert isinstance(raised.value, NewerPlaceError)
        assert raised.value.state == newer == library.state(book.id)
        assert library.set_status(book.id, "finished").status == "finished"
        assert library.statistics().plays == 1
        with pytest.raises(NotFoundError):
            library.book(ONE)
        made = library.create_book("New", tags=["x"])
        assert library.change_book(made.id, title="Newer").title == "Newer"


def test_an_operator_looks_into_a_running_library(
    service: LibraryService, admin: httpx.Client
) -> None:
    book = admin.post("/books", json={"title": "Dune: Messiah"}).json()["data"]
    token = admin.headers["authorization"].removeprefix("Bearer ")

    async def run() -> None:
        remote = await connect(service.url.removesuffix("/audiobooks/api/v1"), "main", token)
        try:
            found = await remote.get(f"b:{book['id']}")
            assert found is not None and b"Dune: Messiah" in bytes(found.value or b"")
            assert await remote.get("b:nothing") is None
            keys = [row.key async for row in remote.rows("idx:", reverse=True, keys_only=True)]
            assert f"idx:book:title:dune%3A messiah:{book['id']}" in keys
            assert keys == sorted(keys, reverse=True)
            users = [row async for row in remote.rows("u:", reverse=False, keys_only=False)]
            assert b"admin" in bytes(users[0].value or b"")
            sessions = [row async for row in remote.rows("", reverse=False, keys_only=False)]
            assert not any(b'_hash":' in bytes(row.value or b"") for row in sessions)
            assert await remote.count("b:") == 1
            with pytest.raises(UsageError):
                await remote.delete("b:nothing", expect=None)
        finally:
            await remote.close()

    asyncio.run(run())
    with service.user(admin, "ann", "editor") as ann:
        assert ann.get("/rows").status_code == 403


def test_the_command_line_shows_users_of_a_running_library_without_secrets(
    service: LibraryService, admin: httpx.Client
) -> None:
    key = admin.post("/auth/api-keys", json={"name": "operator"}).json()["data"]["key"]
    user = admin.get("/auth/me").json()["data"]
    at = ["--store", service.url.removesuffix("/audiobooks/api/v1"), "--token", key]
    with capture_logs():  # the service is in this process, and logs to the same output
        ran = CliRunner().invoke(keyhouse, ["get", "audiobooks", f"u:{user['id']}", *at, *MAIN])
    assert ran.exit_code == 0, ran.output
    assert msgspec.json.decode(ran.output)["username"] == "admin"
    ran = CliRunner().invoke(keyhouse, ["scan", "audiobooks", *at, *MAIN])
    assert ran.exit_code == 0, ran.output
    other = CliRunner().invoke(keyhouse, ["list", "audiobooks", *at, "--space", "other"])
    assert isinstance(other.exception, CallerError) and "another library" in str(other.exception)
    assert "unreadable" not in ran.output and '_hash":' not in ran.output


def test_the_command_line_shows_index_rows_of_a_running_library_and_what_they_list(
    service: LibraryService, admin: httpx.Client
) -> None:
    """It said that a service has no derived rows, though this one lists them."""
    key = admin.post("/auth/api-keys", json={"name": "operator"}).json()["data"]["key"]
    book = admin.post("/books", json={"title": "Dune"}).json()["data"]["id"]
    at = ["--store", service.url.removesuffix("/audiobooks/api/v1"), "--token", key, *MAIN]
    index = f"idx:book:title:dune:{book}"
    with capture_logs():
        runner = CliRunner()
        listed = runner.invoke(keyhouse, ["list", "audiobooks", "idx:book:title:", *at])
        assert listed.exit_code == 0 and index in listed.output.split()
        derived = runner.invoke(keyhouse, ["list", "audiobooks", "--type", "derived", *at])
        assert derived.exit_code == 0 and index in derived.output.split()
        found = runner.invoke(keyhouse, ["scan", "audiobooks", index, "--resolve", *at])
    assert found.exit_code == 0 and found.output.startswith(f"b:{book}\t"), found.output


def _plain() -> httpx.HTTPTransport:
    return httpx.HTTPTransport(verify=False)


def test_the_demo_command_writes_files(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["demo", str(tmp_path / "books"), "--seconds", "2"])
    assert ran.exit_code == 0, ran.output
    assert ran.output == f"Wrote 14 files to {tmp_path / 'books'}.\n"
    assert len(list(tmp_path.rglob("*.wav"))) == 3


def test_an_import_that_leaves_rows_out_counts_them_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"key": f"a:{TWO}", "value": {"id": TWO, "name": "Frank", "created_at": AT}}
    file.write_bytes(msgspec.json.encode(row))
    at = ["--store", f"sqlite:{tmp_path}/books.db?layout=audiobooks"]
    whole = CliRunner().invoke(app, ["import-original", str(file), *at])
    assert (whole.exit_code, whole.output) == (0, "Imported 1 record; index rows: 0.\n")
    with file.open("ab") as rows:
        rows.write(b"\n" + 150 * b'{"key": "nonsense", "value": 1}\n')
    partial = CliRunner().invoke(app, ["import-original", str(file), *at])
    assert partial.exit_code == 1
    assert "Left out 150 rows:\nnonsense: not a key of the library\n" in partial.output
    shown = CliRunner().invoke(app, ["import-original", str(file), *at, "--json"])
    assert (shown.exit_code, msgspec.json.decode(shown.output)["left_out"]) == (1, 150)


def test_a_store_of_the_original_program_is_imported() -> None:
    book = {"id": ONE, "title": "Dune: Messiah", "author_id": TWO, "tags": [], "created_at": AT}
    rows: list[tuple[str, Any]] = [
        (f"idx:book:title:dune: messiah:{ONE}", 1),
        (f"b:{ONE}", {**book, "updated_at": AT, "normalized_title": "", "description": ""}),
        (f"a:{TWO}", {"id": TWO, "name": "Frank: Herbert", "created_at": AT}),
        ("idx:author:name:frank: herbert", TWO),
        (f"stats:book:plays:{ONE}", 7),
        (f"bf:{THREE}", {"id": THREE, "book_id": "nothing"}),
        ("nonsense", 1),
        ("meta:version", 1),
    ]
    lines = [msgspec.json.encode({"key": key, "value": value}) for key, value in rows]

    async def run() -> None:
        engine = MemoryEngine()
        for _ in range(2):
            found: OriginalImport = await import_lines(engine, "main", [*lines, b"{broken", b""])
            assert (found.imported, found.index_rows) == (3, 2)
            assert [problem.split(":")[0] for problem in found.problems] == [
                "line 9",
                "bf",
                "nonsense",
            ]
        store = Store(SCHEMAS[0], engine, "main")
        [entry] = [entry async for entry in store.scan(BOOK, by=BOOKS_BY_TITLE)]
        assert entry.record.title == "Dune: Messiah" and entry.record.work_id is not None
        assert entry.record.created_at == AT
        assert await store.get(BOOK_PLAYS, book_id=ONE) == 7
        assert await store.get(WORK_PLAYS, work_id=entry.record.work_id) == 7
        assert [finding async for finding in verify(store)] == []
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("width", range(1, 11))
def test_numbers_of_keys_are_imported_with_any_padding(width: int) -> None:
    """`pli:…:000001` was left out: the document says "padded" only."""
    rows: list[tuple[str, Any]] = [
        (f"b:{ONE}", {"id": ONE, "title": "Dune", "created_at": AT}),
        (f"pl:{TWO}", {"id": TWO, "name": "Mine", "created_at": AT}),
        (f"pli:{TWO}:{1:0{width}d}", ONE),
    ]
    lines = [msgspec.json.encode({"key": key, "value": value}) for key, value in rows]

    async def run() -> None:
        engine = MemoryEngine()
        found = await import_lines(engine, "main", lines)
        assert (found.imported, found.problems) == (3, [])
        store = Store(SCHEMAS[0], engine, "main")
        assert await store.get(PLAYLIST_ITEM, playlist_id=TWO, position=1) is not None
        await engine.close()

    asyncio.run(run())
