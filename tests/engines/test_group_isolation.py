"""An error of one batch fails only its own commit, and every caller of a group gets an outcome."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keyhouse.engine import Batch, Engine, Put, Row
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.jetstream.error_map import connection_lost
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.engines.thread_commit_queue import ThreadCommitQueue
from keyhouse.errors import EngineError, LimitError, UnknownOutcomeError
from tests.support.dynamodb_tables import InterceptingClient, client_error, settings
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import shared_bucket


def one(key: str, value: bytes = b"1") -> Batch:
    return Batch(puts=(Put(key, value),))


async def keys(engine: Engine) -> list[bytes | None]:
    return [
        None if row is None else row.value
        for row in await engine.read("s", [f"k{number}" for number in range(12)])
    ]


def test_a_value_too_large_for_a_bucket_fails_its_own_commit_and_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shared_bucket(tmp_path) as there:
            await there.js.create_key_value(bucket=there.bucket, max_value_size=1_000)
            await there.engine.commit("s", one("first"))
            batches = [
                one(f"k{number}", b'"%s"' % (b"x" * (2_000 if number == 7 else 10)))
                for number in range(12)
            ]
            answers = await asyncio.gather(
                *(there.engine.commit("s", batch) for batch in batches), return_exceptions=True
            )
            assert isinstance(answers.pop(7), LimitError)
            assert all(isinstance(answer, int) for answer in answers)
            found = await keys(there.engine)
            assert found.pop(7) is None and None not in found

    asyncio.run(scenario())


def test_a_batch_that_dynamodb_rejects_fails_alone() -> None:
    """The other batches of its transaction are sent again, each alone."""

    class Strict(InterceptingClient):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)

            async def checked(**parameters: Any) -> Any:
                if name == "transact_write_items" and "wrong" in repr(parameters):
                    raise client_error("ValidationException")
                return await call(**parameters)

            return checked

    async def scenario() -> None:
        engine = await DynamoDBEngine.open(settings())
        engine.client.driver = Strict(engine.client.driver)
        batches = [one(f"k{number}", b'"wrong"' if number == 7 else b"1") for number in range(12)]
        answers = await asyncio.gather(
            *(engine.commit("s", batch) for batch in batches), return_exceptions=True
        )
        assert isinstance(answers.pop(7), EngineError)
        assert sorted(answer for answer in answers if isinstance(answer, int)) == list(range(1, 12))
        found = await keys(engine)
        assert found.pop(7) is None and found == [b"1"] * 11
        await engine.close()

    asyncio.run(scenario())


class Calls:
    """Calls that return when the test resolves them."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[None]] = []

    async def commit(self, group: Any, *, wait_for_locks: bool) -> dict[str, Any]:
        await self._answered()
        return {"answers": [1] * len(group.writes), "busy": None, "fault_batch": None}

    async def read(self, work: object) -> list[Row | None]:
        await self._answered()
        return [None]

    async def number(self, count: int) -> None:
        while len(self.answers) < count:
            await asyncio.sleep(0)

    async def _answered(self) -> None:
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


@pytest.mark.parametrize("reads", [False, True])
def test_a_write_that_arrives_as_the_last_workers_return_is_not_stranded(
    reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls return in one loop turn; in the turn in which their workers return, another
    arrives.

    It used to count on those workers, and waited until yet another call arrived.
    """

    async def scenario() -> None:
        engine, calls = PostgresEngine.open(await postgres_schema()), Calls()
        if reads:
            monkeypatch.setattr(engine.reads, "run_with_retry", calls.read)
        else:
            monkeypatch.setattr(engine.writer, "call", calls.commit)

        async def request(space: str) -> Any:
            return await (engine.read(space, ["k"]) if reads else engine.commit(space, one("k")))

        tasks = []
        for space in "ab":
            tasks.append(asyncio.ensure_future(request(space)))
            await calls.number(len(tasks))
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def relay() -> None:
            await first
            second.set_result(None)

        async def late() -> Any:
            await second
            return await request("c")

        relayed = asyncio.ensure_future(relay())
        tasks.append(asyncio.ensure_future(late()))
        await asyncio.sleep(0)
        for answer in (*calls.answers, first):
            answer.set_result(None)
        async with asyncio.timeout(30):
            await calls.number(3)
            calls.answers[2].set_result(None)
            assert await asyncio.gather(*tasks) == [[None] if reads else 1] * 3
            await relayed
        monkeypatch.undo()
        await engine.close()

    asyncio.run(scenario())


def test_an_unknown_outcome_is_not_reported_as_closed(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with shared_bucket(tmp_path) as there:
            await there.engine.commit("s", one("a"))
            asked = asyncio.get_running_loop().create_future()

            async def request(messages: object, **options: object) -> Any:
                asked.set_result(None)
                await closing
                raise connection_lost()

            assert there.engine.connection is not None
            there.engine.connection.request = request  # type: ignore[method-assign]
            closing = asyncio.get_running_loop().create_future()
            commit = asyncio.ensure_future(there.engine.commit("s", one("b")))
            await asked
            end = asyncio.ensure_future(there.engine.close())
            await asyncio.sleep(0)
            closing.set_result(None)
            with pytest.raises(UnknownOutcomeError):
                await commit
            await end

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("where", "expected"),
    [("recover", EngineError), ("execute", EngineError), ("make_durable", UnknownOutcomeError)],
)
@pytest.mark.parametrize(
    "opened",
    [
        lambda folder: SqliteEngine.open(folder / "rows.db"),
        lambda folder: RocksdbEngine.open(folder / "rows"),
    ],
)
def test_an_unexpected_error_settles_every_waiting_caller(
    opened: Callable[[Path], SqliteEngine | RocksdbEngine],
    where: str,
    expected: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller without an outcome waits forever, and so does every write after it."""

    async def scenario() -> None:
        engine = opened(tmp_path)
        writer: ThreadCommitQueue = engine.writer

        def failing(*group: object) -> Any:
            raise ZeroDivisionError("unforeseen")

        async with asyncio.timeout(10):
            with monkeypatch.context() as patch:
                patch.setattr(writer, where, failing)
                waiting = [engine.commit("s", one(f"k{number}")) for number in range(3)]
                answers = await asyncio.gather(*waiting, return_exceptions=True)
                assert [type(answer) for answer in answers] == [expected] * 3
                assert "unforeseen" in str(answers[0])
            if where != "apply":
                assert await engine.commit("s", one("k9"))
            await engine.close()

    asyncio.run(scenario())
