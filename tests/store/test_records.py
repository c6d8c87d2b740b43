"""Records in a store: get, put and delete with all that is derived from them."""

from typing import Any

import pytest

from keyhouse.errors import (
    KeyFieldError,
    LimitError,
    RecordError,
    RevisionError,
    UsageError,
)
from keyhouse.limits import VALUE_BYTES_MAX
from tests.store.support.harness import Harness, book, clean, everywhere, session
from tests.store.support.library_schema import (
    BOOK,
    BY_TAG,
    MAP,
    ONE_ISBN,
)


@everywhere
async def test_a_record_is_read_as_it_was_written(harness: Harness) -> None:
    store = harness.store()
    written = await store.put(BOOK, book(title="Dune", tags=["sf"], year=1965))
    assert written.key == "b:1" and written.values == ("1",) and written.revision > 0
    assert written.record.created_at == "2026-01-01T00:00:00.000Z"
    assert await store.get(BOOK, id="1") == written.record
    assert await store.entry(BOOK, id="1") == written
    assert await store.get(BOOK, id="2") is None and await store.entry(BOOK, id="2") is None


@everywhere
async def test_a_record_has_these_rows_and_no_others(harness: Harness) -> None:
    store = harness.store()
    await store.put(
        BOOK,
        book(
            title="Dune",
            series="arrakis",
            position=1,
            tags=["SF", "sf"],
            isbn="9",
            year=1965,
            shelf="a",
        ),
    )
    rows = await harness.rows()
    rows.pop("b:1")
    assert {key: value for key, (value, _) in rows.items()} == {
        "idx:title:dune:1": b'"1"',
        "idx:series:arrakis:00001000:1": b"1",
        "idx:tag:sf:1": b"1",
        "isbn:9": b'"1"',
        "first:arrakis": b'"1"',
        "shelf:a": b'{"books":{"1":{"title":"Dune"}},"v":1}',
        "year:1965": b"1",
    }


@everywhere
async def test_a_change_moves_the_rows_and_leaves_none_behind(harness: Harness) -> None:
    store = harness.store()
    await store.put(
        BOOK, book(title="A", series="s", tags=["x", "y"], isbn="9", year=1, shelf="a", rating=3.5)
    )
    await store.put(BOOK, book(title="B", series="t", tags=["y", "z"], isbn="8", year=2, shelf="b"))
    rows = await harness.rows()
    rows.pop("b:1")
    assert {key: value for key, (value, _) in rows.items()} == {
        "idx:title:b:1": b'"1"',
        "idx:series:t:null:1": b"1",
        "idx:tag:y:1": b"1",
        "idx:tag:z:1": b"1",
        "isbn:8": b'"1"',
        "first:t": b'"1"',
        "shelf:b": b'{"books":{"1":{"title":"B"}},"v":1}',
        "year:0001": b"0",
        "year:0002": b"1",
    }
    await clean(store)


@everywhere
async def test_a_delete_takes_every_row_with_it(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book(series="s", tags=["x"], isbn="9", shelf="a", rating=1.5))
    assert await store.delete(BOOK, id="1")
    assert {key: value for key, (value, _) in (await harness.rows()).items()} == {"year:0000": b"0"}
    assert not await store.delete(BOOK, id="1")
    await clean(store)


