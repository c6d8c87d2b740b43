"""A declaration that can't hold is refused when it is made: before any row, with what is wrong and
where."""

from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec
import pytest

from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys import Regex, Template
from keyhouse.schema import (
    Counter,
    First,
    FoldResult,
    Index,
    Log,
    LogState,
    Meta,
    Migration,
    Owner,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
    at_field,
    fixed,
    sliding,
)

SPACE = Space("a library")


class Book(msgspec.Struct, kw_only=True):
    id: str
    title: str = ""
    tags: list[str] = []
    version: int = 0
    until: str | None = None


class State(LogState):
    total: int = 0


class Needy(LogState):
    total: int


async def nothing(tx: Any, entry: Any) -> None:
    pass


def fold(state: State | None, event: Book, found: Any) -> FoldResult:
    return FoldResult(state or State(through=""))


BY_TITLE = Index("idx:title:{title}:{id}")
ELSEWHERE = Index("idx:other:{title}:{id}")


def record(*derived: Any, at: str = "b:{id}", **options: Any) -> Record[Book]:
    return Record(Book, at, *derived, **options)


def schema(*records: Record[Any], **options: Any) -> Schema:
    return Schema("s", *records, space=SPACE, **options)


def migration(id: int) -> Migration:
    return Migration(id, "…", record(), nothing)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # Records
    "a key field with the name of an argument": (
        lambda: record(at="b:{limit}:{id}"),
        "own arguments",
    ),
    "a version that is not an attribute": (
        lambda: record(version=("nope", 1)),
        "no such attributes",
    ),
    "a stamp that is not an attribute": (lambda: record(created="nope"), "no such attributes"),
    "a secret that is not an attribute": (lambda: record(private=("nope",)), "no such attributes"),
    "a computed value that is not an attribute": (
        lambda: record(computed={"nope": id}),
        "no such attributes",
    ),
    "a place for the unknown that is not an attribute": (
        lambda: record(unknown="nope"),
        "no such attributes",
    ),
    "an expiry at no attribute": (lambda: record(expiry=at_field("nope")), "no such attributes"),
    "a key field from no attribute": (
        lambda: record(at="b:{x}", fields={"x": "nope.deep"}),
        "no such attributes",
    ),
    "a source for no key field": (lambda: record(fields={"nope": "title"}), "no such fields"),
    "an upgrade without a version": (lambda: record(upgrade=dict), "needs a version"),
    "an expiry of no time": (lambda: record(expiry=fixed(0)), "1 to 2,147,483,647"),
    "an expiry of negative time": (
        lambda: record(expiry=sliding(-5)),
        "1 to 2,147,483,647",
    ),
    "an expiry beyond the limit": (
        lambda: record(expiry=fixed(2**31)),
        "1 to 2,147,483,647",
    ),
    "an expiring record in a summary": (
        lambda: record(Summary("all", member="id", under="ids"), expiry=fixed(60)),
        "would outlive it",
    ),
    "an expiring record in a count": (
        lambda: record(RecordCount("n:{title}"), expiry=sliding(60)),
        "would outlive it",
    ),
    "an expiring record as the first of several": (
        lambda: record(
            BY_TITLE, First("t:{title}", value="id", among=BY_TITLE), expiry=sliding(60)
        ),
        "would outlive it",
    ),
    # Derived rows
    "each of two fields": (
        lambda: Index("i:{a}:{b}", each={"a": "tags", "b": "tags"}),
        "each value of one field",
    ),
    "a source for a field that the row does not have": (
        lambda: Index("i:{id}", fields={"titel": "title"}),
        "no such field",
    ),
    "each of a field that the row does not have": (
        lambda: Index("i:{id}", each={"tag": "tags"}),
        "no such field",
    ),
    "a field that the record does not have": (
        lambda: record(Index("i:{nope}:{id}")),
        "that its record does not",
    ),
    "a source that the record does not have": (
        lambda: record(Index("i:{x}:{id}", fields={"x": "nope"})),
        "that its record does not",
    ),
    "a value that the record does not have": (
        lambda: record(Index("i:{title}:{id}", value="nope")),
        "no such attributes",
    ),
    "an index that two records could derive": (
        lambda: record(Index("i:{title}", value="id")),
        "Two records could derive",
    ),
    "an index that does not lead back": (lambda: record(Index("i:{title}")), "does not lead back"),
    "a unique row that does not lead back": (
        lambda: record(Unique("i:{title}", value="title")),
        "does not lead back",
    ),
    "a field of the key that stands for another": (
        lambda: record(Index("i:{id}", each={"id": "tags"})),
        "does not lead back",
    ),
    "an index over one of a few words": (
        lambda: Record(
            Book, "{version:a|b}:{id}", Index("i:{id}"), fields={"version": lambda book: "a"}
        ),
        "Two records could derive",
    ),
    "a unique row over one of a few words": (
        lambda: Record(Book, "{kind:a|b}:{id}", Unique("i:{title}", value="id")),
        "Two records could derive",
    ),
    "a first row that is among nothing": (
        lambda: record(First("t:{title}", value="id", among=ELSEWHERE)),
        "an index of its record",
    ),
    "a first row among an index of another order": (
        lambda: _first_among(
            Index("idx:{version}:{title}:{id}", fields={"version": lambda book: str(book.version)})
        ),
        "begins with its fields",
    ),
    "a first row among others than those that earn it": (
        lambda: record(
            BY_TITLE,
            First("t:{title}", value="id", among=BY_TITLE, when=lambda book: book.version > 0),
        ),
        "with the same `when`",
    ),
    "a summary of no key field": (
        lambda: record(Summary("all", member="title", under="ids")),
        "lists a field",
    ),
    "a summary of numbers": (
        lambda: record(
            Summary("all", member="n", under="ids"), at="b:{n:04d}", fields={"n": "version"}
        ),
        "that is text",
    ),
    "a summary whose list is its version too": (
        lambda: Summary("all", member="id", under="ids", version=("ids", 1)),
        "the name of the list",
    ),
    "a map of entries that two records could have": (
        lambda: Record(
            Book, "{kind:a|b}:{id}", Summary("all", member="id", under="ids", entry=str)
        ),
        "under the same member",
    ),
    "a day as the value of an index": (
        lambda: Record(date, "d:{day:date}", Unique("first", value="day")),
        "cannot be read back",
    ),
    "a day that may be absent, as the value of an index": (
        lambda: Record(date, "d:{day:date?}", Unique("first", value="day")),
        "cannot be read back",
    ),
    "an attribute that is code": (
        lambda: record(Index("i:{x}:{id}", fields={"x": "title.x or __import__('os')"})),
        "a field that its record does not",
    ),
    "a lifetime in words": (lambda: record(expiry=fixed("30")), "whole number of seconds"),  # type: ignore[arg-type]
    "a lifetime of half a second": (lambda: record(expiry=fixed(0.5)), "whole number of seconds"),  # type: ignore[arg-type]
    "an invalid pattern": (lambda: Regex("("), "Not a regular expression"),
    "a number longer than a key": (lambda: Template("b:{n:09999d}"), "1 to 100 digits"),
    # Logs
    "a fold without a state": (lambda: Log(Book, "e:{id}", fold=fold), "both a fold and a state"),
    "a state without a fold": (
        lambda: Log(Book, "e:{id}", state=_state()),
        "both a fold and a state",
    ),
    "a state of another type": (
        lambda: Log(Book, "e:{id}", state=record(), fold=fold),
        "is a LogState",
    ),
    "a sequence that folds": (
        lambda: Log(Book, "e:{n:04d}", state=_state(), fold=fold, sequence=Counter("n", name="n")),
        "can't fold",
    ),
    # Schemas
    "two records of one name": (lambda: schema(record(), record(at="c:{id}")), "the same name"),
    "a log whose state is elsewhere": (
        lambda: schema(Log(Book, "e:{id}", name="e", state=_state(), fold=fold)),
        "a record of the same schema",
    ),
    "migrations that skip a number": (
        lambda: schema(record(), meta=Meta(), migrations=(migration(1), migration(3))),
        "numbered 1, 2, 3",
    ),
    "a key with two readings": (
        lambda: schema(Record(Book, Template("b:{id}:{x}", id=Regex("[a-z:]+")))),
        "parsed in two ways",
    ),
    "a scan that spills": (
        lambda: schema(Record(Book, "{kind:x|x_y}_{n:04d}")),
        "return keys of another",
    ),
    "two records at one key": (
        lambda: schema(record(), record(at="b:{x:ulid}", name="c")),
        "build the same key",
    ),
    "a record among another's": (
        lambda: schema(record(at="b:{x:ulid}"), record(at="b:map:{id}", name="map")),
        "would return rows of another",
    ),
    "an overlap that does not exist": (lambda: _needless_overlap(), "does not exist"),
    "a record that is not there": (lambda: schema(record()).record("nope"), "no such record"),
}


