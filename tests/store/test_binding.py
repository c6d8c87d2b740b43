"""A store is one schema in one space: what it fixes is in its keys, and what is not its own it
refuses."""

from typing import Any

import msgspec
import pytest

from keyhouse.errors import (
    KeyFieldError,
    NewerError,
    UnreadableError,
    UsageError,
)
from keyhouse.keys import Regex, Template
from keyhouse.schema import BoundSchema, Index, Record, Schema, Space, Summary, Unique
from keyhouse.store import Store
from tests.store.support.harness import Harness, all_of, book, clean, everywhere, findings, session
from tests.store.support.library_schema import (
    BOOK,
    BY_TAG,
    ON_SHELF,
    SLIDING,
    SLIDING_BY_USER,
    SLIDING_TOKEN,
    Book,
)

# A store and its schema


@everywhere
async def test_another_schemas_record_is_rejected(harness: Harness) -> None:
    store = harness.store()
    other = Record(Book, "b:{id}")
    for call in (store.get(other, id="1"), store.put(other, book()), store.delete(other, id="1")):
        with pytest.raises(UsageError, match="no such declaration"):
            await call
    with pytest.raises(UsageError, match=r"no such declaration\. List the record"):
        await store.lookup(BOOK, Index("x:{id}"), id="1")
    with pytest.raises(UsageError, match=r"no such declaration\. Give the Record, such as CLIP"):
        await store.put(Book, book())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"no such declaration\. Give the declared object"):
        [entry async for entry in store.scan(BOOK, by="title")]  # type: ignore[arg-type]


