"""Migrations and new indexes of a served schema: done at start, and never half."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse import Index, Migration, Record, Schema, Space, Store, Unique
from keyhouse.clock import ManualClock
from keyhouse.errors import LeaseError, PreparingError
from keyhouse.service.schema_service.preparation import Preparation, SpaceState
from keyhouse.service.schema_service.system import with_meta
from keyhouse.store import build_indexes, missing_indexes, note_new_space, verify, version
from tests.service.schema_service.support.recipes import Recipe
from tests.service.schema_service.support.served import serving
from tests.store.support.harness import Harness, everywhere, played
from tests.support.engine_openers import sqlite
from tests.support.polling import wait_until
from tests.support.program import run

BY_MINUTES = Index("idx:recipe:minutes:{minutes:05d}:{id}")
BY_SLUG = Unique("idx:recipe:slug:{slug}", value="id")
OLD = Record(Recipe, "recipe:{id}", BY_SLUG)
NEW = Record(Recipe, "recipe:{id}", Unique("idx:recipe:slug:{slug}", value="id"), BY_MINUTES)
SPACE = Space("a person")
BEFORE = with_meta(Schema("recipes", OLD, space=SPACE))
AFTER = with_meta(Schema("recipes", NEW, space=SPACE))


async def fill(store: Store, record: Record[Recipe], count: int = 250) -> None:
    recipes = [Recipe(f"r{number:04d}", "t", f"s{number}", number) for number in range(count)]
    await store.put_many(record, recipes)


async def ids_by_minutes(store: Store) -> list[str]:
    return [entry.record.id async for entry in store.scan(NEW, by=BY_MINUTES)]


@everywhere
async def test_an_index_that_old_records_lack_is_noticed_and_built(harness: Harness) -> None:
    before = Store(BEFORE, harness.engine, "ann")
    await note_new_space(before)
    await fill(before, OLD)
    store = Store(AFTER, harness.engine, "ann")
    state = SpaceState(store, Preparation(AFTER, harness.engine, lambda space: store))
    assert [derived for _, derived in await missing_indexes(store)] == [BY_MINUTES]
    with pytest.raises(PreparingError) as refused:
        await state.check_index(NEW, BY_MINUTES)
    assert refused.value.fields["records_done"] == 0
    with pytest.raises(PreparingError):
        await state.check_complete()
    await state.check_index(NEW, NEW.derived[0])  # the old index is still complete
    seen: list[int] = []
    await build_indexes(store, on_progress=lambda record, derived, done: seen.append(done))
    assert seen[-1] == 250
    assert len(await ids_by_minutes(store)) == 250
    await state.check_index(NEW, BY_MINUTES)
    await state.check_complete()
    assert state.is_complete
    assert [finding async for finding in verify(store)] == []


@everywhere
async def test_a_space_from_before_the_list_is_checked_and_a_new_one_is_not(
    harness: Harness,
) -> None:
    old = Store(Schema("recipes", OLD, space=SPACE), harness.engine, "ann")
    await fill(old, OLD, 3)
    assert len(await missing_indexes(Store(AFTER, harness.engine, "ann"))) == 2
    new = Store(AFTER, harness.engine, "bob")
    assert await missing_indexes(new) == []
    await note_new_space(new)
    await fill(new, NEW, 3)
    assert await missing_indexes(new) == []


@everywhere
async def test_an_index_that_was_removed_and_returns_is_built_again(harness: Harness) -> None:
    store = Store(AFTER, harness.engine, "ann")
    await note_new_space(store)
    await fill(store, NEW, 3)
    without = Store(BEFORE, harness.engine, "ann")
    await build_indexes(without)
    await without.put(OLD, Recipe("late", "t", "late", 9))
    assert await missing_indexes(store) == [(NEW, BY_MINUTES)]
    await build_indexes(store)
    assert await ids_by_minutes(store) == ["r0000", "r0001", "r0002", "late"]


@everywhere
async def test_one_runner_builds_at_a_time(harness: Harness) -> None:
    await fill(Store(Schema("recipes", OLD, space=SPACE), harness.engine, "ann"), OLD, 150)
    store = Store(AFTER, harness.engine, "ann")

    async def both() -> Any:
        runs = [build_indexes(Store(AFTER, harness.engine, "ann")) for _ in range(2)]
        return await asyncio.gather(*runs, return_exceptions=True)

    results = await both()
    assert all(isinstance(result, (list, LeaseError)) for result in results)
    preparation = Preparation(AFTER, harness.engine, lambda space: store)
    await preparation.prepare_all()
    assert len(await ids_by_minutes(store)) == 150


def test_a_service_builds_a_new_index_at_start(tmp_path: Path) -> None:
    async def before() -> None:
        engine = await sqlite(tmp_path)(ManualClock())
        for space in ("ann", "bob"):
            await fill(Store(Schema("recipes", OLD, space=SPACE), engine, space), OLD)
        await engine.close()

    asyncio.run(before())
    with serving(sqlite(tmp_path), tmp_path, Schema("recipes", NEW, space=SPACE)) as served:
        box = served.client("bob")

        def prepared() -> httpx.Response | None:
            listed = box.get("/records/recipe?by=minutes&limit=500")
            if listed.status_code != 503:
                return listed
            assert listed.json()["code"] == "PREPARING"
            assert listed.json()["fields"]["records_done"] >= 0
            return None

        assert len(wait_until(prepared).json()["items"]) == 250
        fresh = served.client("new")
        value = {"title": "t", "slug": "a", "minutes": 1}
        assert fresh.put("/records/recipe/a", json=value).status_code == 201
        assert len(fresh.get("/records/recipe?by=minutes").json()["items"]) == 1


def test_a_service_migrates_old_spaces_at_start_and_new_ones_at_once(tmp_path: Path) -> None:
    async def step(tx: Any, entry: Any) -> None:
        entry.record.minutes += 1
        await tx.put(NEW, entry.record)

    migrated = Schema(
        "recipes", NEW, space=SPACE, migrations=(Migration(1, "one more minute", NEW, step),)
    )

    async def before() -> None:
        engine = await sqlite(tmp_path)(ManualClock())
        await fill(Store(Schema("recipes", NEW, space=SPACE), engine, "ann"), NEW, 3)
        await engine.close()

    asyncio.run(before())
    with serving(sqlite(tmp_path), tmp_path, migrated) as served:
        ann, new = served.client("ann"), served.client("new")
        value = {"title": "t", "slug": "late", "minutes": 7}
        while (put := ann.put("/records/recipe/late", json=value)).status_code == 503:
            assert put.json()["fields"]["newest"] == 1
        assert put.status_code == 201
        assert ann.get("/records/recipe/r0002").json()["value"]["minutes"] == 3
        assert new.put("/records/recipe/late", json=value).status_code == 201

    async def versions() -> list[int]:
        engine = await sqlite(tmp_path)(ManualClock())
        found = [await version(Store(migrated, engine, space)) for space in ("ann", "new")]
        await engine.close()
        return found

    assert asyncio.run(versions()) == [1, 1]


def test_reindex_is_a_command(tmp_path: Path) -> None:
    module = (
        "import msgspec\nfrom keyhouse import Index, Record, Schema, Space\n"
        "class Note(msgspec.Struct):\n    id: str\n    day: str\n"
        "NOTE = Record(Note, 'note:{id}'%s)\nNOTES = Schema('notes', NOTE, space=Space('a user'))\n"
    )
    (tmp_path / "old.py").write_text(module % "")
    (tmp_path / "new.py").write_text(module % ", Index('day:{day}:{id}')")
    where = ("--store", "sqlite:notes.db")
    run("put", "old:NOTES", "note:a", '{"day": "mon"}', *where, "--space", "ann", cwd=tmp_path)
    done = run("migrate", "new:NOTES", "--reindex", "--json", *where, cwd=tmp_path).stdout
    assert '"index":"day:{day}:{id}"' in done.replace(" ", "")
    listed = run("list", "new:NOTES", *where, "--space", "ann", cwd=tmp_path).stdout
    assert "day:mon:a" in listed


def test_a_space_that_a_plain_store_started_is_prepared_when_a_request_meets_it(
    tmp_path: Path,
) -> None:
    """Its lookups were 503 until the service was started again: only spaces that had rows at start
    were prepared."""
    with serving(sqlite(tmp_path), tmp_path, Schema("recipes", NEW, space=SPACE)) as served:
        served.on_engine(lambda engine: fill(Store(AFTER, engine, "late"), NEW, 3))
        box = served.client("late")
        wait_until(lambda: box.get("/records/recipe?by=minutes").status_code != 503)
        assert len(box.get("/records/recipe?by=minutes").json()["items"]) == 3
        assert box.get("/lookup/recipe?by=slug&slug=s1").json()["value"]["id"] == "r0001"


def test_lists_wait_for_a_migration_that_changes_the_shape_of_records() -> None:
    """They were empty: rows of the older type do not decode, and a list leaves them out."""

    async def story(harness: Harness) -> None:
        older = Record(Recipe, "recipe:{id}", name="recipe")
        await fill(
            Store(with_meta(Schema("recipes", older, space=SPACE)), harness.engine, "a"), older
        )

        async def step(tx: Any, entry: Any) -> None:
            await tx.put(NEW, entry.record)

        schema = Schema("recipes", NEW, space=SPACE, migrations=(Migration(1, "…", older, step),))
        store = Store(schema, harness.engine, "a")
        preparation = Preparation(schema, harness.engine, lambda space: store)
        state = SpaceState(store, preparation)
        with pytest.raises(PreparingError, match="being migrated"):
            await state.check_read()
        await preparation.prepare_all()
        await state.check_read()
        assert state.is_readable and len(await ids_by_minutes(store)) == 250

    asyncio.run(played(story, "memory", Path()))
