"""What is PostgreSQL's own: the server's settings, its tables, locks and plans, and what goes wrong in one call of many."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.postgres.group import JOBS_MAX
from keyhouse.engines.postgres.server import Server
from keyhouse.engines.registry import open_engine
from keyhouse.engines.sql.layout import Layout
from keyhouse.errors import (
    DocumentError,
    FullError,
    KeyhouseError,
    NewerError,
    UnavailableError,
    UnreadableError,
    UsageError,
    WatchExpiredError,
)
from keyhouse.testing.conformance.stage import leave, step
from keyhouse.testing.servers.postgres import PostgresServer, postgres_server
from tests.engines.openers import postgres_schema

ALL = Span()
LAYOUT = Layout.named("keyhouse")


@asynccontextmanager
async def opened(url: str | None = None) -> AsyncIterator[PostgresEngine]:
    engine = PostgresEngine.open(url or await postgres_schema())
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def operator(url: str) -> AsyncIterator[Any]:
    """A connection beside the engine's own."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def put(engine: Engine, *keys: str, value: bytes = b"1", space: str = "s") -> int | None:
    return await engine.commit(space, Batch(puts=tuple(Put(key, value) for key in keys)))


async def database(*settings: str, create: str = "") -> str:
    """The URL of a new database with settings of its own."""
    name = f"d{secrets.token_hex(6)}"
    async with operator(postgres_server().url) as connection:
        await connection.execute(f"CREATE DATABASE {name} {create}")
        for setting in settings:
            await connection.execute(f"ALTER DATABASE {name} SET {setting}")
    return postgres_server().url.replace("/postgres?", f"/{name}?")


# The server, and what it must be


def test_a_database_that_promises_less_is_set_right_for_each_connection() -> None:
    async def scenario() -> None:
        url = await database(
            "synchronous_commit = off",
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "plan_cache_mode = 'force_custom_plan'",
        )
        connection = await Server(url, LAYOUT).connect()
        for name, value in (
            ("synchronous_commit", "on"),
            ("transaction_isolation", "read committed"),
            ("transaction_read_only", "off"),
            ("plan_cache_mode", "force_generic_plan"),
        ):
            assert await connection.fetchval(f"SHOW {name}") == value
        await connection.close(timeout=1)
        async with opened(url) as engine:
            assert await put(engine, "a") == 1

    asyncio.run(scenario())


def test_a_stronger_promise_than_ours_is_left_alone() -> None:
    async def scenario() -> None:
        connection = await Server(await database("synchronous_commit = 'remote_apply'"), LAYOUT).connect()
        assert await connection.fetchval("SHOW synchronous_commit") == "remote_apply"
        await connection.close(timeout=1)

    asyncio.run(scenario())


def test_a_server_that_does_not_sync_its_disk_is_refused() -> None:
    server = PostgresServer(fsync="off")

    async def scenario() -> None:
        async with opened(server.url) as engine:
            with pytest.raises(UsageError, match="does not sync its disk"):
                await put(engine, "a")

    try:
        asyncio.run(scenario())
    finally:
        server.close()


def test_a_database_that_is_not_in_utf_8_is_refused() -> None:
    async def scenario() -> None:
        url = await database(create="ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        async with opened(url) as engine:
            with pytest.raises(UsageError, match="not UTF-8") as refusal:
                await put(engine, "a")
        assert refusal.value.fields["encoding"] == "LATIN1"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://user:secret@localhost:1/db", "can't be reached"),
        ("postgresql://user:secret@no-such-host.invalid/db", "can't be reached"),
        ("postgresql://nobody:secret@/postgres?host={folder}", "does not let this user in"),
        ("postgresql://postgres:secret@/nothing?host={folder}", "no such database"),
    ],
)
def test_a_server_that_does_not_let_us_in_is_named_without_the_password(url: str, sentence: str) -> None:
    async def scenario() -> None:
        async with opened(url.format(folder=postgres_server().folder)) as engine:
            for call in (
                put(engine, "a"),
                engine.read("s", ["a"]),
                anext(engine.watch("s", ALL)),
                engine.sweep(limit=1),
            ):
                with pytest.raises(UnavailableError, match=sentence) as refusal:
                    await call
                assert "secret" not in str(refusal.value)
                assert refusal.value.fields["server"]

    asyncio.run(scenario())


def test_a_url_that_says_nothing_sensible_is_refused() -> None:
    async def scenario() -> None:
        async with opened("postgresql://localhost:port/db") as engine:
            with pytest.raises(UsageError, match="A PostgreSQL URL is"):
                await put(engine, "a")

    asyncio.run(scenario())


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("keyhouse.engines.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"keyhouse\[postgres\]"):
        asyncio.run(open_engine("postgresql://localhost/db"))


# The tables


def test_many_can_make_the_tables_of_a_database_at_once() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        engines = [PostgresEngine.open(url) for _ in range(8)]
        revisions = await asyncio.gather(*(put(engine, f"k{number}") for number, engine in enumerate(engines)))
        assert sorted(revision or 0 for revision in revisions) == list(range(1, 9))
        for engine in engines:
            await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "error"), [("0999", NewerError), ("", NewerError)])
