"""Records that live at two keys while their keys migrate: found at either, written at one, listed
once."""

import asyncio
import random
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DeclarationError, KeyFieldError, RevisionError, UniqueError
from keyhouse.keys import Template
from keyhouse.schema import (
    Index,
    Log,
    Meta,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
    sliding,
)
from keyhouse.schema.description import describe
from keyhouse.schema.explanation import explain
from keyhouse.store import Entry, Store, Transaction, run_job
from keyhouse.store.reads import usage
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.harness import (
    Harness,
    all_of,
    clean,
    everywhere,
    findings,
    soon,
)
from tests.support.engine_openers import OPENERS


class Note(msgspec.Struct, kw_only=True):
    id: str
    title: str
    tags: list[str] = []


BY_TAG = Index("tag:{tag}:{id}", each={"tag": "tags"})
BY_TITLE = Unique("title:{title}", value="id")
TITLES = Summary("all", member="id", under="ids")
TAGGED = RecordCount("count:{tag}", each={"tag": "tags"})
NOTE = Record(
    Note,
    "v2_note_{id}",
    BY_TAG,
    BY_TITLE,
    TITLES,
    TAGGED,
    legacy_at="note_{id}",
)
SEEN = Record(
    int,
    "team_{team}_v2_seen_{id}",
    name="seen",
    expiry=sliding(60),
    legacy_at="team_{team}_seen_{id}",
)
NOTES = Schema(
    "notes", NOTE, SEEN, space=Space("a team", field="team"), meta=Meta(), doc="Notes of a team."
)
SPACE = "space"
OLD, NEW = "note_", "v2_note_"


def note(id: str = "a", **fields: Any) -> Note:
    return Note(**{"id": id, "title": f"title {id}", **fields})


def stores(harness: Harness, engine: Engine | None = None) -> tuple[Store, Store]:
    """A store that still writes legacy keys, and one that writes current keys."""
    engine = engine or harness.engine
    return Store(NOTES.writing_legacy_keys(), engine, SPACE), Store(NOTES, engine, SPACE)


async def notes(harness: Harness) -> list[str]:
    return [key for key in await harness.rows() if "note_" in key]


@everywhere
async def test_a_record_at_its_legacy_key_is_found_by_every_read(harness: Harness) -> None:
    old, new = stores(harness)
    written = await old.put(NOTE, note(tags=["x"]))
    assert written.key == f"{OLD}a"
    for store in (old, new):
        assert await store.get(NOTE, id="a") == written.record
        assert await store.get_many(NOTE, [{"id": "b"}, {"id": "a"}]) == [None, written.record]
        assert await store.entry(NOTE, id="a") == written
        assert await store.lookup(NOTE, BY_TITLE, title="title a") == written
        assert (await store.page(NOTE)).entries == [written]
        assert (await store.page(NOTE, by=BY_TAG, tag="x")).entries == [written]
        assert await store.keys(NOTE) == ([f"{OLD}a"], None)
        assert await store.count(NOTE) == 1 and await store.count(NOTE, id="a") == 1
        row = await store.record_row(NOTE, id="a")
        assert row is not None and (row.key, row.revision) == (f"{OLD}a", written.revision)
        assert await store.record_row(NOTE, id="b") is None
        async with store.transaction() as tx:
            assert await tx.get(NOTE, id="a") == written.record
            assert await tx.get_each((NOTE, {"id": "b"}), (NOTE, {"id": "a"})) == [
                None,
                written.record,
            ]
            assert await tx.lookup(NOTE, BY_TITLE, title="title a") == written
        await clean(store)


@everywhere
async def test_get_each_finds_a_record_that_moves_to_its_current_key(harness: Harness) -> None:
    """It read the current key first and the legacy key later: the record was at neither."""
    old, new = stores(harness)
    for call in (1, 2, 3):
        moved = note(str(call))
        move = partial(new.put, NOTE, moved)
        await old.put(NOTE, moved)
        reader = Store(NOTES, harness.faulty(meanwhile(call, move, call="read", after=True)), SPACE)
        assert await reader.transact(partial(_each, moved.id)) == [moved]


