"""A schema under a prefix: every key begins with it, and nothing else changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import (
    DeclarationError,
    KeyFieldError,
    LeaseError,
    UnavailableError,
    UsageError,
)
from keyhouse.keys import NATS, Template
from keyhouse.schema import Record, Schema, Space
from keyhouse.schema.description import describe
from keyhouse.schema.explanation import Explanation, explain
from keyhouse.store import BulkDelete, Store, convert_prefix, migrate, run_job, version
from keyhouse.store.jobs.prefix_conversion import CONVERSION_KEY
from keyhouse.testing.faults import FaultyEngine, Killed, die, fail, meanwhile
from keyhouse_audiobooks.schema import SCHEMAS as AUDIOBOOKS
from tests.store.support.harness import SPACE, Harness, clean, everywhere, played, sound
from tests.store.support.library_schema import BOOK, LIBRARY
from tests.store.support.linked_schema import LIST, SCHEMA, fill

PREFIX = "tenant:{tenant}:"
TENANT = f"tenant:{SPACE}:"
LINKED = SCHEMA.under(PREFIX)


@everywhere
async def test_every_key_begins_with_the_prefix_and_the_rows_are_the_same(harness: Harness) -> None:
    await fill(harness.store(SCHEMA, space="plain"))
    await fill(harness.store(LINKED))
    plain, under = await harness.rows("plain"), await harness.rows()
    seen = {key for key in plain if not key.startswith("seen")}
    assert {key.removeprefix(TENANT) for key in under if "seen" not in key} == seen
    assert all(key.startswith(TENANT) for key in under)
    store = harness.store(LINKED)
    await clean(store)
    assert await store.count(LIST) == 2
    assert [entry.key async for entry in store.scan(LIST)] == [
        f"{TENANT}list:ada-{n}" for n in (0, 1)
    ]
    found = store.find(f"{TENANT}list:ada-0")
    assert found is not None and found.fields == {"id": "ada-0"}
    assert await store.delete(LIST, id="ada-0")
    await clean(store)
    assert (await BulkDelete(LINKED, harness.engine, SPACE).empty()).records > 0
    assert await harness.rows() == {}


@everywhere
async def test_a_library_with_every_kind_of_row_works_under_a_prefix(harness: Harness) -> None:
    await sound(harness)
    converted = await convert_prefix(harness.engine, SPACE, LIBRARY, LIBRARY.under(PREFIX))
    rows = await harness.rows()
    assert converted.moved == len(rows) and converted.conflicts == []
    assert all(key.startswith(TENANT) for key in rows)
    store = harness.store(LIBRARY.under(PREFIX))
    await clean(store)
    await migrate(store)
    assert await version(store) == LIBRARY.version
    assert [key for key in await harness.rows() if not key.startswith(TENANT)] == []
    again = await convert_prefix(harness.engine, SPACE, LIBRARY, LIBRARY.under(PREFIX))
    assert again.moved == 0
    await convert_prefix(harness.engine, SPACE, LIBRARY.under(PREFIX), LIBRARY)
    await clean(harness.store())


def lasting(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows that a lease of another runner does not outlive."""
    return {key: row for key, row in rows.items() if "login" not in key}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_conversion_killed_at_every_step_is_continued(after: bool) -> None:
    async def story(harness: Harness) -> None:
        for at in range(1, 200):
            space = f"space-{at}"
            await fill(harness.store(SCHEMA, space), lists=3, size=4)
            before = lasting(await harness.rows(space))
            engine = FaultyEngine(harness.engine, die(at, after=after), rows=20)
            try:
                await convert_prefix(engine, space, SCHEMA, LINKED)
                assert at > 15
                return
            except Killed:
                pass
            if CONVERSION_KEY in await harness.rows(space):
                with pytest.raises(LeaseError):
                    await convert_prefix(harness.engine, space, SCHEMA, LINKED)
                harness.clock.advance(seconds=61)
            await convert_prefix(harness.engine, space, SCHEMA, LINKED)
            after_all = lasting(await harness.rows(space))
            assert after_all == {f"tenant:{space}:{key}": row for key, row in before.items()}
            await clean(harness.store(LINKED, space))

    asyncio.run(played(story, "memory", Path()))