def test_tables_of_a_version_that_is_not_known_are_refused_and_left_alone(
    version: str, error: type[KeyhouseError]
) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine:
            await put(engine, "a")
        async with operator(url) as connection:
            await connection.execute("UPDATE keyhouse_version SET version_num = $1", version)
            async with opened(url) as engine:
                with pytest.raises(error, match="newer Keyhouse"):
                    await put(engine, "b")
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_rows") == 1

    asyncio.run(scenario())


def test_tables_that_someone_took_away_are_missed_by_name() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            await connection.execute("DROP TABLE keyhouse_rows")
            for call in (put(engine, "b"), engine.read("s", ["a"]), engine.scan("s", ALL, limit=1)):
                with pytest.raises(UnreadableError, match="run the migrations"):
                    await call

    asyncio.run(scenario())


def test_an_operator_reads_values_and_changes_as_text() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a", value='{"name": "é", "n": 7}'.encode())
            assert await connection.fetchval("SELECT value FROM keyhouse_rows") == '{"name": "é", "n": 7}'
            assert await connection.fetchval("SELECT value::json ->> 'n' FROM keyhouse_rows") == "7"
            row = await connection.fetchrow("SELECT space, revision, keys FROM keyhouse_changes")
            assert tuple(row) == ("s", 1, '[["a"],[]]')

    asyncio.run(scenario())


def test_a_migration_under_running_engines_does_not_break_their_statements() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            await engine.read("s", ["a"])
            await engine.scan("s", ALL, limit=1)
            await connection.execute("ALTER TABLE keyhouse_rows ADD COLUMN note text")
            await connection.execute("ALTER TABLE keyhouse_changes ADD COLUMN note text")
            assert await put(engine, "b") == 2
            assert len((await engine.scan("s", ALL, limit=9)).rows) == 2
            assert await engine.read("s", ["b"]) == [Row("b", b"1", 2)]

    asyncio.run(scenario())


def test_a_space_whose_changes_are_all_pruned_goes_on_where_it_was() -> None:
    """The log is cut over all spaces, and a quiet one may lose all of its own: its revisions must not start again."""

    async def scenario() -> None:
        url = await postgres_schema()
        engine = PostgresEngine.open(url, changes_kept=5)
        for number in range(3):
            await put(engine, f"k{number}", space="quiet")
        for number in range(20):
            await put(engine, f"k{number}", space="busy")
        await engine.sweep(limit=1)
        async with operator(url) as connection:
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_changes WHERE space = 'quiet'") == 0
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_changes") == 5
        page = await engine.scan("quiet", ALL, limit=9)
        assert page.revision == 3
        with pytest.raises(WatchExpiredError):
            await anext(engine.watch("quiet", ALL, since=2))
        watch = engine.watch("quiet", ALL, since=page.revision)
        assert await put(engine, "next", space="quiet") == 4
        assert (await step(watch)).key == "next"
        await leave(watch)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("rows", [10, 5_000])
def test_every_statement_goes_by_an_index_however_many_rows_there_are(rows: int) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine:
            await put(engine, *(f"k{number:05d}" for number in range(rows)))
            sql = engine._sql
            connection = await Server(url, LAYOUT).connect()
            for statement, arguments in (
                (sql.read, "'{s}', '{k00001}', 1"),
                (sql.scans[False, False, True], "'s', 'k', 1, 10, 'l'"),
                (sql.scans[True, True, False], "'s', 'k', 1, 10"),
                (sql.spaces, "'', 1, 10"),
                (sql.window, "'s', 0, 10, 1000000"),
                (sql.prune, "10, 10"),
                (sql.forget, "10, 10"),
                ("SELECT space FROM keyhouse_rows WHERE expires <= $1 ORDER BY expires LIMIT $2", "1, 10"),
            ):
                await connection.execute(f"PREPARE p AS {statement}")
                plan = "\n".join(line for (line,) in await connection.fetch(f"EXPLAIN EXECUTE p({arguments})"))
                assert "Seq Scan on keyhouse_" not in plan, plan
                await connection.execute("DEALLOCATE p")
            await connection.close(timeout=1)

    asyncio.run(scenario())


# Many in one call


