"""Derived rows are a pure function of one record: the same for the same record, different only
where it differs."""

import copy
from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import (
    DeclarationError,
    DocumentError,
    KeyFieldError,
    UniqueError,
    UnreadableError,
)
from keyhouse.schema import (
    BoundDerived,
    BoundRecordCount,
    BoundSummary,
    BoundUnique,
    Derived,
    First,
    FromAttribute,
    Index,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
)
from tests.support.bound_rows import bound


class Author(msgspec.Struct):
    name: str


class Book(msgspec.Struct, kw_only=True):
    id: str
    title: str
    series: str | None = None
    position: float | None = None
    tags: list[str] = []
    listed: bool = True
    author: Author | None = None
    year: int = 0
    released: date = date(2026, 1, 1)


BY_TITLE = Index("title:{title:norm}:{id}", value="id")
BY_SERIES = Index("series:{series}:{position:08.3f?}:{id}")
BY_TAG = Index("tag:{tag:norm}:{id}", each={"tag": "tags"})
LISTED = Index("listed:{year:04d}:{id}", when=lambda book: book.listed)
BY_AUTHOR = Index(
    "author:{who}:{id}", fields={"who": lambda book: book.author and book.author.name}
)
BY_DAY = Index("day:{released:date}:{id}", value="title")
ONE_TITLE = Unique("one:{title}", value="id")
SERIES_FIRST = First("first:{series}", value="id", among=BY_SERIES)
IN_SERIES = Summary("in:{series}", member="id", under="ids", version=("v", 1))
YEARS = Summary(
    "years", member="id", under="books", entry=lambda book: {"y": book.year, "t": (book.title,)}
)
IN_YEAR = RecordCount("count:{year:04d}")

BOOK = Record(
    Book,
    "b:{id}",
    BY_TITLE,
    BY_SERIES,
    BY_TAG,
    LISTED,
    BY_AUTHOR,
    BY_DAY,
    ONE_TITLE,
    SERIES_FIRST,
    IN_SERIES,
    YEARS,
    IN_YEAR,
)

names = st.text("abcdefgh :%", min_size=1, max_size=5).filter(lambda name: name.strip() != "")
books = st.builds(
    Book,
    id=names,
    title=names,
    series=st.none() | names,
    position=st.none() | st.integers(0, 9_999).map(lambda whole: whole / 1_000),
    tags=st.lists(names, max_size=3),
    listed=st.booleans(),
    author=st.none() | st.builds(Author, names),
    year=st.integers(0, 9_999),
)


def all_rows(book: Book) -> dict[str, Any]:
    return {
        key: value
        for each in BOOK.unbound.derived
        for key, value in each.rows(book, (book.id,)).items()
    }


@given(book=books)
def test_the_same_record_always_has_the_same_rows_and_is_not_changed(book: Book) -> None:
    before = copy.deepcopy(book)
    first = all_rows(book)
    assert all_rows(book) == first and all_rows(BOOK.json.decode(BOOK.json.encode(book))) == first
    assert book == before


@given(book=books)
def test_every_row_leads_back_to_its_record(book: Book) -> None:
    for each in BOOK.unbound.derived:
        for key, contribution in each.rows(book, (book.id,)).items():
            if isinstance(each, BoundRecordCount):
                assert each.owners(key, b"1") == []
                continue
            row = (
                each.merge(key, None, None, contribution)
                if isinstance(each, BoundSummary)
                else contribution
            )
            assert row is not None
            assert each.owners(key, row) == [[(book.id,)]]
            assert each.holds(row, contribution)


@given(one=books, other=books)
def test_the_difference_takes_a_record_from_what_it_was_to_what_it_is(
    one: Book, other: Book
) -> None:
    """Kept beside the code under test: rows as a plain dict, changed by what the kinds say, must be
    what they derive."""
    other.id = one.id
    rows: dict[str, Any] = {}
    for before, after in ((None, one), (one, other), (other, None)):
        for each in BOOK.unbound.derived:
            removed = {} if before is None else each.rows(before, (one.id,))
            added = {} if after is None else each.rows(after, (one.id,))
            for key in removed.keys() | added.keys():
                _carry(each, rows, key, removed.get(key), added.get(key))
        expected = {} if after is None else all_rows(after)
        assert rows.keys() == expected.keys()
        for key, contribution in expected.items():
            each = next(
                each for each in BOOK.unbound.derived if each.template.parse(key) is not None
            )
            assert (
                rows[key] == 1
                if isinstance(each, BoundRecordCount)
                else each.holds(rows[key], contribution)
            )