def test_a_conversion_that_fails_can_be_repeated_at_once() -> None:
    async def story(harness: Harness) -> None:
        await fill(harness.store(SCHEMA), lists=3, size=4)
        engine = FaultyEngine(harness.engine, fail(3, UnavailableError), rows=20)
        with pytest.raises(UnavailableError):
            await convert_prefix(engine, SPACE, SCHEMA, LINKED)
        await convert_prefix(harness.engine, SPACE, SCHEMA, LINKED)
        await clean(harness.store(LINKED))

    asyncio.run(played(story, "memory", Path()))


def test_of_two_runners_of_a_conversion_one_moves_the_rows() -> None:
    async def story(harness: Harness) -> None:
        await fill(harness.store(SCHEMA), lists=3, size=4)
        rows = len(lasting(await harness.rows()))
        moved: list[int] = []

        async def take_over() -> None:
            harness.clock.advance(seconds=61)
            other = await convert_prefix(harness.engine, SPACE, SCHEMA, LINKED)
            moved.append(other.moved)

        stalled = FaultyEngine(harness.engine, meanwhile(3, take_over, call="commit"), rows=20)
        with pytest.raises(LeaseError):
            await convert_prefix(stalled, SPACE, SCHEMA, LINKED)
        assert 0 < moved[0] < rows
        assert len(lasting(await harness.rows())) == rows
        await clean(harness.store(LINKED))

    asyncio.run(played(story, "memory", Path()))


@everywhere
async def test_a_conversion_leaves_rows_whose_new_key_has_another_value(harness: Harness) -> None:
    await fill(harness.store(SCHEMA), lists=1, size=1)
    await harness.plant({f"{TENANT}list:ada-0": b"{}"})
    result = await convert_prefix(harness.engine, SPACE, SCHEMA, LINKED)
    assert result.conflicts == ["list:ada-0"]
    assert (await harness.rows())[f"{TENANT}list:ada-0"][0] == b"{}"
    with pytest.raises(UsageError, match="two prefixes of one schema"):
        await convert_prefix(harness.engine, SPACE, LIBRARY, LINKED)


@everywhere
async def test_jobs_and_migrations_run_under_a_prefix(harness: Harness) -> None:
    store = harness.store(LINKED)
    await fill(store)
    seen = []

    async def step(tx: object, entry: object) -> None:
        seen.append(entry)

    await run_job(store, "look", LIST, step)
    assert len(seen) == 2
    assert f"{TENANT}meta:job:look" in await harness.rows()


def test_explain_and_describe_show_the_prefix() -> None:
    schema = LIBRARY.under(PREFIX)
    found = explain(schema, TENANT + BOOK.template.build({"id": "1"}))
    assert isinstance(found, Explanation) and found.template == f"{PREFIX}{BOOK.template.text}"
    assert {record.key for record in describe(schema).records} == {
        PREFIX + record.key for record in describe(LIBRARY).records
    }
    assert "`{tenant}`" in describe(schema).space


def test_a_prefix_that_cannot_work_is_rejected() -> None:
    for prefix in ("tenant:{tenant}", "{a}:{b}:", "{tenant", "x:{id}:"):
        with pytest.raises(DeclarationError):
            LIBRARY.under(prefix)
    with pytest.raises(DeclarationError, match="already"):
        LIBRARY.under(PREFIX).under(PREFIX)
    assert LIBRARY.under(PREFIX) is LIBRARY.under(PREFIX)
    with pytest.raises(KeyFieldError):
        Store(LIBRARY.under("t:{tenant:ulid}:"), MemoryEngine(), "not a ulid")


def test_a_space_name_cannot_leave_its_prefix() -> None:
    schema = Schema("one", Record(str, "{key}", name="row"), space=Space("a test"))
    keys = {
        Store(schema.under(PREFIX), MemoryEngine(), space)
        .binding.record(schema.records[0])
        .template.build({"key": key})
        for space, key in (("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"))
    }
    assert len(keys) == 3
    nats = Schema(
        "nats", Record(str, Template("k/{key}", escape=NATS), name="row"), space=Space("a test")
    )
    bound = Store(nats.under("t/{tenant}/"), MemoryEngine(), "a b").binding.record(nats.records[0])
    assert bound.template.build({"key": "x"}) == "t/a=20b/k/x"


def test_the_audiobooks_schema_works_under_a_prefix() -> None:
    assert AUDIOBOOKS[0].under(PREFIX).prefix == PREFIX
