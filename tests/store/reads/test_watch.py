"""A watch of records shows every change once, in order, and only of the watched record."""

import asyncio
from contextlib import aclosing

import pytest

from keyhouse.errors import UnreadableError, UsageError
from keyhouse.schema import Record
from keyhouse.store import Event, Store, sweep
from tests.store.support.harness import Harness, book, everywhere, session, soon
from tests.store.support.library_schema import BOOK, HITS, MAP, SLIDING, VIEWING, Book, Viewing


async def changes(store: Store, since: int, count: int) -> list[Event[Book]]:
    found: list[Event[Book]] = []
    async with aclosing(store.watch(BOOK, since=since)) as watch:
        while len(found) < count:
            found.append(await soon(anext(watch)))
    return found


@everywhere
async def test_a_watch_gives_records_as_they_are_put_and_go(harness: Harness) -> None:
    store = harness.store()
    first = await store.put(BOOK, book("0"))
    one = await store.put(BOOK, book("1"))
    two = await store.put(BOOK, book("2"))
    await store.delete(BOOK, id="0")
    events = await changes(store, first.revision, 3)
    assert [(event.values, event.record and event.record.id) for event in events] == [
        (("1",), "1"),
        (("2",), "2"),
        (("0",), None),
    ]
    assert [event.revision for event in events[:2]] == [one.revision, two.revision]
    assert events[0].record == one.record and events[0].key == "b:1"


@everywhere
async def test_a_watch_from_a_pages_revision_has_no_gap(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("1"))
    page = await store.page(BOOK)
    await store.put(BOOK, book("2"))
    seen = {entry.key for entry in page.entries}
    events = await changes(store, page.revision, 1)
    assert seen | {event.key for event in events} == {"b:1", "b:2"} and seen.isdisjoint(
        event.key for event in events
    )


@everywhere
async def test_a_watch_that_is_left_is_resumed_where_it_was(harness: Harness) -> None:
    store = harness.store()
    since = (await store.page(BOOK)).revision
    for number in range(10):
        await store.put(BOOK, book(str(number)))
    first = await changes(store, since, 4)
    await harness.reopen()
    store = harness.store()
    rest = await changes(store, first[-1].revision, 6)
    assert [event.values[0] for event in first + rest] == [str(number) for number in range(10)]


@everywhere
async def test_a_watch_leaves_out_rows_of_other_shapes(harness: Harness) -> None:
    """Derived rows, counters, and maps that are inside the watched span."""
    store = harness.store()
    since = (await store.page(BOOK)).revision
    await store.put(MAP, 1, id="x")
    await store.put(BOOK, book("1", tags=["x"], series="s", isbn="9"))
    await store.add(HITS, 1, page="x")
    await store.put(MAP, 2, id="y")
    await store.put(BOOK, book("2"))
    assert [event.key for event in await changes(store, since, 2)] == ["b:1", "b:2"]


@everywhere
async def test_a_watch_is_bound_by_leading_fields_or_first_characters(harness: Harness) -> None:
    store = harness.store()
    since = (await store.page(BOOK)).revision
    for state, asset in (("done", "1"), ("open", "2"), ("open", "3")):
        await store.put(VIEWING, Viewing(state=state, asset=asset))
    async with aclosing(store.watch(VIEWING, since=since, state="open")) as watch:
        assert [(await soon(anext(watch))).values for _ in range(2)] == [
            ("open", "2"),
            ("open", "3"),
        ]
    async with aclosing(store.watch(VIEWING, since=since, state="open", prefix="3")) as watch:
        assert (await soon(anext(watch))).values == ("open", "3")
    with pytest.raises(UsageError):
        await anext(store.watch(VIEWING, since=since, asset="1"))


@everywhere
async def test_a_watch_without_since_shows_later_changes(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book("old"))
    async with aclosing(store.watch(BOOK)) as watch:
        coming = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await store.put(BOOK, book("new"))
        assert (await soon(coming)).values == ("new",)


@everywhere
async def test_an_expiry_is_a_change_when_it_is_swept(harness: Harness) -> None:
    store = harness.store()
    entry = await store.put(SLIDING, session())
    harness.clock.advance(seconds=60)
    await sweep(harness.engine)
    async with aclosing(store.watch(SLIDING, since=entry.revision)) as watch:
        event = await soon(anext(watch))
    assert event.key == "sliding:s:1" and event.record is None and event.revision > entry.revision


@everywhere
async def test_an_event_has_the_expiry_of_its_record(harness: Harness) -> None:
    store = harness.store()
    since = (await store.page(SLIDING)).revision
    entry = await store.put(SLIDING, session())
    async with aclosing(store.watch(SLIDING, since=since)) as watch:
        assert (await soon(anext(watch))).expires == entry.expires


@everywhere
async def test_a_change_that_does_not_decode_is_named_and_can_be_passed(harness: Harness) -> None:
    """The error had no revision to resume from: a resumed watch hit the same row every time."""
    store = harness.store()
    since = (await store.page(BOOK)).revision
    await harness.plant({"b:1": b"{"})
    entry = await store.put(BOOK, book("2"))
    async with aclosing(store.watch(BOOK, since=since)) as watch:
        with pytest.raises(UnreadableError) as refusal:
            await soon(anext(watch))
    revision = refusal.value.fields["revision"]
    assert refusal.value.fields["key"] == "b:1" and isinstance(revision, int)
    async with aclosing(store.watch(BOOK, since=revision)) as watch:
        assert (await soon(anext(watch))).revision == entry.revision


@everywhere
async def test_only_a_record_of_the_schema_is_watched(harness: Harness) -> None:
    with pytest.raises(UsageError):
        await anext(harness.store().watch(Record(Book, "b:{id}")))