async def _each(id: str, tx: Transaction) -> list[Any]:
    return await tx.get_each((NOTE, {"id": id}))


@everywhere
async def test_a_write_moves_the_record_in_one_commit(harness: Harness) -> None:
    old, new = stores(harness)
    first = await old.put(NOTE, note(tags=["x", "y"]))
    moved = await new.put(NOTE, note(tags=["y", "z"]), expect=first.revision)
    assert moved.key == f"{NEW}a" and await notes(harness) == [f"{NEW}a"]
    assert sorted(await harness.rows()) == [
        "all",
        "count:x",
        "count:y",
        "count:z",
        "tag:y:a",
        "tag:z:a",
        "title:title a",
        f"{NEW}a",
    ]
    for store in (old, new):
        assert await store.get(NOTE, id="a") == moved.record
        await clean(store)


@everywhere
async def test_a_store_of_legacy_keys_writes_where_the_record_is(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note("a"))
    await new.put(NOTE, note("b"))
    for id in ("a", "b", "c"):
        await old.put(NOTE, note(id, tags=["x"]))
    assert await notes(harness) == [f"{OLD}a", f"{OLD}c", f"{NEW}b"]
    await clean(new)


@everywhere
async def test_an_expected_revision_is_that_of_either_key(harness: Harness) -> None:
    old, new = stores(harness)
    first = await old.put(NOTE, note(), expect=None)
    with pytest.raises(RevisionError):
        await new.put(NOTE, note(), expect=None)
    with pytest.raises(RevisionError):
        await new.delete(NOTE, id="a", expect=first.revision + 1)
    second = await new.put(NOTE, note(title="b"), expect=first.revision)
    assert await old.delete(NOTE, id="a", expect=second.revision)


@everywhere
async def test_a_delete_removes_the_record_at_both_keys(harness: Harness) -> None:
    old, new = stores(harness)
    for at_both in (False, True):
        written = await old.put(NOTE, note(tags=["x"]))
        if at_both:
            await new.put(NOTE.current, written.record)
            assert len(await notes(harness)) == 2
        assert await new.delete(NOTE, id="a") and not await new.delete(NOTE, id="a")
        assert await notes(harness) == []
        await clean(new)


@everywhere
async def test_a_unique_row_is_held_by_a_record_at_its_legacy_key(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note("a", title="t"))
    with pytest.raises(UniqueError):
        await new.put(NOTE, note("b", title="t"))
    await new.put(NOTE, note("a", title="t"))
    assert await new.members(TITLES) == {"a": None}


@everywhere
async def test_one_transaction_moves_reads_and_deletes(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note())
    async with new.transaction() as tx:
        await tx.put(NOTE, note(title="b"))
        found = await tx.entry(NOTE, id="a")
        assert found is not None and found.key == f"{NEW}a" and found.record.title == "b"
        await tx.put(NOTE, note(title="c"))
        assert await tx.delete(NOTE, id="a") and await tx.get(NOTE, id="a") is None
        await tx.put(NOTE, note(title="d"))
    assert await notes(harness) == [f"{NEW}a"]
    await clean(new)


@everywhere
async def test_the_previous_expiry_and_the_restored_one_survive_a_move(harness: Harness) -> None:
    old, new = stores(harness)
    first = await old.put(SEEN, 1, id="a")
    assert first.key == f"team_{SPACE}_seen_a"
    await new.transact(lambda tx: tx.restore(SEEN, 1, expires=first.expires, id="a"))
    assert await harness.rows() == {f"team_{SPACE}_v2_seen_a": (b"1", first.expires)}
    harness.clock.advance(seconds=61)
    assert await new.get(SEEN, id="a") is None


