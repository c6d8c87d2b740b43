"""A dry run of several pending migrations: each is tried on what the ones before it leave."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.schema import Index, Meta, Migration, Record, Schema, Space, Unique
from keyhouse.store import Store, Transaction, migrate, version
from tests.store.support.harness import Harness, everywhere, played

SPACE = Space("a channel")
SONGS = 150


class First(msgspec.Struct):
    id: str
    title: str


class Second(msgspec.Struct):
    id: str
    name: str


class Third(msgspec.Struct):
    id: str
    name: str
    letters: int


FIRST = Record(First, "song:{id}", Index("idx:title:{title}:{id}"), name="song")
SECOND = Record(Second, "song:{id}", Unique("name:{name}", value="id"), name="song")
THIRD = Record(Third, "song:{id}", Index("idx:letters:{letters:03d}:{id}"), name="song")
BEFORE = Schema("songs", FIRST, space=SPACE, meta=Meta())


async def rename(tx: Transaction, entry: Any) -> None:
    if entry.record.id == "gone":
        await tx.delete(FIRST, id="gone")
        return
    await tx.put(SECOND, Second(entry.record.id, entry.record.title))


async def count(tx: Transaction, entry: Any) -> None:
    await tx.put(THIRD, Third(entry.record.id, entry.record.name, len(entry.record.name)))


async def check(tx: Transaction, entry: Any) -> None:
    assert entry.record.letters == len(entry.record.name)
    entry.record.name = entry.record.name.upper()
    await tx.put(THIRD, entry.record)


async def fail(tx: Transaction, entry: Any) -> None:
    if entry.record.id == "100":
        raise ValueError("the step is wrong")


def _schema(*steps: Any) -> Schema:
    overs: tuple[Any, ...] = (FIRST, SECOND, THIRD, THIRD)
    migrations = [
        Migration(at + 1, step.__name__, over, step)
        for at, (over, step) in enumerate(zip(overs, steps, strict=False))
    ]
    return Schema("songs", THIRD, space=SPACE, migrations=tuple(migrations))


async def _fill(harness: Harness) -> None:
    store = Store(BEFORE, harness.engine, "radio")
    songs = [First(f"{at:03d}", f"Song {at}") for at in range(SONGS)]
    await store.put_many(FIRST, [*songs, First("gone", "Gone")])


@everywhere
async def test_each_of_several_pending_migrations_is_tried_on_what_is_left_by_the_others(
    harness: Harness,
) -> None:
    await _fill(harness)
    before = await harness.rows()
    store = Store(_schema(rename, count, check), harness.engine, "radio")
    tried = await migrate(store, dry_run=True)
    assert [(each.migration.id, each.records) for each in tried] == [
        (1, SONGS + 1),
        (2, SONGS + 1),
        (3, SONGS + 1),
    ]
    assert all(each.rows >= SONGS for each in tried)
    assert await harness.rows() == before and await version(store) == 0
    await migrate(store)
    found = await store.get(THIRD, id="007")
    assert found == Third("007", "SONG 7", 6)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_dry_run_fails_as_the_run_does_at_whichever_migration(at: int) -> None:
    """The failure of the second was hidden: it was not tried."""
    steps = [rename, count, check, check]
    steps[at] = fail

    async def story(harness: Harness) -> None:
        await _fill(harness)
        before = await harness.rows()
        store = Store(_schema(*steps), harness.engine, "radio")
        with pytest.raises(ValueError, match="the step is wrong") as tried:
            await migrate(store, dry_run=True)
        assert await harness.rows() == before
        with pytest.raises(ValueError, match="the step is wrong") as run:
            await migrate(store)
        assert tried.value.__notes__ == run.value.__notes__ == ["at the record song:100"]
        assert await version(store) == at

    asyncio.run(played(story, "memory", Path()))
