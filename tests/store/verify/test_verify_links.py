"""`verify` finds records without their owner, dangling references and unfinished deletions."""

import pytest

from keyhouse import open_store
from keyhouse.engine import Span
from keyhouse.errors import LinkError
from keyhouse.store import BulkDelete, Store
from keyhouse.testing.faults import FaultyEngine, Killed, fail
from tests.store.support.harness import SPACE, Harness, clean, everywhere, findings
from tests.store.support.linked_schema import (
    AUTHOR,
    BOOK,
    PERSON,
    SCHEMA,
    Author,
    Book,
    fill,
    fill_list,
)


@everywhere
async def test_an_orphan_is_found_and_repair_deletes_it_with_all_it_owns(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill(store, "bo", lists=1)
    before = await harness.rows()
    await fill(store, "ada", lists=1, size=1)
    await harness.plant({"person:ada": None, "name:name of ada": None})
    found = await findings(store)
    assert {(each.kind, each.key) for each in found} == {
        ("orphan", "list:ada-0"),
        ("orphan", "login:ada-l"),
    }
    assert found[0].detail == "belongs to person:ada, which does not exist"
    repaired = await findings(store, repair=True)
    assert [each.repaired for each in repaired] == [True, True]
    assert await harness.rows() == before
    await clean(store)


@everywhere
async def test_rows_of_an_absent_owner_are_orphans_whatever_they_are(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None, size=1)
    await harness.plant({"list:l": None, "all-lists": None})
    kinds = {(each.kind, each.of) for each in await findings(store)}
    assert kinds == {("orphan", name) for name in ("entry", "mark", "views", "seen", "seen_state")}
    await findings(store, repair=True)
    assert set(await harness.rows()) <= {"tags:x"}
    await clean(store)


@everywhere
async def test_a_reference_that_leads_nowhere_is_reported_and_left(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await store.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="1", author="a"))
    await harness.plant({"author:a": None})
    [found] = await findings(store, repair=True)
    assert (found.kind, found.key, found.repaired) == ("unresolved", "book:1", False)
    assert found.detail == "refers to author:a, which does not exist"
    assert await store.get(BOOK, id="1") == Book(id="1", author="a")


async def interrupted(harness: Harness) -> Store:
    store = harness.store(SCHEMA)
    await fill(store, lists=2, size=9)
    engine = FaultyEngine(harness.engine, fail(4, Killed), rows=12)
    with pytest.raises(Killed):
        await harness.store(SCHEMA, engine=engine).delete(PERSON, id="ada")
    return store


@everywhere
async def test_an_interrupted_deletion_is_one_finding_and_repair_finishes_it(
    harness: Harness,
) -> None:
    store = await interrupted(harness)
    await clean(store)  # it may still run: its lease is live
    harness.clock.advance(seconds=60)
    [found] = await findings(store)
    assert (found.kind, found.of) == ("unfinished", "job")
    assert found.detail == "the deletion of person:ada was interrupted"
    [repaired] = await findings(store, repair=True)
    assert repaired.repaired
    assert set(await harness.rows()) <= {"tags:x"}
    await clean(store)


@everywhere
async def test_a_store_that_is_opened_finishes_deletions(harness: Harness) -> None:
    await interrupted(harness)
    harness.clock.advance(seconds=60)
    await open_store(SCHEMA, harness.engine, SPACE)
    assert set(await harness.rows()) <= {"tags:x", "meta:job:indexes"}


@everywhere
async def test_a_bulk_delete_respects_links_and_emptying_a_space_need_not(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill(store, lists=2, size=9)
    await store.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="1", author="a"))
    engine = FaultyEngine(harness.engine, rows=12)
    bulk = BulkDelete(SCHEMA, engine, SPACE)
    with pytest.raises(LinkError):
        await bulk.run(Span.prefix("author:"))
    assert (await bulk.run(Span.prefix("person:"))).records == 1
    assert not [key for key in await harness.rows() if key.startswith(("list:", "entry:"))]
    await clean(store)
    await fill(store, lists=1)
    await bulk.empty()
    assert await harness.rows() == {}


@everywhere
async def test_links_are_checked_before_a_commit_and_nothing_is_written(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await store.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="1", author="a"))
    before = await harness.rows()
    async with store.transaction() as tx:
        await tx.put(BOOK, Book(id="2", author="nobody"))
        with pytest.raises(LinkError, match="refers to does not exist"):
            await tx.check_links()
        tx.discard()
    async with store.transaction() as tx:
        await tx.delete(AUTHOR, id="a")
        with pytest.raises(LinkError, match="still referred to"):
            await tx.check_links()
        tx.discard()
    async with store.transaction() as tx:
        await tx.put(BOOK, Book(id="2", author="a"))
        await tx.check_links()
        assert "author:a" in [check.key for check in tx.rows.batch().checks]
        tx.discard()
    assert await harness.rows() == before