def _carry(each: BoundDerived, rows: dict[str, Any], key: str, removed: Any, added: Any) -> None:
    if isinstance(each, BoundRecordCount):
        rows[key] = rows.get(key, 0) + (added or 0) - (removed or 0)
        merged = rows[key] or None
    elif isinstance(each, (BoundUnique, BoundSummary)):
        merged = each.merge(key, rows.get(key), removed, added)
    else:
        merged = added
    rows.pop(key, None)
    if merged is not None:
        rows[key] = merged


def test_the_rows_of_one_book_are_these() -> None:
    book = Book(
        id="1",
        title="The  Hobbit",
        series="ring",
        position=1.5,
        tags=["Fun", "fun", "old"],
        author=Author("jrr"),
        year=1937,
    )
    assert {
        key: value
        for each in BOOK.unbound.derived
        for key, value in each.rows(book, ("1",)).items()
    } == {
        "title:the hobbit:1": b'"1"',
        "series:ring:00001500:1": b"1",
        "tag:fun:1": b"1",
        "tag:old:1": b"1",
        "listed:1937:1": b"1",
        "author:jrr:1": b"1",
        "day:2026-01-01:1": b'"The  Hobbit"',
        "one:The  Hobbit": b'"1"',
        "first:ring": b'"1"',
        "in:ring": ("1", None),
        "years": ("1", {"y": 1937, "t": ["The  Hobbit"]}),
        "count:1937": 1,
    }


def test_a_field_that_is_not_set_has_no_row_unless_it_may_be_null() -> None:
    book = Book(id="1", title="x")
    assert (
        bound(BOOK, BY_SERIES).rows(book, ("1",)) == {}
        and bound(BOOK, BY_AUTHOR).rows(book, ("1",)) == {}
        and bound(BOOK, BY_TAG).rows(book, ("1",)) == {}
    )
    book.series = "ring"
    assert bound(BOOK, BY_SERIES).rows(book, ("1",)) == {"series:ring:null:1": b"1"}


@pytest.mark.parametrize(
    "kind",
    [
        Index("w:{who}:{id}", fields={"who": "author.name"}),
        RecordCount("w:{who}", fields={"who": "author.name"}),
    ],
)
def test_a_part_that_is_not_set_has_no_row_for_what_lies_within(kind: Derived) -> None:
    """Found by a review: `null` for the part, which its type allows, ended a put with an
    AttributeError."""
    row = bound(Record(Book, "b:{id}", kind), kind)
    assert row.rows(Book(id="1", title="t"), ("1",)) == {}
    [key] = row.rows(Book(id="1", title="t", author=Author("ada")), ("1",))
    assert key.startswith("w:ada")


def test_an_attribute_may_have_a_name_that_python_keeps_for_itself() -> None:
    """Keys are built by compiled code, and `v.class` does not compile."""
    kind = msgspec.defstruct("Kind", [("id", str), ("class", str)])
    index = Index("class:{class}:{id}")
    record: Record[Any] = Record(kind, "k:{id}", index)
    assert bound(record, index).rows(kind("1", "a"), ("1",)) == {"class:a:1": b"1"}


def test_a_record_for_which_it_does_not_hold_has_no_row() -> None:
    assert bound(BOOK, LISTED).rows(Book(id="1", title="x", listed=False), ("1",)) == {}


def test_a_field_that_cannot_be_written_is_named_with_its_row() -> None:
    with pytest.raises(KeyFieldError) as refused:
        bound(BOOK, LISTED).rows(Book(id="1", title="x", year=-1), ("1",))
    assert refused.value.fields["field"] == "year"


def test_a_key_field_that_the_record_holds_under_another_name_is_taken_from_the_key() -> None:
    """The record's own attribute of that name is another thing, and must not stand in the row."""

    class Odd(msgspec.Struct):
        id: str
        uid: str
        kind: str

    by_kind = Index("kind:{kind}:{id:ulid}")
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    odd = Record(Odd, "o:{id:ulid}", by_kind, fields={"id": "uid"})
    value = Odd(id="something else", uid=ulid, kind="x")
    assert bound(odd, by_kind).rows(value, odd.unbound.key_values(value, {})) == {
        f"kind:x:{ulid}": b"1"
    }