def _state() -> Record[State]:
    return Record(State, "state", name="state")


def _first_among(index: Index) -> Record[Book]:
    return record(index, First("t:{title}", value="id", among=index))


def _needless_overlap() -> Schema:
    one, other = record(), record(at="c:{id}", name="c")
    return schema(one, other, overlaps=((one, other),))


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_rejected_at_declaration(mistake: Callable[[], object], sentence: str) -> None:
    with pytest.raises(DeclarationError, match=sentence):
        mistake()


def test_a_known_overlap_is_accepted_and_remembered() -> None:
    books, maps = record(at="b:{id:ulid}"), record(at="b:map:{id}", name="map")
    made = schema(books, maps, overlaps=((books, maps),))
    of = made.unbound
    assert of.filters(of.bound(books)) and not of.filters(of.bound(maps))


def test_a_schema_with_migrations_has_a_place_to_note_them() -> None:
    assert schema(record(), migrations=(migration(1),)).meta is not None
    assert schema(record()).meta is None


def test_the_witness_is_a_key_of_both() -> None:
    one, other = record(at="b:{id:ulid}"), record(at="b:{x}", name="x")
    with pytest.raises(DeclarationError) as refused:
        schema(one, other)
    witness = refused.value.fields["witness"]
    assert isinstance(witness, str)
    assert one.template.parse(witness) is not None and other.template.parse(witness) is not None