@everywhere
async def test_a_write_is_one_commit(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    await store.put(BOOK, book(series="s", tags=["x"], isbn="9", shelf="a"))
    await store.put(BOOK, book(series="t", tags=["y"], isbn="8", shelf="b"))
    await store.delete(BOOK, id="1")
    assert engine.calls["commit"] == 3


@everywhere
async def test_a_record_that_does_not_change_writes_its_own_row_only(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    await store.put(BOOK, book(series="s", tags=["x"], isbn="9", shelf="a"))
    await store.put(BOOK, book(series="s", tags=["x"], isbn="9", shelf="a"))
    assert [put.key for put in engine.batches[-1].puts] == ["b:1"]


# Expectations


@everywhere
async def test_a_write_that_expects_another_revision_raises_and_writes_nothing(
    harness: Harness,
) -> None:
    store = harness.store()
    first = await store.put(BOOK, book(), expect=None)
    second = await store.put(BOOK, book(title="B"), expect=first.revision)
    before = await harness.rows()
    for expect in (first.revision, None, 0, 10**6):
        with pytest.raises(RevisionError) as refused:
            await store.put(BOOK, book(title="C"), expect=expect)
        assert refused.value.fields["found"] == second.revision
        with pytest.raises(RevisionError):
            await store.delete(BOOK, id="1", expect=expect)
    with pytest.raises(RevisionError):
        await store.put(BOOK, book("2"), expect=second.revision)
    assert await harness.rows() == before
    assert await store.delete(BOOK, id="1", expect=second.revision)
    assert not await store.delete(BOOK, id="1", expect=None)


# Rejected puts write nothing


BAD_BOOKS: list[tuple[Any, type[Exception]]] = [
    (book(title=""), KeyFieldError),
    (book(title=" "), KeyFieldError),
    (book("A"), KeyFieldError),
    (book("1\n"), KeyFieldError),
    (book(position=-1.0, series="s"), KeyFieldError),
    (book(tags=[""]), KeyFieldError),
    (book(year=10_000), KeyFieldError),
    (book(title=5), RecordError),
    (book(tags="abc"), RecordError),
    (book(rating=None), RecordError),
    ({"id": "1", "title": "x"}, RecordError),
    (None, RecordError),
    (session(), RecordError),
]


@everywhere
async def test_an_invalid_record_is_rejected_and_nothing_is_written(harness: Harness) -> None:
    store = harness.store()
    await store.put(BOOK, book(series="s", tags=["x"], isbn="9", shelf="a"))
    before = await harness.rows()
    for value, error in BAD_BOOKS:
        with pytest.raises(error):
            await store.put(BOOK, value)
    assert await harness.rows() == before


@everywhere
async def test_a_value_at_the_limit_is_stored_and_a_larger_one_rejected(harness: Harness) -> None:
    store = harness.store()
    await store.put(MAP, "x" * (VALUE_BYTES_MAX - 2), id="1")
    assert await store.get(MAP, id="1") == "x" * (VALUE_BYTES_MAX - 2)
    before = await harness.rows()
    with pytest.raises(LimitError):
        await store.put(MAP, "x" * (VALUE_BYTES_MAX - 1), id="1")
    assert await harness.rows() == before


@everywhere
async def test_a_number_given_as_a_whole_one_is_stored_and_derived_as_its_type(
    harness: Harness,
) -> None:
    """`rating` is a float: 4 was stored as 4 and its index row as `4`, but read as 4.0, which
    derives `4.0`: `verify` found the row wrong."""
    store = harness.store()
    written = await store.put(BOOK, book(rating=4, position=1, series="s"))
    assert await store.get(BOOK, id="1") == written.record
    await clean(store)
    await store.put(BOOK, book(rating=4.0, position=1.0, series="s"))
    await clean(store)


@everywhere
async def test_an_entry_has_its_key_fields_by_name(harness: Harness) -> None:
    store = harness.store()
    written = await store.put(BOOK, book(title="Dune", tags=["sf"], isbn="9"))
    assert written.fields == {"id": "1"}
    assert await store.get(BOOK, **written.fields) == written.record
    listed = [entry.fields async for entry in store.scan(BOOK)]
    by_tag = [entry.fields async for entry in store.scan(BOOK, by=BY_TAG, tag="sf")]
    page = await store.page(BOOK)
    found = await store.lookup(BOOK, ONE_ISBN, isbn="9")
    assert listed == by_tag == [{"id": "1"}] == [page.entries[0].fields]
    assert found is not None and found.fields == {"id": "1"}
    async for event in store.watch(BOOK, since=0):
        assert event.fields == {"id": "1"}
        break


@everywhere
async def test_a_lookup_by_an_index_that_lists_records_points_to_scan(harness: Harness) -> None:
    """It said that the key needs the id, which is what the caller looks for."""
    store = harness.store()
    with pytest.raises(UsageError, match=r"scan\(record, by=…\)"):
        await store.lookup(BOOK, BY_TAG, tag="sf")
    with pytest.raises(KeyFieldError, match="isbn"):
        await store.lookup(BOOK, ONE_ISBN)
