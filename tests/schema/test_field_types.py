"""The types of attributes that feed keys: each works, or is rejected with advice."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from keyhouse.errors import DeclarationError, DocumentError, KeyFieldError, UsageError
from keyhouse.schema import Index, Record, RecordCount, Summary, Unique, at_field


class Plain(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042  # other programs have such
    RED = "red"


class Inner(msgspec.Struct):
    name: str
    count: int = 0


class Thing(msgspec.Struct, kw_only=True):
    id: str = "1"
    n: int = 7
    price: float = 1.5
    exact: Decimal = Decimal("1.5")
    flag: bool = True
    uuid: UUID = UUID(int=0)
    plain: Plain = Plain.RED
    number: Number = Number.ONE
    word: Word = Word.RED
    mixed: Mixed = Mixed.RED
    choice: Literal["red", "blue"] = "red"
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    hour: time = time(1)
    text_or_none: str | None = None
    sized: Annotated[int, msgspec.Meta(ge=0)] = 3
    tags: list[str] = []
    numbers: set[int] = set()
    scores: dict[str, int] = {}
    inner: Inner | None = None
    anything: Any = None
    data: bytes = b""


def index(template: str, **options: Any) -> Callable[[], Record[Thing]]:
    return lambda: Record(Thing, "t:{id}", Index(template, **options))


ACCEPTED: dict[str, tuple[Callable[[], Record[Thing]], str]] = {
    "an int with a width": (index("i:{n:04d}:{id}"), "i:0007:1"),
    "an annotated int": (index("i:{sized:04d}:{id}"), "i:0003:1"),
    "a float with digits": (index("i:{price:06.2f}:{id}"), "i:000150:1"),
    "a decimal": (index("i:{exact:06.2f}:{id}"), "i:000150:1"),
    "a StrEnum": (index("i:{word}:{id}"), "i:red:1"),
    "a StrEnum of words": (index("i:{word:red|blue}:{id}"), "i:red:1"),
    "an Enum that is text": (index("i:{mixed}:{id}"), "i:red:1"),
    "a Literal": (index("i:{choice:red|blue}:{id}"), "i:red:1"),
    "a time": (index("i:{at:time}:{id}"), "i:1767225600000:1"),
    "a time, newest first": (index("i:{at:-time}:{id}"), "i:8232774399999:1"),
    "a day": (index("i:{day:date}:{id}"), "i:2026-01-01:1"),
    "anything, where it is text": (index("i:{anything}:{id}"), ""),
    "a nested attribute": (index("i:{x}:{id}", fields={"x": "inner.name"}), ""),
    "each text of a list": (index("i:{tag}:{id}", each={"tag": "tags"}), ""),
    "each number of a set": (index("i:{x:04d}:{id}", each={"x": "numbers"}), ""),
    "each key of a dict": (index("i:{x}:{id}", each={"x": "scores"}), ""),
    "a function": (
        index("i:{x}:{id}", fields={"x": lambda thing: thing.uuid.hex}), f"i:{'0' * 32}:1"
    ),
    "text that may be None": (index("i:{text_or_none}:{id}"), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_type_that_works(case: str) -> None:
    declare, row = ACCEPTED[case]
    record = declare()
    assert list(record.unbound.derived[0].rows(Thing(), ("1",))) == ([row] if row else [])


REJECTED: dict[str, tuple[Callable[[], object], str]] = {
    "an int": (index("i:{n}:{id}"), "write {n:06d}"),
    "a float": (index("i:{price}:{id}"), "needs its digits; write {price:010.3f}"),
    "a time": (index("i:{at}:{id}"), "write {at:time}, or {at:-time} for newest first"),
    "a day": (index("i:{day}:{id}"), "write {day:date}"),
    "a time of day": (index("i:{hour}:{id}"), "time of day cannot be a key field"),
    "a UUID": (index("i:{uuid}:{id}"), "declare it as str"),
    "a bool": (index("i:{flag}:{id}"), "select records with when="),
    "bytes": (index("i:{data}:{id}"), "only text, numbers, days and times"),
    "a Struct": (index("i:{inner}:{id}"), "only text, numbers, days and times"),
    "an Enum": (index("i:{plain}:{id}"), r"make it a StrEnum, or Literal\['red'\]"),
    "an Enum of numbers": (index("i:{number}:{id}"), "make it a StrEnum"),
    "a list": (index("i:{tags}:{id}"), 'each={"tags": "tags"}'),
    "a dict": (index("i:{scores}:{id}"), 'each={"scores": "scores"}'),
    "text as a number": (index("i:{choice:04d}:{id}"), "whole"),
    "a number as a day": (index("i:{n:date}:{id}"), "holds a date"),
    "each of text": (index("i:{x}:{id}", each={"x": "id"}), "values of a list or set"),
    "each of numbers without a width": (
        index("i:{x}:{id}", each={"x": "numbers"}),
        "write {x:06d}",
    ),
    "a nested int": (index("i:{x}:{id}", fields={"x": "inner.count"}), "write {x:06d}"),
    "an int in the record's own key": (
        lambda: Record(Thing, "t:{n}"),
        "write {n:06d}",
    ),
    "a UUID in the record's own key": (
        lambda: Record(Thing, "t:{id}", fields={"id": "uuid"}),
        "declare it as str",
    ),
    "a class that is not a Struct": (lambda: Record(Path, "t:{id}"), "class Path(msgspec.Struct)"),
    "a list in a count": (lambda: Record(Thing, "t:{id}", RecordCount("c:{tags}")), "each="),
    "a misspelled attribute": (
        index("i:{tag}:{id}", each={"tag": "tagz"}),
        "attribute='tagz', nearest='tags'",
    ),
    "a misspelled field": (index("i:{prize:04d}:{id}"), "field='prize', nearest='price'"),
    "a misspelled field in each": (
        index("i:{tag}:{id}", each={"tagg": "tags"}),
        r"fields=\['tagg'\], nearest='tag'",
    ),
    "a misspelled nested attribute": (
        index("i:{x}:{id}", fields={"x": "inner.nam"}),
        "attribute='inner.nam', nearest='name'",
    ),
    "a misspelled option": (
        lambda: Record(Thing, "t:{id}", private=("pric",)),
        "nearest='price'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REJECTED)
def test_a_type_that_does_not_work_is_rejected_with_advice(case: str) -> None:
    declare, advice = REJECTED[case]
    with pytest.raises(DeclarationError) as raised:
        declare()
    assert advice.replace("\\", "") in str(raised.value)


@dataclass
class Card:
    id: str
    title: str


class Dictionary(TypedDict):
    id: str


class Pair(NamedTuple):
    id: str


@pytest.mark.parametrize("type_", [Card, Dictionary, Pair])
def test_a_type_whose_members_are_not_seen_is_rejected(type_: Any) -> None:
    with pytest.raises(DeclarationError, match=r"class \w+\(msgspec.Struct\)"):
        Record(type_, "card:{id}")
    with pytest.raises(DeclarationError, match=r"msgspec.Struct"):
        Record(type_, "card:{at}", Index("i:{title}:{at}"))
    Record(type_, "card:{at}")  # a value like any other, at a key that is given


def test_a_misspelled_field_of_a_call_is_named() -> None:
    record = Record(Thing, "t:{ide}", fields={"ide": None})
    with pytest.raises(KeyFieldError, match=r"field='ide'.*nearest='id'"):
        record.unbound.address(Thing(), {})
    with pytest.raises(UsageError, match=r"fields=\['idde'\], nearest='ide'"):
        record.unbound.address(Thing(), {"ide": "1", "idde": "1"})


def test_an_option_that_does_not_exist_is_pythons_own_error() -> None:
    misspelled: Any = {"eahc": {"tag": "tags"}}
    kinds: list[tuple[Any, dict[str, str]]] = [
        (Index, {}),
        (Unique, {"value": "id"}),
        (RecordCount, {}),
    ]
    for kind, named in kinds:
        with pytest.raises(TypeError, match="eahc"):
            kind("i:{tag}", **named, **misspelled)
    with pytest.raises(TypeError, match="eahc"):
        Summary("s:{tag}", member="id", under="ids", **misspelled)


def test_a_misspelled_key_field_is_rejected_when_it_is_declared() -> None:
    """`Record(R, "r:{ide}")` was rejected only by the first put."""

    class Page(msgspec.Struct):
        id: str
        title: str
        days: int = 0
        users: list[str] = []

    for at in ("page:{ide}", "page:{id}:{titel}", "page:{titles}", "page:{di}:{titlo}"):
        with pytest.raises(DeclarationError, match="nearly the name") as error:
            Record(Page, at)
        assert error.value.fields["nearest"] in ("id", "title")
    for given in ("page:{id}:{user}", "page:{day:date}", "page:{id}:{ti}", "page:{customer}"):
        Record(Page, given)
    assert Record(Page, "page:{ide}", fields={"ide": None}).holder("ide") is None
    with pytest.raises(DeclarationError, match="no such fields"):
        Record(Page, "page:{id}", fields={"ide": None})


def test_a_key_takes_some_fields_from_the_value_and_the_others_as_given() -> None:
    record = Record(Thing, "t:{list}:{id}", name="thing")
    assert record.unbound.address(Thing(id="a"), {"list": "b"}) == (("b", "a"), "t:b:a")
    assert record.unbound.address(Thing(id="a"), {"list": "b", "id": "a"}) == (("b", "a"), "t:b:a")
    for given, field in (({"list": ""}, "list"), ({"list": 1}, "list"), ({}, "list")):
        with pytest.raises(KeyFieldError) as raised:
            record.unbound.address(Thing(id="a"), given)
        assert raised.value.fields["field"] == field
    with pytest.raises(KeyFieldError):
        record.unbound.address(Thing(id="a"), {"list": "b", "id": "c"})


class Timed(msgspec.Struct, kw_only=True):
    id: str
    text: str | None = None
    moment: datetime | None = None
    number: int | None = None
    either: int | str = ""


def test_a_time_that_the_store_writes_is_text() -> None:
    """With a datetime, the declaration was accepted, and every write was rejected."""
    for attribute in ("moment", "number"):
        options: list[dict[str, Any]] = [
            {"created": attribute},
            {"updated": attribute},
            {"timestamps": (attribute,)},
        ]
        for given in options:
            with pytest.raises(DeclarationError, match="declare the attribute as `str`"):
                Record(Timed, "timed:{id}", **given)
    for attribute in ("text", "either"):
        Record(Timed, "timed:{id}", created=attribute)


def test_a_record_expires_at_a_datetime_or_a_text() -> None:
    for attribute in ("text", "moment", "either"):
        Record(Timed, "timed:{id}", expiry=at_field(attribute))
    with pytest.raises(DeclarationError, match="declare the attribute as `datetime`"):
        Record(Timed, "timed:{id}", expiry=at_field("number"))
    record = Record(Timed, "timed:{id}", expiry=at_field("moment"))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    timed = Timed(id="a", moment=moment)
    assert record.unbound.expires(timed, None, None, 0) == record.times.parse(
        "2026-01-01T00:00:00Z"
    )
    read = record.json.decode(record.json.encode(timed), "timed:a")
    assert record.json.field_expiry(read, "timed:a") == record.unbound.expires(timed, None, None, 0)
    assert record.unbound.expires(Timed(id="a"), None, None, 0) is None
    with pytest.raises(DocumentError, match="has no zone"):
        record.unbound.expires(Timed(id="a", moment=datetime(2026, 1, 1)), None, None, 0)