def test_what_waits_together_is_committed_together() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "first")
            before = await connection.fetchval("SELECT txid_snapshot_xmax(txid_current_snapshot())")
            await asyncio.gather(*(put(engine, f"k{number}", space=f"s{number % 7}") for number in range(JOBS_MAX)))
            after = await connection.fetchval("SELECT txid_snapshot_xmax(txid_current_snapshot())")
            assert after - before < 20
            assert await connection.fetchval("SELECT count(*) FROM keyhouse_changes") == JOBS_MAX + 1

    asyncio.run(scenario())


def test_a_batch_that_can_not_be_kept_is_refused_and_the_others_of_its_call_are_not() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            await put(engine, "warm")
            answers = await asyncio.gather(
                put(engine, "a"),
                put(engine, "not utf-8", value=b"\xff"),
                put(engine, "null in value", value=b"x\0y"),
                put(engine, "b"),
                put(engine, "null \0 in key"),
                put(engine, "surrogate \ud800"),
                put(engine, "c"),
                put(engine, "c", space="other"),
                engine.commit("s", Batch(puts=(Put("e", b"1", 2**63),))),
                return_exceptions=True,
            )
            refused = [number for number, answer in enumerate(answers) if not isinstance(answer, int)]
            assert refused == [1, 2, 4, 5, 8]
            assert all(isinstance(answers[number], DocumentError) for number in (1, 2, 4, 5))
            assert [row.key for row in (await engine.scan("s", ALL, limit=9)).rows] == ["a", "b", "c", "warm"]

    asyncio.run(scenario())


def test_a_read_that_can_not_be_is_refused_and_the_others_of_its_call_are_not() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            await put(engine, "a")
            await asyncio.gather(*(engine.read("s", ["a"]) for _ in range(3)))
            answers = await asyncio.gather(
                engine.read("s", ["a"]),
                engine.read("s", ["a\0"]),
                engine.read("s", ["a", "b"]),
                return_exceptions=True,
            )
            assert answers[0] == [Row("a", b"1", 1)]
            assert isinstance(answers[1], DocumentError)
            assert answers[2] == [Row("a", b"1", 1), None]

    asyncio.run(scenario())


def test_batches_that_want_the_same_row_take_their_turns_in_one_call_and_in_several() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            await put(engine, "warm")
            revisions = await asyncio.gather(*(engine.commit("s", Batch(adds=(Add("n", 1),))) for _ in range(100)))
            assert sorted(revision or 0 for revision in revisions) == list(range(2, 102))
            assert await engine.read("s", ["n"]) == [Row("n", b"100", 101)]
            writes = [engine.commit("s", Batch(puts=(Put("x", b"%d" % n),), deletes=(f"y{n}",))) for n in range(50)]
            revisions = await asyncio.gather(*writes)
            last = max(range(50), key=lambda number: revisions[number] or 0)
            assert await engine.read("s", ["x"]) == [Row("x", b"%d" % last, revisions[last] or 0)]

    asyncio.run(scenario())


def test_a_check_sees_what_a_batch_of_the_same_call_wrote_before_it() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            first = await put(engine, "a")
            answers = await asyncio.gather(
                *(engine.commit("s", Batch(checks=(Check("a", first),), puts=(Put("a", b"2"),))) for _ in range(10)),
                *(engine.commit("s", Batch(checks=(Check("b", None),), puts=(Put("b", b"1"),))) for _ in range(10)),
                *(engine.commit("s", Batch(adds=(Add("n", 1),), id="once")) for _ in range(10)),
            )
            assert len([answer for answer in answers[:10] if answer is not None]) == 1
            assert len([answer for answer in answers[10:20] if answer is not None]) == 1
            assert len(set(answers[20:])) == 1
            assert (await engine.read("s", ["n"]))[0] == Row("n", b"1", answers[20] or 0)

    asyncio.run(scenario())


def test_a_space_with_a_long_queue_does_not_hold_up_another() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            warm = (put(engine, "warm", space=space) for space in ("noisy", "quiet"))
            await asyncio.gather(*warm)  # on a connection each: to open one can take longer than all that follows
            noisy = [asyncio.ensure_future(put(engine, f"k{number}", space="noisy")) for number in range(3_000)]
            await asyncio.sleep(0)
            await put(engine, "k", space="quiet")
            assert len([task for task in noisy if task.done()]) < 1_000
            await asyncio.gather(*noisy)

    asyncio.run(scenario())


# Locks


def lock_of(space: str) -> str:
    return f"hashtextextended('{space}', '\"keyhouse_rows\"'::regclass::oid::bigint)"


def test_a_space_that_another_process_has_locked_holds_up_no_other_space() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a", space="locked")
            async with connection.transaction():
                await connection.execute(f"SELECT pg_advisory_xact_lock({lock_of('locked')})")
                waiting = asyncio.ensure_future(put(engine, "b", space="locked"))
                behind = asyncio.ensure_future(put(engine, "c", space="locked"))
                for number in range(20):
                    await put(engine, f"k{number}", space=f"free {number % 5}")
                assert not waiting.done()
                assert not behind.done()
                assert await engine.read("locked", ["b"]) == [None]
            assert [await waiting, await behind] == [2, 3]

    asyncio.run(scenario())