def test_a_sound_schema_finds_what_a_key_is() -> None:
    by_tag = Index("idx:tag:{tag}:{id}", each={"tag": "tags"})
    books = record(BY_TITLE, by_tag)
    made = schema(books, meta=Meta(), migrations=(migration(1),), doc="Books.")
    assert made.version == 1 and repr(made) == "Schema('s')"
    found = made.find("idx:tag:fun:7")
    assert (
        found is not None and found.declared.declared is by_tag and found.record.declared is books
    )
    assert found.fields == {"tag": "fun", "id": "7"}
    assert made.find("idx:nope:7") is None
    assert made.record("book") is books
    assert schema(record()).version == 0


SPACES: dict[str, tuple[Space, str]] = {
    "empty": (SPACE, ""),
    "256 bytes": (SPACE, "x" * 256),
    "256 bytes of two each": (SPACE, "é" * 128),
    "U+0000": (SPACE, "a\0b"),
    "a lone surrogate": (SPACE, "\ud800"),
    "another than the only one": (Space("the one", name="main"), "other"),
    "not of the segment": (Space("a customer", segment=Regex("[0-9]+")), "abc"),
}


@pytest.mark.parametrize(("space", "name"), SPACES.values(), ids=SPACES)
def test_an_invalid_space_name_is_rejected(space: Space, name: str) -> None:
    with pytest.raises(KeyFieldError):
        space.bound(name)


def test_a_space_that_keys_repeat_is_fixed_in_them() -> None:
    assert Space("a customer", field="customer").bound("7") == {"customer": "7"}
    assert Space("the one", name="main").bound("main") == {}
    assert SPACE.bound("x" * 255) == {}


def test_a_declaration_does_not_change() -> None:
    """`BOOK.name = "x"` was accepted, and stores used the old name."""
    record = Record(Book, "book:{id}", BY_TITLE)
    log = Log(Book, "log:{id:ulid}", name="log")
    schema = Schema("books", record, log, space=SPACE, meta=Meta())
    under = schema.under("t:")
    for declared in (record, BY_TITLE, log, Counter("n:{id}"), Owner(record), schema, under, SPACE):
        for name in ("name", "template", "new"):
            with pytest.raises(AttributeError, match="does not change"):
                setattr(declared, name, None)
    assert Record[Book](Book, "book:{id}").name == "book"
