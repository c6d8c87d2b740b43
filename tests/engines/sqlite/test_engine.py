"""The SQLite engine: the file, its settings, its owner check, and its reads."""

import asyncio
import itertools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put, Row, Span
from keyhouse.engines.sql import version
from keyhouse.engines.sql.layout import Layout, layout_of
from keyhouse.engines.sql.sqlite import APPLICATION_ID, FORMAT
from keyhouse.engines.sqlite import SqliteEngine, connections
from keyhouse.engines.sqlite.connections import open_reader
from keyhouse.engines.sqlite.sql import VALUE_INLINE_BYTES
from keyhouse.errors import KeyhouseError, NewerError, UnavailableError, UnreadableError, UsageError
from tests.engines.support.embedded_engines import unprivileged
from tests.engines.support.faulty_disk import Disk

ALL = Span()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.db"


async def put(
    engine: Engine, *keys: str, value: bytes = b"1", expires: int | None = None, space: str = "s"
) -> int | None:
    return await engine.commit(space, Batch(puts=tuple(Put(key, value, expires) for key in keys)))


def make(path: Path, **values: bytes) -> None:
    async def write() -> None:
        engine = SqliteEngine.open(path)
        for key, value in values.items():
            await put(engine, key, value=value)
        await engine.close()

    asyncio.run(write())


def test_both_connections_use_a_wal_with_full_sync(path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(path)
        for connection in (engine.writer.connection, engine.reader.connection):
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("synchronous") == 2
            assert connection.pragma("trusted_schema") == 0
        assert engine.writer.connection.pragma("fullfsync") == 1
        assert engine.writer.connection.pragma("checkpoint_fullfsync") == 1
        assert engine.reader.connection.pragma("query_only") == 1
        await engine.close()

    asyncio.run(scenario())


def test_the_header_has_the_application_id_and_the_format(path: Path) -> None:
    make(path)
    database = apsw.Connection(str(path))
    assert database.pragma("application_id") == APPLICATION_ID == int.from_bytes(b"KEYH")
    assert database.pragma("user_version") == FORMAT == 1
    assert database.pragma("encoding") == "UTF-8"


def test_an_operator_reads_values_as_text_in_a_shell(path: Path) -> None:
    make(path, a='{"name": "é", "n": 7}'.encode())
    database = apsw.Connection(str(path))
    assert database.execute("SELECT typeof(value), value FROM rows").get == (
        "text",
        '{"name": "é", "n": 7}',
    )
    assert (
        database.execute(
            "SELECT json_extract(value, '$.n') FROM rows WHERE value LIKE '%name%'"
        ).get
        == 7
    )
    assert database.execute("SELECT revision, space, keys FROM changes").get == (
        1,
        "s",
        '[["a"],[]]',
    )


def test_an_operator_reads_large_values_beside_the_others(path: Path) -> None:
    make(path, a=b'"small"', b=b'"' + b"x" * 10_000 + b'"')
    database = apsw.Connection(str(path))
    assert database.execute("SELECT key, length(value) FROM documents ORDER BY key").fetchall() == [
        ("a", 7),
        ("b", 10_002),
    ]


@pytest.mark.parametrize("size", [VALUE_INLINE_BYTES, VALUE_INLINE_BYTES + 1, 100_000])
def test_a_value_of_any_size_is_deleted_with_its_row(path: Path, size: int) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine = SqliteEngine.open(path, clock=clock)
        large = engine.writer.connection.cursor()
        for value in (b"x" * size, b"y" * size, b"1"):
            await put(engine, "a", value=value)
            assert await engine.read("s", ["a"]) == [Row("a", value, engine.reader.revision())]
        await put(engine, "a", "b", value=b"z" * size)
        await put(engine, "c", value=b"z" * size, expires=clock.now() + 1)
        assert large.execute("SELECT count(*) FROM large_values").get == (
            3 if size > VALUE_INLINE_BYTES else 0
        )
        await engine.commit("s", Batch(deletes=("a", "b")))
        clock.advance(milliseconds=1)
        await engine.sweep(limit=1)
        assert large.execute("SELECT count(*) FROM large_values").get == 0
        await engine.close()

    asyncio.run(scenario())


def test_changing_an_expiry_by_hand_keeps_the_value(path: Path) -> None:
    """The trigger that deletes a large value once fired on every update of its row."""

    async def scenario() -> None:
        engine = SqliteEngine.open(path, clock=ManualClock())
        await put(engine, "a", value=b"x" * 100_000)
        engine.writer.connection.execute("UPDATE rows SET expires = NULL, revision = revision")
        assert await engine.read("s", ["a"]) == [Row("a", b"x" * 100_000, 1)]
        await engine.close()

    asyncio.run(scenario())


def test_bytes_that_are_not_text_are_stored(path: Path) -> None:
    values = {
        "a": bytes(range(256)),
        "b": b"",
        "c": b"\0\0",
        "d": b"x\0y",
        "e": b"\xff\xfe",
        "f": b"\xed\xa0\x80",
    }
    make(path, **values)

    async def scenario() -> None:
        engine = SqliteEngine.open(path)
        assert [row and row.value for row in await engine.read("s", list(values))] == list(
            values.values()
        )
        page = await engine.scan("s", ALL, limit=10)
        assert [row.value for row in page.rows] == list(values.values())
        await engine.close()

    asyncio.run(scenario())


def test_two_keys_are_read_by_one_statement_in_the_order_given(path: Path) -> None:
    """It takes the file's lock once instead of twice."""

    async def scenario() -> None:
        clock = ManualClock()
        engine = SqliteEngine.open(path, clock=clock)
        await put(engine, "small")
        await put(engine, "large", value=b"x" * 100_000)
        await put(engine, "brief", expires=clock.now() + 1_000)
        for keys in itertools.product(("small", "large", "brief", "none"), repeat=2):
            assert await engine.read("s", keys) == [
                (await engine.read("s", [key]))[0] for key in keys
            ]
        assert await engine.read("other", ["small", "large"]) == [None, None]
        clock.advance(seconds=1)
        assert [row and row.key for row in await engine.read("s", ["brief", "small"])] == [
            None,
            "small",
        ]
        await engine.close()

    asyncio.run(scenario())


def test_a_closed_file_is_complete_without_its_wal(path: Path) -> None:
    make(path, a=b"1")
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.db"]


def test_open_rejects_a_newer_format_and_changes_nothing(path: Path) -> None:
    make(path, a=b"1")
    database = apsw.Connection(str(path))
    database.pragma("user_version", FORMAT + 1)
    database.close()
    with pytest.raises(NewerError, match="newer Keyhouse") as refusal:
        SqliteEngine.open(path)
    assert refusal.value.fields["format"] == FORMAT + 1
    assert apsw.Connection(str(path)).execute("SELECT count(*) FROM rows").get == 1


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ("UPDATE rows_version SET version_num = '0999'", NewerError, "newer Keyhouse created"),
        ("DELETE FROM rows_version", UnreadableError, "version of the tables is missing"),
        ("DROP TABLE rows_version", UnreadableError, "version of the tables is missing"),
    ],
)
def test_open_rejects_tables_of_another_version_and_changes_nothing(
    path: Path, said: str, error: type[KeyhouseError], sentence: str
) -> None:
    """Only the file's header was checked, which all layouts in it share."""
    make(path, a=b"1")
    database = apsw.Connection(str(path))
    database.execute(said)
    database.close()
    before = path.read_bytes()
    with pytest.raises(error, match=sentence) as refusal:
        SqliteEngine.open(path)
    assert refusal.value.fields["file"] == str(path)
    assert path.read_bytes() == before