@everywhere
async def test_scans_merge_both_keys_in_order_and_without_duplicates(harness: Harness) -> None:
    """For any mix of keys and any page size."""
    old, new = stores(harness)
    draw = random.Random(7)
    ids = [f"{number:02d}" for number in range(40)]
    for id in ids:
        place = draw.choice(["old", "new", "both"])
        if place != "new":
            await old.put(NOTE, note(id))
        if place == "new":
            await new.put(NOTE, note(id))
        if place == "both":
            await new.put(NOTE.current, note(id))
    for reverse in (False, True):
        expected = sorted(ids, reverse=reverse)
        assert [e.record.id async for e in new.scan(NOTE, reverse=reverse)] == expected
        for limit in (1, 2, 3, 7, 39, 40, 41):
            found: list[str] = []
            cursor: str | None = None
            while True:
                page = await new.page(NOTE, limit=limit, cursor=cursor, reverse=reverse)
                assert len(page.entries) <= limit
                assert all(entry.values == (entry.record.id,) for entry in page.entries)
                found += [entry.record.id for entry in page.entries]
                if (cursor := page.cursor) is None:
                    break
            assert found == expected
    assert await new.count(NOTE) == 40 and await new.count(NOTE, prefix="1") == 10
    assert [e.record.id async for e in new.scan(NOTE, prefix="3")] == ids[30:]
    listed = [values async for values, _ in new.record_rows(NOTE, after=("17",))]
    assert listed == [(id,) for id in ids[18:]]
    empty = [row async for _, row in new.record_rows(NOTE, keys_only=True)]
    assert len(empty) == 40 and not any(row.value for row in empty)
    await clean(new)


@everywhere
async def test_a_copy_at_the_legacy_key_is_used_once(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note("a"))
    await old.put(NOTE, note("b"))
    used = [page async for page in new.usage(NOTE)]
    await new.put(NOTE.current, note("a"))
    with mock.patch.object(usage, "USAGE_PAGE_ROWS", 1):
        both = [page async for page in new.usage(NOTE)]
    assert sum(page.keys for page in used) == sum(page.keys for page in both) == 2
    assert sum(page.bytes for page in both) == sum(page.bytes for page in used) + len("v2_")


@everywhere
async def test_current_and_legacy_reach_only_one_key(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note(tags=["x"]))
    assert await new.get(NOTE.current, id="a") is None
    copy = await new.get(NOTE.legacy or NOTE, id="a")
    assert copy == note(tags=["x"])
    await new.put(NOTE.current, copy)
    assert await notes(harness) == [f"{OLD}a", f"{NEW}a"]
    await clean(new)
    await new.delete(NOTE.legacy or NOTE, id="a")
    assert await notes(harness) == [f"{NEW}a"]
    await clean(new)


@everywhere
async def test_a_watch_shows_a_moved_record_as_changed(
    harness: Harness,
) -> None:
    old, new = stores(harness)
    since = await new.revision()
    first = await old.put(NOTE, note("a"))
    async with aclosing(new.watch(NOTE, since=since)) as events:
        event = await soon(anext(events))
        assert (event.key, event.record, event.gone) == (first.key, first.record, False)
        moved = await new.put(NOTE, note("a", title="b"))
        event = await soon(anext(events))
        assert (event.key, event.values, event.record) == (moved.key, ("a",), moved.record)
        await old.put(NOTE, note("b"))
        assert (await soon(anext(events))).key == f"{OLD}b", "the legacy row is not shown as gone"
        await new.delete(NOTE, id="a")
        event = await soon(anext(events))
        assert (event.key, event.gone) == (f"{NEW}a", True)
        await old.put(NOTE, note("c"))
        assert (await soon(anext(events))).key == f"{OLD}c"
        await old.delete(NOTE, id="c")
        event = await soon(anext(events))
        assert (event.key, event.gone) == (f"{OLD}c", True)


@everywhere
async def test_a_job_works_on_each_record_once_at_either_key(harness: Harness) -> None:
    old, new = stores(harness)
    for number in range(150):
        await (old if number % 3 else new).put(NOTE, note(f"{number:03d}"))
    seen: list[str] = []

    async def step(tx: Transaction, entry: Entry[Note]) -> None:
        seen.append(entry.record.id)
        assert entry.values == (entry.record.id,)
        await tx.put(NOTE, entry.record)

    await run_job(new, "move", NOTE, step)
    assert seen == [f"{number:03d}" for number in range(150)]
    assert all(key.startswith(NEW) for key in await notes(harness))
    await clean(new)


