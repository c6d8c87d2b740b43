"""A derived row that is new on old data is noticed when the store is opened."""

import pytest
from msgspec import Struct

from keyhouse import Index, Meta, Record, Schema, Space, Unique, open_store, reindex
from keyhouse.errors import UnbuiltIndexError
from keyhouse.store import Store
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