def test_a_unique_row_rejects_a_second_record_and_is_released_only_by_its_holder() -> None:
    assert bound(BOOK, ONE_TITLE).merge("k", None, None, b'"1"') == b'"1"'
    assert bound(BOOK, ONE_TITLE).merge("k", b'"1"', b'"1"', b'"1"') == b'"1"'
    assert bound(BOOK, ONE_TITLE).merge("k", b'"1"', b'"1"', None) is None
    assert bound(BOOK, ONE_TITLE).merge("k", b'"1"', b'"2"', None) == b'"1"'
    with pytest.raises(UniqueError):
        bound(BOOK, ONE_TITLE).merge("k", b'"1"', None, b'"2"')


def test_a_conflict_of_a_private_value_does_not_name_its_holder() -> None:
    """A writer that tried all pins learnt whose pin it was."""
    row = Unique("idx:guest:pin:{pin}", value="id")
    guest = Record(Guest, "guest:{id}", row, private=("pin", "pins"))
    with pytest.raises(UniqueError) as rejected:
        bound(guest, row).merge("idx:guest:pin:4711", b'"ann"', None, b'"bob"')
    assert rejected.value.fields == {"index": "idx:guest:pin:{pin}", "value": {}}


def test_a_first_row_stays_with_its_holder() -> None:
    assert bound(BOOK, SERIES_FIRST).merge("k", None, None, b'"1"') == b'"1"'
    assert bound(BOOK, SERIES_FIRST).merge("k", b'"1"', None, b'"2"') == b'"1"'
    assert bound(BOOK, SERIES_FIRST).merge("k", b'"1"', b'"2"', None) == b'"1"'
    assert bound(BOOK, SERIES_FIRST).merge("k", b'"1"', b'"1"', None) is None
    assert bound(BOOK, SERIES_FIRST).successor("series:ring:00001500:7", b"1") == b'"7"'


def test_a_summary_lists_each_member_once_and_is_deleted_with_the_last() -> None:
    one = bound(BOOK, IN_SERIES).merge("k", None, None, ("1", None))
    assert one == b'{"ids":["1"],"v":1}'
    two = bound(BOOK, IN_SERIES).merge("k", one, None, ("2", None))
    assert two == b'{"ids":["1","2"],"v":1}'
    assert bound(BOOK, IN_SERIES).merge("k", two, ("1", None), ("1", None)) == two
    left = bound(BOOK, IN_SERIES).merge("k", two, ("1", None), None)
    assert left == b'{"ids":["2"],"v":1}'
    assert bound(BOOK, IN_SERIES).merge("k", left, ("2", None), None) is None
    assert bound(BOOK, IN_SERIES).merge("k", None, ("2", None), None) is None


def test_a_map_is_also_read_from_a_plain_list() -> None:
    assert bound(BOOK, YEARS).members(b'["1","2"]') == {"1": None, "2": None}
    assert bound(BOOK, YEARS).members(b'{"books":["1"]}') == {"1": None}


@pytest.mark.parametrize(
    "row", [b"{", b"5", b'{"other":1}', b'{"books":5}', b'{"books":[["x"]]}', b"null"], ids=repr
)
def test_a_summary_row_that_lists_nothing_is_unreadable(row: bytes) -> None:
    """A row that is not JSON was answered as if the caller had sent it."""
    with pytest.raises(UnreadableError):
        bound(BOOK, YEARS).members(row)


def test_a_number_in_descending_order_leads_back_from_the_value_of_a_row() -> None:
    """It was rejected as if it were a time: only a value that JSON changes cannot be read back."""
    newest = Unique("newest:{title}", value="year")
    record = Record(Book, "book:{year:-04d}", newest)
    [(key, value)] = bound(record, newest).rows(Book(id="1", title="x", year=7), (7,)).items()
    assert bound(record, newest).owner_at(key, value) == ((7,), "book:9992")


def test_an_index_row_of_another_shape_is_unreadable() -> None:
    with pytest.raises(UnreadableError):
        bound(BOOK, BY_TITLE).owner("title:only", b'"1"')
    with pytest.raises(UnreadableError):
        bound(BOOK, ONE_TITLE).owner("one:x", b"{")
    assert (
        bound(BOOK, BY_TITLE).owners("title:only", b'"1"') == []
        and bound(BOOK, YEARS).owners("nope", b"[]") == []
    )


def test_an_entry_that_is_not_json_is_rejected_and_not_stored_as_null() -> None:
    """The result of `entry` was encoded unchecked: a NaN became null. A tuple was never equal to
    the list that it became, so `verify` reported every such row as wrong."""
    listed = Summary("all", member="id", under="ids", entry=lambda book: float("nan"))
    summary = bound(Record(Book, "b:{id}", listed), listed)
    with pytest.raises(DocumentError):
        summary.rows(Book(id="1", title="x"), ("1",))


