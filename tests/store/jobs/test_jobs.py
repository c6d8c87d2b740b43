"""A job processes each record once, though its runner is killed at any commit or replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.engine import Batch
from keyhouse.errors import (
    LeaseError,
    LimitError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.schema import JobState, Record, Schema, Space
from keyhouse.store import Entry, Store, Transaction, run_job, try_job
from keyhouse.testing.faults import FaultyEngine, Killed, fail, meanwhile
from tests.store.support.harness import Harness, book, clean, everywhere, played
from tests.store.support.library_schema import BOOK, BY_SERIES, HITS, LIBRARY, MAP, Book

assert LIBRARY.meta is not None
JOB = LIBRARY.meta.job


async def count(tx: Transaction, entry: Entry[Book]) -> None:
    """Count each book, and each time a book is processed."""
    await tx.add(HITS, 1, page="all")
    await tx.add(HITS, 1, page=entry.record.id)


async def filled(harness: Harness, books: int = 250) -> Store:
    store = harness.store()
    async with store.transaction() as tx:
        for number in range(books):
            await tx.put(BOOK, book(f"{number:03d}", series=f"s{number % 7}"))
            await tx.put(MAP, number, id=f"{number:03d}")
    return store


async def once_each(store: Store, books: int = 250) -> None:
    assert await store.get(HITS, page="all") == books
    for number in range(books):
        assert await store.get(HITS, page=f"{number:03d}") == 1


@everywhere
async def test_a_job_works_on_every_record_once_and_tells_how_far_it_is(harness: Harness) -> None:
    store = await filled(harness)
    reported: list[int] = []
    state = await run_job(store, "count", BOOK, count, on_progress=reported.append)
    assert (
        state is not None
        and state.finished
        and state.done == 250
        and reported[-1] == 250
        and reported == sorted(reported)
    )
    await once_each(store)
    again = await run_job(store, "count", BOOK, count, on_progress=reported.append)
    assert again is not None and again.done == 250 and await store.get(HITS, page="all") == 250, (
        "a finished job stays finished"
    )
    await run_job(store, "count again", BOOK, count)
    assert await store.get(HITS, page="all") == 500


@everywhere
async def test_a_job_over_nothing_is_finished_at_once(harness: Harness) -> None:
    state = await run_job(harness.store(), "count", BOOK, count)
    assert state is not None and state.finished and state.done == 0


@pytest.mark.parametrize("raises", [Killed, UnknownOutcomeError, UnavailableError])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_job_killed_at_any_commit_resumes_and_repeats_nothing(
    raises: type[BaseException], after: bool
) -> None:
    if after and raises is UnavailableError:
        return

    async def story(harness: Harness) -> None:
        for at in range(1, 8):
            space = f"space-{at}"
            store = harness.store(space=space)
            async with store.transaction() as tx:
                for number in range(250):
                    await tx.put(BOOK, book(f"{number:03d}"))
            try:
                await run_job(
                    harness.store(
                        space=space, engine=harness.faulty(fail(at, raises, after=after))
                    ),
                    "count",
                    BOOK,
                    count,
                )
            except (Killed, UnknownOutcomeError, UnavailableError):
                harness.clock.advance(seconds=60)
                await run_job(store, "count", BOOK, count)
            await once_each(store)

    asyncio.run(played(story, "memory", Path()))


@everywhere
async def test_a_second_runner_gets_a_lease_error(harness: Harness) -> None:
    store = await filled(harness)
    with pytest.raises(Killed):
        await run_job(harness.store(engine=harness.faulty(fail(3, Killed))), "count", BOOK, count)
    with pytest.raises(LeaseError) as refused:
        await run_job(store, "count", BOOK, count)
    assert refused.value.fields["seconds"] == 12
    harness.clock.advance(milliseconds=11_999)
    with pytest.raises(LeaseError):
        await run_job(store, "count", BOOK, count)
    harness.clock.advance(milliseconds=1)
    await run_job(store, "count", BOOK, count)
    await once_each(store)


@everywhere
async def test_a_runner_that_fell_silent_finds_out_that_another_took_over(harness: Harness) -> None:
    """A runner whose lease expires during a step must not commit that step."""
    store = await filled(harness)

    async def overtaken() -> None:
        harness.clock.advance(seconds=60)
        await run_job(store, "count", BOOK, count)

    for at in (2, 3):
        engine = FaultyEngine(harness.engine, meanwhile(at, overtaken, call="commit"))
        with pytest.raises(LeaseError, match="taken this job over"):
            await run_job(harness.store(engine=engine), "count", BOOK, count)
        await once_each(store)
        await harness.plant(
            {row: None for row in await harness.rows() if row.startswith(("hits:", "meta:job"))}
        )


@everywhere
async def test_many_runners_at_once_do_the_work_of_one(harness: Harness) -> None:
    await filled(harness)
    engine = harness.faulty(yields=True)

    async def run(number: int) -> bool:
        try:
            await run_job(Store(LIBRARY, engine, "space"), "count", BOOK, count)
        except LeaseError:
            return False
        return True

    ran = await asyncio.gather(*(run(number) for number in range(8)))
    assert any(ran)
    await once_each(harness.store())


@everywhere
async def test_a_failing_step_stops_the_job_and_releases_its_lease(harness: Harness) -> None:
    """The lease was not released, so a rerun had to wait a minute."""
    store = await filled(harness)
    broken = True

    async def fragile(tx: Transaction, entry: Entry[Book]) -> None:
        if broken and entry.record.id == "150":
            raise ValueError("this one does not go")
        await count(tx, entry)

    with pytest.raises(ValueError, match="does not go"):
        await run_job(store, "count", BOOK, fragile)
    state = await store.get(JOB, name="count")
    assert state is not None and state.done == 100 and not state.finished
    broken = False
    await run_job(store, "count", BOOK, fragile)
    await once_each(store)


@everywhere
async def test_a_cancelled_job_resumes_at_once(
    harness: Harness,
) -> None:
    """After Ctrl-C the lease was not released, so running the command again failed for a minute."""
    store = await filled(harness)
    started = asyncio.Event()

    async def slow(tx: Transaction, entry: Entry[Book]) -> None:
        if entry.key == "b:150":
            started.set()
            await asyncio.Event().wait()
        await count(tx, entry)

    running = asyncio.ensure_future(run_job(store, "count", BOOK, slow))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    state = await run_job(store, "count", BOOK, count)
    assert state is not None and state.finished
    await once_each(store)


@everywhere
async def test_records_that_change_or_go_while_the_job_runs_are_seen_as_they_are(
    harness: Harness,
) -> None:
    store = await filled(harness, 150)
    seen: list[str] = []

    async def titles(tx: Transaction, entry: Entry[Book]) -> None:
        seen.append(entry.record.title)
        await tx.put(BOOK, msgspec.structs.replace(entry.record, title="done " + entry.record.id))

    async def meddle() -> None:
        await store.put(BOOK, book("110", title="changed"))
        await store.delete(BOOK, id="120")
        await store.put(BOOK, book("1305", title="new"))

    engine = FaultyEngine(harness.engine, meanwhile(2, meddle, call="scan", after=True))
    state = await run_job(harness.store(engine=engine), "titles", BOOK, titles)
    assert "changed" in seen and "Title 120" not in seen and state is not None and state.done == 149
    found = await store.get(BOOK, id="110")
    assert found is not None and found.title == "done 110"
    await clean(store)


# More than one commit holds


@everywhere
async def test_a_job_takes_smaller_steps_where_a_commit_holds_less(harness: Harness) -> None:
    store = await filled(harness, 60)
    small = FaultyEngine(harness.engine, rows=20)
    await run_job(harness.store(engine=small), "count", BOOK, count)
    await once_each(store, 60)

    def size(batch: Batch) -> int:
        return len(batch.puts) + len(batch.deletes) + len(batch.adds)

    assert max(map(size, small.batches)) <= 20


@everywhere
async def test_a_step_larger_than_a_commit_is_rejected(harness: Harness) -> None:
    await filled(harness, 10)

    async def much(tx: Transaction, entry: Entry[Book]) -> None:
        for number in range(30):
            await tx.add(HITS, 1, page=str(number))

    with pytest.raises(LimitError):
        await run_job(
            harness.store(engine=FaultyEngine(harness.engine, rows=20)), "much", BOOK, much
        )
    assert await harness.store().get(HITS, page="0") == 0


# Dry runs


@everywhere
async def test_a_dry_run_of_a_job_writes_nothing_and_returns_its_result(harness: Harness) -> None:
    store = await filled(harness)
    before = await harness.rows()
    reported: list[int] = []
    state = await try_job(store, BOOK, count, on_progress=reported.append)
    assert state.done == 250 and state.changed > 250 and reported[-1] == 250
    assert await harness.rows() == before


@everywhere
async def test_a_schema_without_a_place_for_jobs_runs_none(harness: Harness) -> None:
    record: Record[Any] = Record(Any, "x:{id}", name="x")
    store = Store(Schema("bare", record, space=Space("x")), harness.engine, "s")

    async def nothing(tx: Transaction, entry: Entry[Any]) -> None:
        pass

    step: Callable[[Transaction, Entry[Any]], Awaitable[None]] = nothing
    with pytest.raises(UsageError, match="meta"):
        await run_job(store, "job", record, step)


def test_a_job_is_known_by_its_state() -> None:
    assert JobState(owner="x", lease_until=1, started_at=0).finished is False


@everywhere
async def test_a_job_over_one_range_of_an_index_leaves_the_other_records_alone(
    harness: Harness,
) -> None:
    store = await filled(harness)
    state = await run_job(store, "of one series", BOOK, count, by=BY_SERIES, series="s3")
    expected = [f"{number:03d}" for number in range(250) if number % 7 == 3]
    assert state is not None and state.done == len(expected)
    for number in range(250):
        assert await store.get(HITS, page=f"{number:03d}") == (number % 7 == 3)


@everywhere
async def test_a_job_may_move_its_records_out_of_the_index_and_resumes_after_a_kill(
    harness: Harness,
) -> None:
    store = await filled(harness, 400)
    moved = {f"{number:03d}" for number in range(400) if number % 7 in (2, 3)}

    async def step(tx: Transaction, entry: Entry[Book]) -> None:
        await count(tx, entry)
        await tx.put(BOOK, msgspec.structs.replace(entry.record, series="s2"))

    for at in range(1, 4):
        try:
            faulty = harness.store(engine=harness.faulty(fail(at, Killed)))
            await run_job(faulty, "merge", BOOK, step, by=BY_SERIES, series="s3")
        except Killed:
            harness.clock.advance(seconds=60)
    await run_job(store, "merge", BOOK, step, by=BY_SERIES, series="s3")
    found = {entry.record.id async for entry in store.scan(BOOK, by=BY_SERIES, series="s2")}
    assert found == moved and await store.get(HITS, page="all") == 57
    await clean(store)


@everywhere
async def test_a_job_over_leading_key_fields_and_over_another_records_index(
    harness: Harness,
) -> None:
    store = await filled(harness, 20)
    state = await run_job(store, "one", BOOK, count, id="007")
    assert state is not None and state.done == 1
    with pytest.raises(UsageError, match="no such index"):
        await run_job(store, "none", MAP, count, by=BY_SERIES, series="s3")
    with pytest.raises(UsageError, match="no such field"):
        await run_job(store, "none", BOOK, count, series="s3")
    state = await try_job(store, BOOK, count, by=BY_SERIES, series="s3")
    assert state.done == 3 and await store.get(HITS, page="all") == 1