@everywhere
async def test_verify_repairs_derived_rows_of_a_record_at_its_legacy_key(harness: Harness) -> None:
    old, new = stores(harness)
    await old.put(NOTE, note(tags=["x"]))
    good = await harness.rows()
    await harness.plant(
        {"tag:x:a": None, "title:title a": None, "tag:y:a": b"1", "all": b'{"ids":["b"]}'}
    )
    await harness.plant({"count:x": b"7"})
    kinds = {(each.kind, each.key) for each in await findings(new, repair=True)}
    assert kinds == {
        ("missing", "tag:x:a"),
        ("missing", "title:title a"),
        ("dangling", "tag:y:a"),
        ("dangling", "all"),
        ("missing", "all"),
        ("miscounted", "count:x"),
    }
    assert await harness.rows() == good


@everywhere
async def test_verify_reports_a_record_that_differs_at_its_two_keys(harness: Harness) -> None:
    _, new = stores(harness)
    await new.put(NOTE, note(title="new", tags=["x"]))
    await harness.plant({f"{OLD}a": b'{"id":"a","title":"old","tags":["y"]}'})
    await harness.plant({f"{OLD}b": b"not a note", f"{NEW}b": b"nor this"})
    found = [(each.kind, each.key) for each in await findings(new)]
    assert found == [
        ("conflict", f"{OLD}a"),
        ("conflict", f"{OLD}b"),
        ("unreadable", f"{NEW}b"),
    ]
    await harness.plant({f"{OLD}b": None, f"{NEW}b": None})
    await harness.plant({f"{OLD}a": b'{ "id":"a","title":"new","tags":["x"]}'})
    await clean(new)


def test_a_key_is_found_described_and_explained() -> None:
    store = Store(NOTES, MemoryEngine(ManualClock()), SPACE)
    current, legacy = store.find(f"{NEW}a"), store.find(f"{OLD}a")
    assert current is not None and legacy is not None
    assert current.record is legacy.record is current.declared
    assert legacy.declared is legacy.record.legacy and legacy.fields == {"id": "a"}
    [text, *_] = describe(NOTES).records
    assert text.key == "v2_note_{id}"
    assert "`note_{id}`" in text.notes["legacy keys"]
    explained = explain(NOTES, f"{OLD}a")
    assert (
        explained is not None
        and explained.current_key == f"{NEW}a"
        and explained.record_key is None
    )
    assert [relation.key for relation in explained.derived][:1] == ["tag:{tag}:a"]
    explained = explain(NOTES, f"{NEW}a")
    assert explained is not None and explained.current_key is None


@pytest.mark.parametrize("work", ["get", "entry", "put", "delete"])
def test_a_record_that_moves_between_two_reads_is_found(work: str) -> None:
    """The rows of one read are not of one moment: a record that moved in between was at neither
    key."""

    class Halved(MemoryEngine):
        """Reads the rows of one call one after the other, and lets others write in between."""

        moves = True

        async def read(self, space: str, keys: Any, *, bytes_max: int | None = None) -> Any:
            rows = await super().read(space, keys)
            if self.moves and len(keys) == 2:
                self.moves = False
                [rows[1]] = await super().read(space, keys[1:])
                await Store(NOTES, self, SPACE).put(NOTE, note(title="moved"))
                [rows[0]] = await super().read(space, keys[:1])
            return rows

    async def scenario() -> None:
        engine = Halved(ManualClock())
        engine.moves = False
        await Store(NOTES.writing_legacy_keys(), engine, SPACE).put(NOTE, note())
        store = Store(NOTES, engine, SPACE)
        await store.get(NOTE, id="z")  # the version of the space
        engine.moves = True
        if work == "get":
            assert await store.get(NOTE, id="a") == note(title="moved")
        elif work == "entry":
            assert await store.entry(NOTE, id="a") is not None
        elif work == "put":
            assert (await store.put(NOTE, note(title="b"))).record.title == "b"
        else:
            assert await store.delete(NOTE, id="a")
            assert await store.get(NOTE, id="a") is None

    asyncio.run(scenario())


