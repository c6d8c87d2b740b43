"""Migrations run in order, once each, resume after a kill, and reject a newer store."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse import open_store
from keyhouse.errors import LeaseError, NewerError
from keyhouse.schema import (
    Counter,
    Index,
    Meta,
    Migration,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
)
from keyhouse.store import Entry, Store, Transaction, migrate, reindex, version
from keyhouse.testing.faults import FaultyEngine, Killed, fail, meanwhile
from tests.store.support.harness import Harness, clean, everywhere, played

PEOPLE = 205


class Old(msgspec.Struct):
    """A person of version 0: the name is one text."""

    id: str
    name: str


class Person(msgspec.Struct):
    """A person of version 2: the name has two parts, and there is a team."""

    id: str
    first: str
    last: str
    team: str = "none"


OLD_BY_NAME = Index("idx:name:{name}:{id}")
OLD = Record(Old, "p:{id}", OLD_BY_NAME, name="person")
V0 = Schema("people", OLD, space=Space("x"), meta=Meta())

BY_LAST = Index("idx:last:{last}:{id}")
ONE_NAME = Unique("one:{last}:{first}", value="id")
TEAMS = Summary("team:{team}", member="id", under="ids")
SIZES = RecordCount("size:{team}")
PERSON = Record(Person, "p:{id}", BY_LAST, ONE_NAME, TEAMS, SIZES)
STEPS = Counter("steps:{id}", name="steps")


async def split(tx: Transaction, entry: Entry[Old]) -> None:
    first, _, last = entry.record.name.partition(" ")
    await tx.delete(OLD, id=entry.record.id)
    await tx.put(PERSON, Person(entry.record.id, first, last))
    await tx.add(STEPS, 1, id=entry.record.id)


async def assign(tx: Transaction, entry: Entry[Person]) -> None:
    await tx.put(PERSON, msgspec.structs.replace(entry.record, team=entry.record.last[:2]))
    await tx.add(STEPS, 1, id=entry.record.id)


SPLIT, ASSIGN = (
    Migration(1, "Names in two parts", OLD, split),
    Migration(2, "Everyone is in a team", PERSON, assign),
)
V2 = Schema("people", PERSON, STEPS, space=Space("x"), meta=Meta(), migrations=(SPLIT, ASSIGN))
V1 = Schema("people", PERSON, STEPS, space=Space("x"), meta=Meta(), migrations=(SPLIT,))
assert V2.meta is not None
META = V2.meta


def name(number: int) -> tuple[str, str]:
    return f"First{number}", f"L{number % 9}ast{number}"


async def old(harness: Harness, space: str = "space", people: int = PEOPLE) -> Store:
    """Return a store written by version 0, opened by version 2."""
    store = Store(V0, harness.engine, space)
    async with store.transaction() as tx:
        for number in range(people):
            await tx.put(OLD, Old(f"{number:03d}", " ".join(name(number))))
    return Store(V2, harness.engine, space)


async def migrated(harness: Harness, store: Store, people: int = PEOPLE) -> None:
    """Assert that the rows equal those of a store written by version 2 alone."""
    new = await open_store(V2, harness.engine, store.space + "-new")
    async with new.transaction() as tx:
        for number in range(people):
            first, last = name(number)
            await tx.put(PERSON, Person(f"{number:03d}", first, last, last[:2]))
    keep = ("p:", "idx:", "one:", "team:", "size:", "meta:")
    rows = [
        {
            key: _parsed(value)
            for key, (value, _) in (await harness.rows(space)).items()
            if key.startswith(keep) and value != b"0" and key != "meta:job:indexes"
        }
        for space in (store.space, new.space)
    ]
    assert rows[0] == rows[1]
    for number in range(people):
        assert await store.get(STEPS, id=f"{number:03d}") == 2, "each step once"
    await clean(store)


def _parsed(value: bytes) -> Any:
    parsed = msgspec.json.decode(value)
    return (
        {**parsed, "ids": sorted(parsed["ids"])}
        if isinstance(parsed, dict) and "ids" in parsed
        else parsed
    )


@everywhere
async def test_old_data_migrated_equals_new_data_written(harness: Harness) -> None:
    store = await old(harness)
    reported: list[tuple[int, int]] = []
    harness.clock.advance(seconds=5)
    done = await migrate(
        store, on_progress=lambda migration, records: reported.append((migration.id, records))
    )
    assert [(step.migration.id, step.records) for step in done] == [(1, PEOPLE), (2, PEOPLE)]
    assert reported[0] == (1, 100) and reported[-1] == (2, PEOPLE) and reported == sorted(reported)
    assert await version(store) == 2
    await migrated(harness, store)
    record = await store.get(META.done, id=1)
    assert (
        record is not None
        and record.description == "Names in two parts"
        and record.counts["records"] == PEOPLE
    )
    assert record.applied_at == "2026-01-01T00:00:05Z"
    assert await store.count(META.job) == 0, "what the work needed is gone"


@everywhere
async def test_a_migrated_store_is_not_migrated_again(harness: Harness) -> None:
    store = await old(harness, people=10)
    await migrate(Store(V1, harness.engine, "space"))
    assert [step.migration.id for step in await migrate(store)] == [2]
    before = await harness.rows()
    assert await migrate(store) == []
    assert await harness.rows() == before


@everywhere
async def test_an_empty_store_is_at_the_newest_version_once_it_is_opened(harness: Harness) -> None:
    store = await open_store(V2, harness.engine, "empty")
    assert await version(store) == 2
    await store.put(PERSON, Person("1", "a", "b", "c"))
    await open_store(V2, harness.engine, "empty")
    assert await store.get(PERSON, id="1") == Person("1", "a", "b", "c")
    plain = await open_store(V0, harness.engine, "plain")
    assert set(await harness.rows("plain")) <= {"meta:job:indexes"} and await version(plain) == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_migration_killed_at_any_commit_resumes_and_repeats_nothing(after: bool) -> None:
    async def story(harness: Harness) -> None:
        through = 0
        for at in range(1, 13):
            store = await old(harness, f"space-{at}")
            engine = harness.faulty(fail(at, Killed, after=after))
            try:
                await migrate(Store(V2, engine, store.space))
            except Killed:
                harness.clock.advance(seconds=60)
                await migrate(store)
            else:
                through += 1
            await migrated(harness, store)
        assert 0 < through < 12

    asyncio.run(played(story, "memory", Path()))


@everywhere
async def test_a_runner_killed_twice_is_followed_by_another(harness: Harness) -> None:
    store = await old(harness)
    for at in (3, 2):
        with pytest.raises(Killed):
            await migrate(Store(V2, harness.faulty(fail(at, Killed)), "space"))
        with pytest.raises(LeaseError):
            await migrate(store)
        harness.clock.advance(seconds=60)
    await harness.reopen()
    store = Store(V2, harness.engine, "space")
    await migrate(store)
    await migrated(harness, store)


@everywhere
async def test_a_runner_that_comes_as_the_work_ends_does_not_do_it_again(harness: Harness) -> None:
    """A runner reads version 0; before it takes the lease, another one finishes and deletes the
    job. The first found no job and started again, on records that were already migrated.
    """
    store = await old(harness)
    for at, call in ((1, "read"), (1, "commit"), (2, "read"), (3, "read")):
        space = f"space-{at}-{call}"
        store = await old(harness, space)

        async def overtake(store: Store = store) -> None:
            harness.clock.advance(seconds=60)
            await migrate(store)

        fault = meanwhile(at, overtake, call=call, after=call == "read")  # type: ignore[arg-type]
        engine = FaultyEngine(harness.engine, fault)
        assert await migrate(Store(V2, engine, space)) == []
        await migrated(harness, store)


@everywhere
async def test_two_runners_at_once_migrate_once(harness: Harness) -> None:
    store = await old(harness)
    engine = harness.faulty(yields=True)

    async def run() -> None:
        with suppress(LeaseError):
            await migrate(Store(V2, engine, "space"))

    await asyncio.gather(*(run() for _ in range(4)))
    harness.clock.advance(seconds=60)
    await migrate(store)
    await migrated(harness, store)


@everywhere
async def test_a_store_of_older_code_does_not_write_to_a_newer_space(
    harness: Harness,
) -> None:
    """`open_store` and the CLI rejected it, but a `Store` created directly wrote old rows."""
    await migrate(await old(harness, people=3))
    before = await harness.rows()
    person = Person("new", "A", "B", "t")
    writes: list[Callable[[Store], Awaitable[object]]] = [
        lambda store: store.put(PERSON, person),
        lambda store: store.put(PERSON, person, expect=None),
        lambda store: store.delete(PERSON, id="001"),
        lambda store: store.add(STEPS, 1, id="001"),
        lambda store: store.transact(lambda tx: tx.put(PERSON, person)),
        _in_a_transaction,
    ]
    for write in writes:
        store = Store(V1, harness.engine, "space")
        assert (await store.get(PERSON, id="001")) is not None, (
            "reading is left to the records' own versions"
        )
        with pytest.raises(NewerError, match="use the newer program") as refused:
            await write(store)
        assert refused.value.fields["known"] == 1
    assert await harness.rows() == before
    await Store(V2, harness.engine, "space").put(PERSON, person)


async def _in_a_transaction(store: Store) -> None:
    async with store.transaction() as tx:
        await tx.delete(PERSON, id="001")


@everywhere
async def test_a_program_that_was_forgotten_stops_writing_when_newer_code_migrates_under_it(
    harness: Harness,
) -> None:
    store = Store(V1, harness.engine, "space")
    await migrate(store)
    await store.put(PERSON, Person("a", "A", "B", "t"))
    engine = harness.faulty(fail(3, Killed))
    with pytest.raises(Killed):
        await migrate(Store(V2, engine, "space"))
    assert "meta:job:migrate-2" in await harness.rows(), "it is at it, and has not come to its end"
    await store.put(PERSON, Person("b", "A", "C", "t"))
    harness.clock.advance(seconds=10)
    with pytest.raises(NewerError):
        await store.put(PERSON, Person("c", "A", "D", "t"))
    harness.clock.advance(seconds=60)
    await migrate(Store(V2, harness.engine, "space"))
    with pytest.raises(NewerError):
        await store.put(PERSON, Person("c", "A", "D", "t"))


@everywhere
async def test_the_version_is_looked_at_once_in_a_while_and_not_at_each_write(
    harness: Harness,
) -> None:
    engine = harness.faulty()
    store = Store(V1, engine, "space")
    for number in range(5):
        await store.add(STEPS, 1, id=f"{number}")
    assert engine.calls["read"] == 1
    harness.clock.set(harness.clock.now() - 60_000)
    await store.add(STEPS, 1, id="x")
    assert engine.calls["read"] == 2, "a clock that was set back does not keep it from looking"


@everywhere
async def test_a_newer_store_is_rejected_and_left_unchanged(harness: Harness) -> None:
    store = await old(harness, people=5)
    await migrate(store)
    before = await harness.rows()
    for older in (V1, V0):
        for call in (version, migrate):
            with pytest.raises(NewerError) as refused:
                await call(Store(older, harness.engine, "space"))
            assert refused.value.fields["found"] == 2
        if older.migrations:
            with pytest.raises(NewerError):
                await open_store(older, harness.engine, "space")
    assert await harness.rows() == before


@everywhere
async def test_a_dry_run_returns_counts_and_writes_nothing(harness: Harness) -> None:
    store = Store(V1, harness.engine, "space")
    await old(harness)
    before = await harness.rows()
    reported: list[int] = []
    done = await migrate(
        store, dry_run=True, on_progress=lambda migration, records: reported.append(records)
    )
    assert [(step.migration.id, step.records) for step in done] == [(1, PEOPLE)] and done[
        0
    ].rows > PEOPLE
    assert reported[-1] == PEOPLE
    assert await harness.rows() == before


@everywhere
async def test_a_migration_that_fails_leaves_the_store_at_its_version(harness: Harness) -> None:
    store = await old(harness, people=20)

    async def broken(tx: Transaction, entry: Entry[Old]) -> None:
        raise ValueError("no")

    failing = Schema(
        "people",
        PERSON,
        STEPS,
        space=Space("x"),
        meta=Meta(),
        migrations=(Migration(1, "…", OLD, broken), ASSIGN),
    )
    rows = {
        key: value for key, value in (await harness.rows()).items() if not key.startswith("meta:")
    }
    with pytest.raises(ValueError, match="no"):
        await migrate(Store(failing, harness.engine, "space"))
    assert await version(store) == 0
    assert {
        key: value for key, value in (await harness.rows()).items() if not key.startswith("meta:")
    } == rows
    await migrate(store)
    await migrated(harness, store, 20)


@everywhere
async def test_rows_that_a_declaration_adds_are_written_by_reindexing(harness: Harness) -> None:
    bare = Record(Person, "p:{id}", name="person")
    store = Store(Schema("people", bare, space=Space("x")), harness.engine, "space")
    for number in range(5):
        await store.put(bare, Person(str(number), f"F{number}", "L", "t"))
    schema = Schema(
        "people", PERSON, space=Space("x"), migrations=(reindex(1, "By last name", PERSON),)
    )
    store = await open_store(schema, harness.engine, "space")
    assert [entry.record.id async for entry in store.scan(PERSON, by=BY_LAST, last="L")] == [
        "0",
        "1",
        "2",
        "3",
        "4",
    ]
    assert len(await store.members(TEAMS, team="t")) == 5
    assert await store.record_count(SIZES, team="t") == 5


@everywhere
async def test_a_schema_without_version_rows_is_of_version_0(harness: Harness) -> None:
    store = Store(Schema("bare", OLD, space=Space("x")), harness.engine, "space")
    assert await version(store) == 0
    assert await migrate(store) == []


@everywhere
async def test_the_error_of_a_newer_space_says_that_it_may_be_of_another_schema(
    harness: Harness,
) -> None:
    """A file of another schema, with more migrations, was said to be of newer code."""
    await open_store(V2, harness.engine, "space")
    other = Schema("others", Record(Old, "o:{id}", name="other"), space=Space("x"), meta=Meta())
    store = Store(other, harness.engine, "space")
    with pytest.raises(NewerError, match="not the schema of the space"):
        await store.put(other.records[0], Old("1", "a"))
    with pytest.raises(NewerError, match="not the schema of the space"):
        await version(store)
