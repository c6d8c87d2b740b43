"""Commits to PostgreSQL: shared calls, locks, and errors of the server."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import asyncpg
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.postgres.group import BATCHES_MAX, PostgresGroup
from keyhouse.errors import (
    DocumentError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnreadableError,
)
from tests.engines.support.postgres_schemas import ALL, opened, operator, put
from tests.support.engine_openers import postgres_schema

# Group commit


def test_pending_commits_share_a_call() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "first")
            await asyncio.gather(
                *(
                    put(engine, f"k{number}", space=f"s{number % 7}")
                    for number in range(BATCHES_MAX)
                )
            )
            transactions = "SELECT count(DISTINCT xmin::text) FROM keyhouse_changes"
            assert await connection.fetchval(transactions) < 20
            assert (
                await connection.fetchval("SELECT count(*) FROM keyhouse_changes")
                == BATCHES_MAX + 1
            )

    asyncio.run(scenario())


def test_an_unstorable_batch_fails_alone_in_its_call() -> None:
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
            refused = [
                number for number, answer in enumerate(answers) if not isinstance(answer, int)
            ]
            assert refused == [1, 2, 4, 5, 8]
            assert all(isinstance(answers[number], DocumentError) for number in (1, 2, 4, 5))
            assert [row.key for row in (await engine.scan("s", ALL, limit=9)).rows] == [
                "a",
                "b",
                "c",
                "warm",
            ]

    asyncio.run(scenario())


def test_an_invalid_read_fails_alone_in_its_call() -> None:
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


def test_batches_on_one_row_are_ordered_within_and_across_calls() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            await put(engine, "warm")
            revisions = await asyncio.gather(
                *(engine.commit("s", Batch(adds=(Add("n", 1),))) for _ in range(100))
            )
            assert sorted(revision or 0 for revision in revisions) == list(range(2, 102))
            assert await engine.read("s", ["n"]) == [Row("n", b"100", 101)]
            writes = [
                engine.commit("s", Batch(puts=(Put("x", b"%d" % n),), deletes=(f"y{n}",)))
                for n in range(50)
            ]
            revisions = await asyncio.gather(*writes)
            last = max(range(50), key=lambda number: revisions[number] or 0)
            assert await engine.read("s", ["x"]) == [Row("x", b"%d" % last, revisions[last] or 0)]

    asyncio.run(scenario())


def test_a_check_sees_earlier_batches_of_the_same_call() -> None:
    async def scenario() -> None:
        async with opened() as engine:
            first = await put(engine, "a")
            answers = await asyncio.gather(
                *(
                    engine.commit("s", Batch(checks=(Check("a", first),), puts=(Put("a", b"2"),)))
                    for _ in range(10)
                ),
                *(
                    engine.commit("s", Batch(checks=(Check("b", None),), puts=(Put("b", b"1"),)))
                    for _ in range(10)
                ),
                *(engine.commit("s", Batch(adds=(Add("n", 1),), id="once")) for _ in range(10)),
            )
            assert len([answer for answer in answers[:10] if answer is not None]) == 1
            assert len([answer for answer in answers[10:20] if answer is not None]) == 1
            assert len(set(answers[20:])) == 1
            assert (await engine.read("s", ["n"]))[0] == Row("n", b"1", answers[20] or 0)

    asyncio.run(scenario())


def test_a_long_queue_of_one_space_does_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what is sent before: which of two calls returns first is up to the machine."""
    sent: list[str] = []

    async def scenario() -> None:
        async with opened() as engine:
            call = engine.writer.call

            async def recorded(group: PostgresGroup, *, wait_for_locks: bool) -> Any:
                sent.extend(write.space for write in group.writes)
                return await call(group, wait_for_locks=wait_for_locks)

            monkeypatch.setattr(engine.writer, "call", recorded)
            noisy = [
                asyncio.ensure_future(put(engine, f"k{number}", space="noisy"))
                for number in range(3_000)
            ]
            await asyncio.sleep(0)
            await put(engine, "k", space="quiet")
            await asyncio.gather(*noisy)
        assert len(sent) == 3_001 and sent.index("quiet") < 1_000

    asyncio.run(scenario())


# Locks


def lock_of(space: str) -> str:
    return f"hashtextextended('{space}', '\"keyhouse_rows\"'::regclass::oid::bigint)"


def test_a_locked_space_delays_no_other_space() -> None:
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


def test_a_lock_held_too_long_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        async with opened(url) as engine, operator(url) as connection:
            await put(engine, "a")
            async with connection.transaction():
                await connection.execute(f"SELECT pg_advisory_xact_lock({lock_of('s')})")
                with pytest.raises(UnavailableError, match="held a lock"):
                    await put(engine, "b")
            assert await put(engine, "b") == 2

    monkeypatch.setitem(_settings(), "lock_timeout", "200ms")
    asyncio.run(scenario())


def _settings() -> dict[str, str]:
    from keyhouse.engines.postgres import server

    return server.SETTINGS


def test_crossing_batches_of_many_spaces_never_deadlock() -> None:
    """Two processes write the same rows in opposite orders, while a sweep runs."""

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


def test_the_sweep_skips_a_row_locked_by_another_program() -> None:
    async def scenario() -> None:
        url, clock = await postgres_schema(), ManualClock()
        engine = PostgresEngine.open(url, clock=clock)
        async with operator(url) as connection:
            await engine.commit(
                "s", Batch(puts=tuple(Put(key, b"1", clock.now() + 1) for key in "abc"))
            )
            clock.advance(milliseconds=1)
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM keyhouse_rows WHERE key = 'b' FOR UPDATE")
                assert await engine.sweep(limit=10) == 2
            assert await engine.sweep(limit=10) == 1
        await engine.close()

    asyncio.run(scenario())


# Server errors


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
def test_a_transaction_rolled_back_by_the_server_is_retried(code: str) -> None:
    async def call(engine: Engine) -> None:
        assert [*await asyncio.gather(put(engine, "fail"), put(engine, "c"), put(engine, "d"))] == [
            2,
            3,
            4,
        ]

    asyncio.run(failing(code, 3, call))


@pytest.mark.parametrize(
    ("code", "error", "sentence"),
    [
        ("40001", UnavailableError, "kept conflicting"),
        ("53100", FullError, "disk is full"),
        ("53200", UnavailableError, "out of connections or memory"),
        ("57014", UnavailableError, "cancelled the statement"),
        ("25006", UnavailableError, "read-only"),
        ("42501", UnavailableError, "lacks a privilege"),
        ("XX001", UnreadableError, "damaged"),
    ],
)
def test_server_errors_are_translated_and_nothing_is_written(
    code: str, error: type[KeyhouseError], sentence: str
) -> None:
    async def call(engine: Engine) -> None:
        with pytest.raises(error, match=sentence) as refusal:
            await put(engine, "with it", "fail")
        assert isinstance(refusal.value.__cause__, asyncpg.PostgresError)
        assert await engine.read("s", ["with it", "fail"]) == [None, None]

    asyncio.run(failing(code, 1_000, call))


def test_an_unknown_error_is_an_engine_error() -> None:
    async def call(engine: Engine) -> None:
        with pytest.raises(KeyhouseError, match="unknown error") as refusal:
            await put(engine, "fail")
        assert "as planned" in str(refusal.value)

    asyncio.run(failing("P0001", 1_000, call))