@everywhere
async def test_another_records_index_is_rejected(harness: Harness) -> None:
    """Its rows lead to records of another type, which came back as unreadable, or worse, read."""
    store = harness.store()
    await store.put(SLIDING, session())
    for call in (
        store.page(BOOK, by=SLIDING_BY_USER, user="ann"),
        store.lookup(BOOK, SLIDING_TOKEN, token="t1"),
        store.page(BOOK, by=ON_SHELF, shelf="a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match="no such index"):
            await call
    with pytest.raises(UsageError, match="no such index"):
        async with store.transaction() as tx:
            await tx.lookup(BOOK, SLIDING_TOKEN, token="t1")


@everywhere
async def test_two_spaces_never_meet(harness: Harness) -> None:
    one, other = harness.store(space="one"), harness.store(space="one:b")
    await one.put(BOOK, book(isbn="9", tags=["x"]))
    assert await other.get(BOOK, id="1") is None
    assert [entry async for entry in other.scan(BOOK, by=BY_TAG, tag="x")] == []
    await other.put(BOOK, book(isbn="9"))
    await one.delete(BOOK, id="1")
    assert await other.get(BOOK, id="1") is not None
    await clean(one)
    await clean(other)


class Note(msgspec.Struct, kw_only=True):
    id: str
    tag: str | None = None
    name: str | None = None


NOTE_BY_TAG = Index("c_{customer}_{kind}_tag_{tag}:{id}")
NOTE_NAME = Unique("c_{customer}_{kind}_name_{name}", value="id")
NOTES_OF = Summary("c_{customer}_{kind}_all", member="id", under="ids")
NOTE = Record(Note, "c_{customer}_{kind}_n_{id}", NOTE_BY_TAG, NOTE_NAME, NOTES_OF)
NOTES = Schema(
    "notes",
    NOTE,
    space=Space("a customer", field="customer", segment=Regex("[0-9a-z{}]+")),
    fixed={"kind": "plain"},
)


@everywhere
async def test_fields_that_a_store_fixes_are_in_its_keys_and_not_in_its_calls(
    harness: Harness,
) -> None:
    store = Store(NOTES, harness.engine, "7", kind="x")
    await store.put(NOTE, Note(id="1", tag="t", name="n"))
    assert (await harness.rows("7")).keys() == {
        "c_7_x_n_1",
        "c_7_x_tag_t:1",
        "c_7_x_name_n",
        "c_7_x_all",
    }
    assert [entry.values async for entry in store.scan(NOTE, by=NOTE_BY_TAG, tag="t")] == [("1",)]
    found = await store.lookup(NOTE, NOTE_NAME, name="n")
    assert found is not None and found.record.id == "1"
    await clean(store)
    with pytest.raises(UsageError):
        await store.get(NOTE, customer="8", id="1")
    with pytest.raises(UsageError):
        Store(NOTES, harness.engine, "7", namespace="x")


@everywhere
async def test_a_space_whose_name_looks_like_a_field_is_a_name(harness: Harness) -> None:
    store = Store(NOTES, harness.engine, "{id}")
    await store.put(NOTE, Note(id="1", tag="t"))
    assert (await harness.rows("{id}")).keys() == {
        "c_{id}_plain_n_1",
        "c_{id}_plain_tag_t:1",
        "c_{id}_plain_all",
    }
    await clean(store)


@everywhere
async def test_a_name_in_another_case_is_the_same_record(harness: Harness) -> None:
    """A key field in its normal form: the record at `u:ann` has one set of rows, however the name
    was spelt."""

    class User(msgspec.Struct):
        name: str
        team: str

    by_team, team = Index("team:{team}:{name}"), Summary("all:{team}", member="name", under="names")
    user = Record(User, "u:{name:norm}", by_team, team)
    store = Store(Schema("users", user, space=Space("x")), harness.engine, "users")
    written = await store.put(user, User("Ann", "a"))
    await store.put(user, User("ANN", "b"))
    assert written.values == ("ann",)
    assert (await harness.rows("users")).keys() == {"u:ann", "team:b:ann", "all:b"}
    entry = await store.entry(user, name="aNN")
    assert entry is not None and entry.values == ("ann",)
    await clean(store)
    await store.delete(user, name="ANN")
    assert await harness.rows("users") == {}


@everywhere
async def test_a_row_that_is_not_of_its_record_is_named_when_it_is_read(harness: Harness) -> None:
    store = harness.store()
    await harness.plant({"b:1": b"{"})
    for call in (store.get(BOOK, id="1"), store.entry(BOOK, id="1"), store.put(BOOK, book())):
        with pytest.raises(UnreadableError):
            await call
    with pytest.raises(UnreadableError):
        await all_of(store.scan(BOOK))


@everywhere
async def test_a_row_is_shown_whatever_it_is(harness: Harness) -> None:
    store = harness.store()
    await harness.plant({"what:ever": b"{"})
    row = await store.row("what:ever")
    assert row is not None and row.value == b"{"
    assert await store.row("not:there") is None
    with pytest.raises(KeyFieldError):
        await store.row("")
    found = store.find("idx:tag:x:1")
    assert (
        found is not None
        and found.fields == {"tag": "x", "id": "1"}
        and found.record.name == "book"
    )
    assert store.find("what:ever") is None


@everywhere
async def test_rows_of_newer_code_are_rejected_and_left_unchanged(harness: Harness) -> None:
    class Old(msgspec.Struct):
        id: str
        v: int = 0

    record = Record(Old, "o:{id}", Index("i:{id}"), version=("v", 1))
    store = Store(Schema("old", record, space=Space("x")), harness.engine, "s")
    await harness.plant({"o:1": b'{"id":"1","v":2,"new":1}'}, space="s")
    before = await harness.rows("s")
    for call in (
        store.get(record, id="1"),
        store.put(record, Old("1")),
        store.delete(record, id="1"),
    ):
        with pytest.raises(NewerError):
            await call
    assert await harness.rows("s") == before


@everywhere
async def test_a_record_whose_declared_rows_cannot_be_written_can_still_be_replaced(
    harness: Harness,
) -> None:
    """Another program wrote a title that no index key can hold. The book was stuck: neither a put
    nor a delete could work out what rows the old one had."""
    store = harness.store()
    await harness.plant(
        {"b:1": b'{"id":"1","title":" "}', "b:2": b'{"id":"2","title":"","year":99999}'}
    )
    await store.put(BOOK, book("1", title="Repaired"))
    assert await store.delete(BOOK, id="2")
    assert [finding.kind for finding in await findings(store, repair=True)] == ["miscounted"]
    await clean(store)


def test_a_record_is_bound_when_it_is_first_asked_for_and_values_are_checked_before() -> None:
    """A service has many spaces: compiling every template for each of them took 5 ms a customer."""
    schema = Schema(
        "notes",
        Record(Any, Template("c_{customer}_note_{id}", customer=Regex("[0-9]+")), name="note"),
        Record(Any, Template("c_{customer}_tag_{id}", customer=Regex("[0-9]+")), name="tag"),
        space=Space("a customer", field="customer"),
    )
    note, tag = schema.records
    binding = BoundSchema(schema, {"customer": "7"})
    assert binding.record(note) is binding.record(note)
    assert binding.record(note).template.text == "c_7_note_{id}"
    assert binding.record(tag).template.text == "c_7_tag_{id}"
    with pytest.raises(KeyFieldError):
        BoundSchema(schema, {"customer": "7_8"})