def test_the_error_for_older_tables_names_the_upgrade_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path, a=b"1")
    monkeypatch.setattr(version, "HEAD", "0002")
    with pytest.raises(UsageError, match="keyhouse tables upgrade"):
        SqliteEngine.open(path)


def test_a_reader_whose_setup_fails_is_closed(path: Path) -> None:
    """It stayed open, and held the file for as long as the error was referenced."""
    path.write_bytes(b"not a database, but long enough to look at: " * 100)
    with pytest.raises(UnreadableError, match="not a SQLite database"):
        open_reader(str(path))
    assert not [each for each in apsw.connections() if each.filename == str(path)]


def test_open_rejects_a_database_of_another_program_and_changes_nothing(path: Path) -> None:
    database = apsw.Connection(str(path))
    database.execute("CREATE TABLE theirs (a)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="another program"):
        SqliteEngine.open(path)
    assert path.read_bytes() == before


def test_open_rejects_a_database_in_utf_16(path: Path) -> None:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE theirs (a)")
    database.close()
    with pytest.raises(UsageError, match="not UTF-8"):
        SqliteEngine.open(path)


def test_open_rejects_a_file_that_is_not_a_database_and_changes_nothing(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look at: " * 100)
    before = path.read_bytes()
    with pytest.raises(UnreadableError, match="not a SQLite database"):
        SqliteEngine.open(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_reported_as_damaged(path: Path) -> None:
    make(path, **{f"k{number}": b"x" * 3_000 for number in range(100)})
    damaged = bytearray(path.read_bytes())
    damaged[4_096 * 12 :] = b"\xaa" * (
        len(damaged) - 4_096 * 12
    )  # the pages after the first ones of the tables
    path.write_bytes(damaged)

    async def scenario() -> None:
        engine = SqliteEngine.open(path)
        with pytest.raises(UnreadableError, match="damaged"):
            await engine.scan("s", ALL, limit=1_000)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["missing/rows.db", "file/rows.db", "."])
def test_the_error_for_an_invalid_path_names_it_and_a_fix(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="folder must exist") as refusal:
        SqliteEngine.open(tmp_path / where)
    assert refusal.value.fields["file"] == str(tmp_path / where)


@pytest.mark.parametrize("present", [False, True])
def test_the_error_for_a_read_only_folder_names_it_and_a_fix(present: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.db"
        if present:
            make(path, a=b"1")
            path.chmod(0o444)
        Path(folder).chmod(0o555)
        with unprivileged(), pytest.raises(UnavailableError, match="writable for this user"):
            SqliteEngine.open(path)
        Path(folder).chmod(0o700)


def test_a_read_only_file_is_rejected_by_open_not_by_the_first_commit() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.db"
        make(path, a=b"1")
        path.chmod(0o444)
        Path(folder).chmod(0o777)
        with unprivileged(), pytest.raises(UnavailableError, match="writable for this user"):
            SqliteEngine.open(path)


def test_open_rejects_a_database_without_a_file_and_creates_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnavailableError, match="name a file on a local disk"):
        SqliteEngine.open(":memory:")
    assert not list(tmp_path.iterdir())


def test_many_engines_can_create_the_same_file_at_once(path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        engines = list(threads.map(lambda _: SqliteEngine.open(path), range(8)))

    async def scenario() -> None:
        revisions = [await put(engine, "a") for engine in engines]
        assert revisions == list(range(1, 9))
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


def test_no_read_leaves_a_transaction_open(path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(path)
        connection = engine.reader.connection
        await put(engine, *(f"k{number}" for number in range(100)))
        await engine.read("s", ["k1", "k2", "absent"])
        assert connection.txn_state() == apsw.SQLITE_TXN_NONE
        await engine.scan("s", ALL, limit=10)
        assert connection.txn_state() == apsw.SQLITE_TXN_NONE
        async for _ in engine.spaces():
            assert connection.txn_state() == apsw.SQLITE_TXN_NONE
        async for _ in engine.watch("s", ALL, since=0):
            assert connection.txn_state() == apsw.SQLITE_TXN_NONE
            break
        with pytest.raises(UnicodeEncodeError):
            await engine.scan("s", Span("\ud800"), limit=10)
        assert connection.txn_state() == apsw.SQLITE_TXN_NONE
        assert len((await engine.scan("s", ALL, limit=100)).rows) == 100
        await engine.close()

    asyncio.run(scenario())


def test_a_reader_that_stays_open_blocks_no_commit(path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(path)
        await put(engine, "a", value=b"1")
        other = apsw.Connection(str(path))
        other.execute("BEGIN; SELECT * FROM rows").fetchall()
        assert await put(engine, "a", value=b"2") == 2
        assert await engine.read("s", ["a"]) == [Row("a", b"2", 2)]
        assert other.execute("SELECT value FROM rows").get == "1"
        other.close()
        await engine.close()

    asyncio.run(scenario())


def test_a_scan_for_keys_only_does_not_touch_large_values(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path, **{f"k{number:02d}": b"x" * 300_000 for number in range(20)})
    disk = Disk("counting")

    async def bytes_read(keys_only: bool) -> int:
        engine = SqliteEngine.open(path)
        before = disk.bytes_read
        page = await engine.scan("s", ALL, limit=100, keys_only=keys_only)
        assert len(page.rows) == 20
        read = disk.bytes_read - before
        await engine.close()
        return read

    monkeypatch.setattr(connections, "Connection", disk.connect)
    assert asyncio.run(bytes_read(keys_only=True)) < 100_000
    assert asyncio.run(bytes_read(keys_only=False)) > 20 * 300_000


@pytest.mark.parametrize("layout", [Layout(), layout_of("rosey")], ids=["plain", "rosey"])
def test_the_sweep_uses_the_index_of_expiries_without_sorting(path: Path, layout: Layout) -> None:
    """In a table with row ids, each step sorted all rows of one expiry by their keys."""
    engine = SqliteEngine.open(path, clock=ManualClock(), layout=layout)
    for sql in (engine.sql.expired, engine.sql.delete_expired):
        plan = engine.reader.connection.execute("EXPLAIN QUERY PLAN " + sql, (1, 1)).fetchall()
        steps = [str(step[3]) for step in plan]
        assert any(layout.by_expiry in step for step in steps)
        assert not any(step.startswith(f"SCAN {layout.rows}") for step in steps)
        assert not any("ORDER BY" in step for step in steps)
    asyncio.run(engine.close())


def test_an_error_names_the_cause_and_the_file(path: Path) -> None:
    path.write_bytes(b"x" * 5_000)
    with pytest.raises(KeyhouseError) as refusal:
        SqliteEngine.open(path)
    assert str(path) in str(refusal.value)
    assert isinstance(refusal.value.__cause__, apsw.Error)