def test_a_lock_that_does_not_end_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            async with connection.transaction():
                await connection.execute(f"SELECT pg_advisory_xact_lock({lock_of('s')})")
                with pytest.raises(UnavailableError, match="kept the rows locked"):
                    await put(engine, "b")
            assert await put(engine, "b") == 2

    monkeypatch.setitem(_settings(), "lock_timeout", "200ms")
    asyncio.run(scenario())


def _settings() -> dict[str, str]:
    from keyhouse.engines.postgres import server

    return server.SETTINGS


def test_crossing_batches_of_many_spaces_never_deadlock() -> None:
    """Two processes write to the same spaces and the same rows, in opposite orders, with a sweep in between."""

    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as one, opened(url) as other, operator(url) as connection:
            deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            before = await connection.fetchval(deadlocks)
            spaces = [f"s{number}" for number in range(12)]
            keys = [f"k{number}" for number in range(6)]

            async def write(engine: Engine, order: int) -> None:
                for _ in range(15):
                    for space in spaces[::order]:
                        puts = tuple(Put(key, b"1", 1) for key in keys[::order])
                        assert await engine.commit(space, Batch(puts=puts, adds=(Add("n", 1),)))

            async def sweep(engine: Engine) -> None:
                while not all(task.done() for task in writing):
                    await engine.sweep(limit=50)

            writing = [
                asyncio.ensure_future(write(engine, order))
                for engine in (one, other)
                for order in (1, -1)
                for _ in range(3)
            ]
            await asyncio.gather(*writing, sweep(one), sweep(other))
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            assert await connection.fetchval(deadlocks) == before
            for space in spaces:
                assert (await one.read(space, ["n"]))[0] is not None
                assert (await one.read(space, ["n"]))[0].value == b"180"  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_the_sweep_leaves_a_row_that_someone_has_locked() -> None:
    async def scenario() -> None:
        url, clock = await postgres_schema(), ManualClock()
        engine = PostgresEngine.open(url, clock=clock)
        async with operator(url) as connection:
            await engine.commit("s", Batch(puts=tuple(Put(key, b"1", clock.now() + 1) for key in "abc")))
            clock.advance(milliseconds=1)
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM keyhouse_rows WHERE key = 'b' FOR UPDATE")
                assert await engine.sweep(limit=10) == 2
            assert await engine.sweep(limit=10) == 1
        await engine.close()

    asyncio.run(scenario())


# What the server says


FAILING = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.key LIKE 'fail%' AND nextval('tries') <= {times} THEN
        RAISE EXCEPTION 'as planned' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE SEQUENCE tries;
CREATE TRIGGER fail BEFORE INSERT ON keyhouse_rows FOR EACH ROW EXECUTE FUNCTION fail();
"""


def failing(code: str, times: int, call: Any) -> Coroutine[Any, Any, None]:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            await connection.execute(FAILING.format(code=code, times=times))
            await call(engine)
            assert await put(engine, "b") is not None

    return scenario()


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_transaction_that_the_server_undid_for_another_is_done_again(code: str) -> None:
    async def call(engine: Engine) -> None:
        assert [*await asyncio.gather(put(engine, "fail"), put(engine, "c"), put(engine, "d"))] == [2, 3, 4]

    asyncio.run(failing(code, 3, call))


@pytest.mark.parametrize(
    ("code", "error", "sentence"),
    [
        ("40001", UnavailableError, "kept colliding"),
        ("53100", FullError, "disk is full"),
        ("53200", UnavailableError, "no connection or memory"),
        ("57014", UnavailableError, "broke the statement off"),
        ("25006", UnavailableError, "only reads"),
        ("42501", UnavailableError, "may not do this"),
        ("XX001", UnreadableError, "damaged"),
    ],
)
def test_what_the_server_says_is_told_in_our_words_and_nothing_is_written(
    code: str, error: type[KeyhouseError], sentence: str
) -> None:
    async def call(engine: Engine) -> None:
        with pytest.raises(error, match=sentence) as refusal:
            await put(engine, "with it", "fail")
        assert isinstance(refusal.value.__cause__, asyncpg.PostgresError)
        assert await engine.read("s", ["with it", "fail"]) == [None, None]

    asyncio.run(failing(code, 1_000, call))


def test_what_nobody_foresaw_is_an_engines_error_too() -> None:
    async def call(engine: Engine) -> None:
        with pytest.raises(KeyhouseError, match="does not know") as refusal:
            await put(engine, "fail")
        assert "as planned" in str(refusal.value)

    asyncio.run(failing("P0001", 1_000, call))