def test_a_record_that_moves_before_the_commit_is_written_once() -> None:
    async def scenario() -> None:
        inner = MemoryEngine(ManualClock())
        old, new = (
            Store(NOTES.writing_legacy_keys(), inner, SPACE),
            Store(NOTES, inner, SPACE),
        )
        await old.put(NOTE, note())

        async def move() -> None:
            await new.put(NOTE, note(title="moved"))

        engine = FaultyEngine(inner, meanwhile(1, move, call="commit"))
        store = Store(NOTES.writing_legacy_keys(), engine, SPACE)
        written = await store.put(NOTE, note(title="last"))
        assert written.key == f"{NEW}a"
        assert [entry.record.title async for entry in new.scan(NOTE)] == ["last"]

    asyncio.run(scenario())


def test_legacy_keys_that_cannot_be_merged_are_rejected() -> None:
    def schema(at: str, legacy_at: str, **fields: Any) -> Schema:
        record: Record[Any] = Record(
            Any, Template(at, **fields), name="r", legacy_at=Template(legacy_at, **fields)
        )
        return Schema("s", record, space=Space("a team", field="team"))

    schema("new:{team}:{x}:{y}", "old/{team}/{x}:{y}")
    for at, legacy_at in [
        ("new:{x}:{y}", "old:{x}/{y}"),
        ("new:{x}:{y:04d}", "old:{x}:{y}"),
        ("new:{x}:{team}:{y}", "old:{x}/{team}:{y}"),
        ("new:{x}", "old:{x}:{y}"),
        ("new:{x}:{y}", "old:{y}:{x}"),
        ("new:{x}", "new:{x}"),
        ("n:{x}", "n:old:{x}"),
    ]:
        with pytest.raises(DeclarationError):
            schema(at, legacy_at)
    with pytest.raises(DeclarationError):
        Log(Note, "n:{id}", legacy_at="o:{id}")
    with pytest.raises(DeclarationError):
        Record(Note, "n:{id}", legacy_at=5)  # type: ignore[arg-type]


def test_a_legacy_key_that_is_too_long_is_rejected() -> None:
    async def scenario() -> None:
        record: Record[Any] = Record(
            Any, "n:{x}", name="r", legacy_at="a-far-longer-head-of-the-key:{x}"
        )
        schema = Schema("s", record, space=Space("a team"))
        engine = MemoryEngine(ManualClock())
        old = Store(schema.writing_legacy_keys(), engine, "a")
        with pytest.raises(KeyFieldError):
            await old.put(record, 1, x="x" * 1_010)
        await Store(schema, engine, "a").put(record, 1, x="x" * 1_010)
        assert await old.get(record, x="x" * 1_010) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("name", OPENERS)
def test_every_engine_serves_raw_rows_and_both_keys(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = await OPENERS[name](tmp_path)(ManualClock())
        try:
            old, new = (
                Store(NOTES.writing_legacy_keys(), engine, SPACE),
                Store(NOTES, engine, SPACE),
            )
            for number in range(6):
                await (old if number % 2 else new).put(NOTE, note(str(number), tags=["x"]))
            assert [e.record.id async for e in new.scan(NOTE)] == list("012345")
            assert [
                e.record.id for e in (await new.page(NOTE, by=BY_TAG, tag="x")).entries
            ] == list("012345")
            moved = await new.put(NOTE, note("1"))
            assert moved.key == f"{NEW}1" and await new.row(f"{OLD}1") is None
            assert await new.get_many(NOTE, [{"id": "3"}, {"id": "9"}]) == [
                note("3", tags=["x"]),
                None,
            ]
            rows = await new.rows([f"{NEW}0", f"{NEW}3", f"{OLD}3"])
            assert [row and row.key for row in rows] == [f"{NEW}0", None, f"{OLD}3"]
            page = await new.row_page(Span.prefix(NEW), limit=2, reverse=True, keys_only=True)
            assert [row.key for row in page.rows] == [f"{NEW}4", f"{NEW}2"] and page.more
            assert page.revision == await new.revision() == moved.revision
            with mock.patch.object(usage, "USAGE_PAGE_ROWS", 2):
                pages = await all_of(new.usage(NOTE))
            assert sum(each.keys for each in pages) == 6
            assert [row.key async for row in new.row_scan(Span.prefix(OLD))] == [
                f"{OLD}3",
                f"{OLD}5",
            ]
            await clean(new)
        finally:
            await engine.close()

    asyncio.run(scenario())