def test_a_full_summary_lists_no_more_and_is_marked_as_truncated() -> None:
    listed = Summary("all", member="id", under="ids", members_max=2)
    summary = bound(Record(Book, "b:{id}", listed), listed)
    row = summary.merge("all", summary.merge("all", None, None, ("1", None)), None, ("2", None))
    assert row == b'{"ids":["1","2"]}' and not summary.is_truncated(row)
    full = summary.merge("all", row, None, ("3", None))
    assert full == b'{"ids":["1","2"],"truncated":true}' and summary.is_truncated(full)
    assert summary.merge("all", full, None, ("4", None)) == full, "nothing is written again"
    assert summary.merge("all", full, None, ("2", None)) == full
    assert summary.holds(full, ("3", None)) and not summary.holds(row, ("3", None))
    assert summary.merge("all", full, ("3", None), None) == full
    assert summary.merge("all", full, ("1", None), None) == b'{"ids":["2"],"truncated":true}'
    with pytest.raises(DeclarationError):
        Summary("all", member="id", under="ids", members_max=0)
    with pytest.raises(DeclarationError):
        Summary("all", member="id", under="ids", members_max=5, entry=lambda book: 1)


def test_a_derived_row_shows_itself() -> None:
    assert repr(IN_YEAR) == "RecordCount('count:{year:04d}')"


def test_siblings_are_the_records_that_differ_in_one_of_a_few_words() -> None:
    listed = Summary("all:{title}", member="id", under="ids")
    record = Record(Book, "{state:open|done}|{id}", listed, fields={"state": lambda book: "open"})
    summary = bound(record, listed)
    assert summary.siblings(("open", "1")) == [("done", "1")]
    assert summary.owners("all:x", b'{"ids":["1"]}') == [[("open", "1"), ("done", "1")]]


def test_fixing_a_field_in_a_store_changes_no_row() -> None:
    class Note(msgspec.Struct):
        id: str
        tag: str

    by_tag = Index("c:{customer}:tag:{tag}:{id}")
    note = Record(Note, "c:{customer}:n:{id}", by_tag)
    schema = Schema("notes", note, space=Space("a customer", field="customer"))
    row, value = schema.bind({"customer": "7"}).derived(by_tag), Note("1", "x")
    assert row.rows(value, ("1",)) == bound(note, by_tag).rows(value, ("7", "1"))
    assert schema.bind({"other": 1}).record(note) is note.unbound


class Guest(msgspec.Struct, kw_only=True):
    id: str
    name: str = ""
    pin: str = ""
    pins: list[str] = []


@pytest.mark.parametrize(
    ("row", "private"),
    [
        (Index("n:{name}:{id}"), ()),
        (Index("p:{pin}:{id}"), ("pin",)),
        (Index("x:{x}:{id}", fields={"x": "pin"}), ("x",)),
        (Index("x:{x}:{id}", each={"x": "pins"}), ("x",)),
        (Index("x:{x}:{id}", fields={"x": FromAttribute("pin", str.lower)}), ("x",)),
        (Index("x:{x}:{id}", fields={"x": FromAttribute("name", str.lower)}), ()),
        (Index("x:{x}:{id}", fields={"x": lambda guest: guest.name}), ("x",)),
        (Index("h:{pin:hmac}:{id}"), ()),
        (Unique("u:{pin}", value="id"), ("pin",)),
        (RecordCount("c:{pin}"), ("pin",)),
        (Summary("s:{name}", member="id", under="ids"), ()),
        (Summary("s:{name}", member="id", under="ids", entry=lambda guest: guest.pin), ("ids",)),
    ],
)
def test_a_derived_row_knows_its_fields_that_may_hold_private_attributes(
    row: Derived, private: tuple[str, ...]
) -> None:
    guest = Record(Guest, "guest:{id}", row, private=("pin", "pins"))
    assert bound(guest, row).private == private
    assert bound(Record(Guest, "guest:{id}", row), row).private == ()


def test_a_private_attribute_must_not_be_in_its_records_key() -> None:
    """Every answer shows the key of a record, and so the attribute."""
    with pytest.raises(DeclarationError, match="private attribute"):
        Record(Guest, "guest:{pin}", private=("pin",))
    with pytest.raises(DeclarationError, match="private attribute"):
        Record(Guest, "guest:{x}", fields={"x": "pin"}, private=("pin",))
    Record(Guest, "guest:{pin:hmac}", private=("pin",))
