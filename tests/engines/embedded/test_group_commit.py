"""Group commit on SQLite and RocksDB: shared syncs, threads, and isolation of invalid batches."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import apsw
import pytest

from keyhouse.engine import Add, Batch, Check, Put, Row
from keyhouse.engines.thread_commit_queue import (
    GROUP_BYTES_MAX,
    GROUP_ROWS_MAX,
    GROUP_WRITES_MAX,
    UNDIVIDED_WRITES,
)
from tests.engines.support.embedded_engines import (
    KINDS,
    Embedded,
    Kind,
    Witness,
    awaited,
    both,
    count,
    one,
)
from tests.support.polling import loop_turns, until

Watched = Callable[[], AbstractAsyncContextManager[tuple[Embedded, Witness]]]


@pytest.fixture
def watched(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Open an engine with a witness of its disk operations."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[Embedded, Witness]]:
        async with kind.opened(tmp_path) as engine:
            yield engine, Witness(engine, monkeypatch)

    return opened


@both
@awaited
async def test_concurrent_commits_share_a_sync(watched: Watched) -> None:
    async with watched() as (engine, witness):
        revisions = await asyncio.gather(*(engine.commit("s", one(number)) for number in range(64)))
        assert revisions == list(range(1, 65))
        assert len(witness.syncs) == 1


@both
@awaited
async def test_continuous_writers_keep_sharing_syncs(watched: Watched) -> None:
    async with watched() as (engine, witness):

        async def write(writer: int) -> None:
            for number in range(10):
                await engine.commit("s", one(writer * 10 + number))

        await asyncio.gather(*(write(writer) for writer in range(32)))
        assert len(witness.syncs) == 10


@both
@pytest.mark.parametrize(("waiting", "groups"), [(UNDIVIDED_WRITES, 1), (60, 2)])
@awaited
async def test_a_large_group_behind_a_small_one_is_divided(
    watched: Watched, waiting: int, groups: int
) -> None:
    """Of 64 clients, 4 were in one group and 60 in the other, and stayed so: nothing was left to do
    while the 60 were synced."""
    async with watched() as (engine, witness):
        witness.may_sync.clear()
        first = asyncio.ensure_future(engine.commit("s", one(0)))
        await until(lambda: witness.syncs)
        others = [
            asyncio.ensure_future(engine.commit("s", one(1 + number))) for number in range(waiting)
        ]
        await loop_turns(2)
        witness.may_sync.set()
        assert await asyncio.gather(first, *others) == list(range(1, waiting + 2))
        assert len(witness.syncs) == 1 + groups


@both
@awaited
async def test_a_group_is_written_on_the_loop_and_synced_on_the_thread(
    kind: Kind, watched: Watched
) -> None:
    async with watched() as (engine, witness):
        await engine.commit("s", one(1))
        assert witness.turns == [threading.current_thread().name]
        assert witness.syncs == [kind.thread]


@both
@pytest.mark.parametrize(
    ("batches", "groups"),
    [
        ([one(number) for number in range(GROUP_WRITES_MAX + 1)], 2),
        (
            [
                Batch(
                    puts=tuple(Put(f"{part}/{row}", b"1") for row in range(2 * GROUP_ROWS_MAX // 5))
                )
                for part in range(5)
            ],
            3,
        ),
        ([one(number, b"x" * (GROUP_BYTES_MAX // 4)) for number in range(8)], 2),
    ],
    ids=["jobs", "rows", "bytes"],
)
@awaited
async def test_a_group_is_bounded(watched: Watched, batches: list[Batch], groups: int) -> None:
    async with watched() as (engine, witness):
        await asyncio.gather(*(engine.commit("s", batch) for batch in batches))
        assert len(witness.syncs) == groups
        assert await count(engine) == sum(len(batch.puts) for batch in batches)


@both
@pytest.mark.parametrize(
    "batch",
    [
        Batch(puts=tuple(Put(f"k{number}", b"1") for number in range(GROUP_ROWS_MAX + 1))),
        Batch(puts=tuple(Put(f"k{number}", b"x" * 300_000) for number in range(4))),
    ],
    ids=["many rows", "many bytes"],
)
@awaited
async def test_a_batch_that_is_too_large_for_the_loop_runs_on_the_thread(
    kind: Kind, watched: Watched, batch: Batch
) -> None:
    async with watched() as (engine, witness):
        before, large, after = await asyncio.gather(
            engine.commit("s", one(1)), engine.commit("s", batch), engine.commit("s", one(2))
        )
        assert [before, large, after] == [1, 2, 3]
        loop = threading.current_thread().name
        assert witness.turns == [loop, kind.thread, loop]
        assert witness.syncs == [kind.thread] * 3


@both
@awaited
async def test_a_group_that_writes_nothing_does_not_sync(watched: Watched) -> None:
    async with watched() as (engine, witness):
        lost = Batch(checks=(Check("a", 7),), puts=(Put("a", b"1"),))
        assert await asyncio.gather(*(engine.commit("s", lost) for _ in range(5))) == [None] * 5
        assert witness.syncs == []


@both
@awaited
async def test_a_batch_sees_the_effects_of_earlier_batches_of_its_group(
    kind: Kind, tmp_path: Path
) -> None:
    async with kind.opened(tmp_path) as engine:
        answers = await asyncio.gather(
            engine.commit("s", Batch(adds=(Add("n", 1),))),
            engine.commit("s", Batch(checks=(Check("n", None),), puts=(Put("lost", b"1"),))),
            engine.commit("s", Batch(checks=(Check("n", 1),), adds=(Add("n", 1),), id="once")),
            engine.commit("s", Batch(adds=(Add("n", 1),), id="once")),
            engine.commit("s", Batch(deletes=("n",))),
            engine.commit("s", Batch(checks=(Check("n", None),), adds=(Add("n", 5),))),
        )
        assert list(answers) == [1, None, 2, 2, 3, 4]
        assert await engine.read("s", ["n", "lost"]) == [Row("n", b"5", 4), None]


BAD: dict[str, tuple[Batch, dict[str, type[Exception]]]] = {
    "a list": (
        Batch(puts=(Put("a", b"1"), Put("b", cast(bytes, [7])))),
        {"sqlite": TypeError, "rocksdb": TypeError},
    ),
    "text": (Batch(puts=(Put("a", b"1"), Put("b", cast(bytes, "text")))), {"rocksdb": TypeError}),
    "a surrogate": (
        Batch(puts=(Put("a", b"1"), Put("\ud800", b"1"))),
        {"sqlite": UnicodeEncodeError, "rocksdb": UnicodeEncodeError},
    ),
    "a time too far": (
        Batch(puts=(Put("a", b"1"), Put("b", b"1", 2**70))),
        {"sqlite": OverflowError, "rocksdb": Exception},
    ),
    "no key": (
        Batch(puts=(Put("a", b"1"), Put(cast(str, None), b"1"))),
        {"sqlite": apsw.ConstraintError, "rocksdb": AttributeError},
    ),
    "a surrogate to delete": (
        Batch(deletes=("a", "\ud800")),
        {"sqlite": UnicodeEncodeError, "rocksdb": UnicodeEncodeError},
    ),
}


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        pytest.param(kind, bad, id=f"{kind.name}-{bad}")
        for kind in KINDS
        for bad in BAD
        if kind.name in BAD[bad][1]
    ],
)
@awaited
async def test_a_value_that_cannot_be_stored_fails_only_its_own_commit(
    kind: Kind, bad: str, tmp_path: Path
) -> None:
    """The store rejects such values; if one gets through, the rest of its group must not fail."""
    invalid, errors = BAD[bad]
    async with kind.opened(tmp_path) as engine:
        batches = [one(1), invalid, one(2), invalid, Batch(adds=(Add("n", 1),)), one(3)]
        answers = await asyncio.gather(
            *(engine.commit("s", batch) for batch in batches), return_exceptions=True
        )
        harmed = [isinstance(answer, errors[kind.name]) for answer in answers]
        assert harmed == [False, True, False, True, False, False]
        assert [answer for answer in answers if isinstance(answer, int)] == [1, 2, 3, 4]
        assert await count(engine) == 4
        assert await engine.read("s", ["n", "a"]) == [Row("n", b"1", 3), None]


@both
@awaited
async def test_a_cancelled_large_write_does_not_stop_the_queue(kind: Kind, tmp_path: Path) -> None:
    async with kind.opened(tmp_path) as engine:
        first = asyncio.ensure_future(engine.commit("s", one(1)))
        cancelled = asyncio.ensure_future(engine.sweep(limit=10))
        later = asyncio.ensure_future(engine.commit("s", one(2)))
        await asyncio.sleep(0)
        cancelled.cancel()
        async with asyncio.timeout(10):
            assert list(await asyncio.gather(first, later)) == [1, 2]


@both
def test_an_engine_closes_after_the_loop_of_its_last_commit_ended(
    kind: Kind, tmp_path: Path
) -> None:
    engine = kind.open(tmp_path)

    async def give_up() -> None:
        tasks = [asyncio.ensure_future(engine.commit("s", one(number))) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    asyncio.run(give_up())
    asyncio.run(engine.close())
    assert [entry.name for entry in tmp_path.iterdir()] == [kind.file], "no other file is left"
    asyncio.run(kind.open(tmp_path).close())
