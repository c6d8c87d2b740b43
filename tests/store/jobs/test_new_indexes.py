"""A derived row that is new on old data is noticed when the store is opened."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from msgspec import Struct

from keyhouse import (
    Index,
    Meta,
    Migration,
    Record,
    RecordCount,
    Schema,
    Space,
    Unique,
    open_store,
    reindex,
)
from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import ContentionError, UnbuiltIndexError
from keyhouse.store import (
    Entry,
    Store,
    Transaction,
    build_indexes,
    migrate,
    missing_indexes,
    unbuilt_indexes,
)
from keyhouse.store.jobs.index_state import derived_digest
from keyhouse.store.jobs.recount import rebuild_counts
from tests.store.support.harness import Harness, clean, everywhere


class Recipe(Struct, kw_only=True):
    id: str
    title: str = ""
    minutes: int = 0


BY_TITLE = Index("title:{title}:{id}")
BY_MINUTES = Index("minutes:{minutes:04d}:{id}")
BARE = Record(Recipe, "recipe:{id}")
OLD = Record(Recipe, "recipe:{id}", BY_TITLE)
NEW = Record(Recipe, "recipe:{id}", Index("title:{title}:{id}"), BY_MINUTES)


def schema(*records: Record[Recipe], **options: object) -> Schema:
    return Schema("box", *records, meta=Meta(), space=Space("a kitchen"), **options)  # type: ignore[arg-type]


def recipe(id: int) -> Recipe:
    return Recipe(id=f"{id:04}", title=f"t{id}", minutes=id)


async def filled(harness: Harness, record: Record[Recipe], count: int = 100) -> Schema:
    declared = schema(record)
    async with open_store(declared, harness.engine, "mine") as store:
        for start in range(0, count, 50):
            await store.put_many(record, [recipe(id) for id in range(start, start + 50)])
    return declared


async def listed(store: Store, by: Index) -> int:
    return len([entry async for entry in store.scan(NEW, by=by)])


@everywhere
async def test_a_new_index_on_old_data_is_named_with_its_fix(harness: Harness) -> None:
    """`scan(by=…)` returned nothing, without an error."""
    declared = await filled(harness, OLD)
    async with open_store(declared, harness.engine, "mine"):
        pass
    with pytest.raises(UnbuiltIndexError, match="reindex=True") as raised:
        await open_store(schema(NEW), harness.engine, "mine")
    assert raised.value.fields["row"] == "minutes:{minutes:04d}:{id}"
    async with open_store(schema(NEW), harness.engine, "mine", reindex=True) as store:
        assert await listed(store, BY_MINUTES) == 100
        await clean(store)
    async with open_store(schema(NEW), harness.engine, "mine") as store:
        await store.put(NEW, recipe(500))
        assert await listed(store, BY_MINUTES) == 101


@everywhere
async def test_a_first_index_on_old_data_is_noticed(harness: Harness) -> None:
    await filled(harness, BARE)
    with pytest.raises(UnbuiltIndexError):
        await open_store(schema(NEW), harness.engine, "mine")


@everywhere
async def test_a_migration_that_builds_the_index_is_enough(harness: Harness) -> None:
    await filled(harness, OLD)
    migrated = schema(NEW, migrations=(reindex(1, "by minutes", NEW),))
    async with open_store(migrated, harness.engine, "mine") as store:
        assert await listed(store, BY_MINUTES) == 100
    async with open_store(migrated, harness.engine, "mine"):
        pass


@everywhere
async def test_a_migration_before_the_store_is_opened_is_enough(harness: Harness) -> None:
    """`keyhouse migrate` had built the index, and `open_store` still rejected the space."""
    await filled(harness, OLD)
    migrated = schema(COUNTED_NEW, migrations=(reindex(1, "by minutes", COUNTED_NEW),))
    assert await unbuilt_indexes(Store(migrated, harness.engine, "mine"))
    await migrate(Store(migrated, harness.engine, "mine"))
    assert await unbuilt_indexes(Store(migrated, harness.engine, "mine")) == []
    async with open_store(migrated, harness.engine, "mine") as store:
        assert await store.record_count(PER_MINUTES, minutes=3) == 1
        await clean(store)


@everywhere
async def test_a_migration_that_builds_no_index_leaves_it_unbuilt(harness: Harness) -> None:
    await filled(harness, OLD)

    async def step(tx: Transaction, entry: Entry[Recipe]) -> None:
        pass

    migrated = schema(NEW, migrations=(Migration(1, "nothing", NEW, step),))
    await migrate(Store(migrated, harness.engine, "mine"))
    assert await unbuilt_indexes(Store(migrated, harness.engine, "mine")) == [(NEW, BY_MINUTES)]
    with pytest.raises(UnbuiltIndexError):
        await open_store(migrated, harness.engine, "mine")


@everywhere
async def test_complete_data_of_an_older_release_is_accepted(harness: Harness) -> None:
    """Stores from before the list was kept have all rows, and no list."""
    store = harness.store(schema(OLD), "mine")
    for id in range(80):
        await store.put(OLD, recipe(id))
    async with open_store(schema(OLD), harness.engine, "mine"):
        pass
    with pytest.raises(UnbuiltIndexError):
        await open_store(schema(NEW), harness.engine, "mine")


@everywhere
async def test_an_empty_space_needs_nothing(harness: Harness) -> None:
    async with open_store(schema(OLD), harness.engine, "mine"):
        pass
    async with open_store(schema(NEW), harness.engine, "mine") as store:
        await store.put(NEW, recipe(1))
    async with open_store(schema(NEW), harness.engine, "mine") as store:
        assert await listed(store, BY_MINUTES) == 1


@everywhere
async def test_a_schema_without_meta_rows_is_opened_as_before(harness: Harness) -> None:
    bare = Schema("box", BARE, space=Space("a kitchen"))
    async with open_store(bare, harness.engine, "mine") as store:
        await store.put(BARE, recipe(1))
    one = Record(Recipe, "recipe:{id}", Unique("title:{title}", value="id"))
    async with open_store(Schema("box", one, space=Space("a kitchen")), harness.engine, "mine"):
        pass


PER_MINUTES = RecordCount("per:{minutes:04d}")
COUNTED = Record(Recipe, "recipe:{id}", Index("title:{title}:{id}"), PER_MINUTES)
COUNTED_NEW = Record(
    Recipe,
    "recipe:{id}",
    Index("title:{title}:{id}"),
    Index("minutes:{minutes:04d}:{id}"),
    PER_MINUTES,
)


@everywhere
async def test_a_new_record_count_on_old_data_is_named_and_built(harness: Harness) -> None:
    """A new count started at 0, and only `verify` noticed."""
    await filled(harness, OLD)
    with pytest.raises(UnbuiltIndexError) as raised:
        await open_store(schema(COUNTED), harness.engine, "mine")
    assert raised.value.fields["row"] == "per:{minutes:04d}"
    async with open_store(schema(COUNTED), harness.engine, "mine", reindex=True) as store:
        assert [await store.record_count(PER_MINUTES, minutes=n) for n in (3, 99, 100)] == [1, 1, 0]
        await clean(store)
    async with open_store(schema(COUNTED), harness.engine, "mine") as store:
        await store.put(COUNTED, Recipe(id="x", minutes=3, title="t"))
        assert await store.record_count(PER_MINUTES, minutes=3) == 2


@everywhere
async def test_a_record_count_that_was_built_is_no_longer_missing(harness: Harness) -> None:
    await filled(harness, OLD)
    store = Store(schema(COUNTED), harness.engine, "mine")
    assert [derived for _, derived in await missing_indexes(store)] == [PER_MINUTES]
    assert [visited for _, _, visited in await build_indexes(store)] == [100]
    assert await missing_indexes(store) == []


@everywhere
async def test_a_space_whose_list_is_older_than_counts_is_opened(harness: Harness) -> None:
    declared = await filled(harness, COUNTED)
    async with open_store(declared, harness.engine, "mine") as store:
        job = store.schema.meta.job  # type: ignore[union-attr]
        state = await store.get(job, name="indexes")
        assert state is not None
        older = derived_digest(store.schema.record("recipe"), COUNTED.derived[0])
        await store.put(job, msgspec.structs.replace(state, cursor=older), name="indexes")
    async with open_store(declared, harness.engine, "mine") as store:
        assert await missing_indexes(store) == []


@everywhere
async def test_counts_are_exact_while_others_write(harness: Harness) -> None:
    await filled(harness, OLD)
    store = Store(schema(COUNTED), harness.engine, "mine")

    async def write(worker: int) -> None:
        for n in range(40):
            id = (worker * 40 + n) % 100
            await store.put(COUNTED, Recipe(id=f"{id:04}", title="t", minutes=n % 3))
            if n % 5 == 0:
                await store.delete(COUNTED, id=f"{(id + 1) % 100:04}")

    async def build() -> None:
        await rebuild_counts(store, COUNTED, PER_MINUTES)

    with suppress(ContentionError):
        await asyncio.gather(*(write(worker) for worker in range(4)), build())
    await rebuild_counts(store, COUNTED, PER_MINUTES)
    await clean(store)


@pytest.mark.parametrize("way", ["open", "migrate"])
def test_an_index_that_is_declared_again_is_not_taken_to_be_complete(
    way: str,
) -> None:
    """While it was not declared, records were written without it, or a migration removed its
    rows: the index was then silently short of them."""

    class Song(msgspec.Struct):
        id: str
        tag: str

    bare = Record(Song, "song:{id}", name="song")
    by_tag = Index("tag:{tag}:{id}")
    indexed = Record(Song, "song:{id}", by_tag, name="song")

    async def step(tx: Transaction, entry: Entry[Song]) -> None:
        await tx.put(bare, entry.record)

    def schema(record: Record[Song], *migrations: Migration) -> Schema:
        return Schema("songs", record, space=Space("x"), meta=Meta(), migrations=migrations)

    async def story() -> None:
        engine = MemoryEngine(ManualClock())
        store = await open_store(schema(indexed), engine, "space")
        await store.put(indexed, Song("1", "a"))
        done = (Migration(1, "No tags", indexed, step),) if way == "migrate" else ()
        store = await open_store(schema(bare, *done), engine, "space")
        await store.put(bare, Song("2", "b"))
        with pytest.raises(UnbuiltIndexError):
            await open_store(schema(indexed, *done), engine, "space")
        store = await open_store(schema(indexed, *done), engine, "space", reindex=True)
        assert [each.record.id async for each in store.scan(indexed, by=by_tag)] == [
            "1",
            "2",
        ]

    asyncio.run(story())
