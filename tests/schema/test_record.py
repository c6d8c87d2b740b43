"""Records: what a write sets, what a read refuses, what leaves the store, and what is kept though
nobody here knows it."""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    NewerError,
    RecordError,
    UnreadableError,
    UsageError,
)
from keyhouse.limits import TTL_SECONDS_MAX
from keyhouse.schema import MILLISECONDS, Counter, Record, at_field, fixed, per_write, sliding

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class User(msgspec.Struct, kw_only=True, rename="camel"):
    id: str
    display_name: str
    password_hash: str = ""
    schema_version: int = 0
    created_at: str = ""
    updated_at: str = ""
    slug: str = ""
    rating: float | None = None
    extra: dict[str, Any] = {}


def upgraded(old: dict[str, Any]) -> dict[str, Any]:
    old["displayName"] = old.pop("name")
    return old


USER = Record(
    User,
    "u:{id}",
    version=("schema_version", 3),
    created="created_at",
    updated="updated_at",
    computed={"slug": lambda user: user.display_name.lower()},
    private=("password_hash",),
    unknown="extra",
    upgrade=upgraded,
)


def user(**changes: Any) -> User:
    return User(**{"id": "1", "display_name": "Ann", **changes})


# Attributes that a write sets


def test_a_write_sets_version_and_times_and_leaves_the_callers_value_alone() -> None:
    mine = user()
    stored = USER.unbound.stamp(USER.unbound.compute(mine), None, NOW)
    assert (stored.schema_version, stored.created_at, stored.updated_at) == (
        3,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
    )
    assert stored.slug == "ann"
    assert mine == user()


def test_computing_from_a_value_of_the_wrong_type_raises_record_error() -> None:
    """The slug is computed by `lower()` of the name: a number raised AttributeError."""
    with pytest.raises(RecordError):
        USER.unbound.compute(user(display_name=5))
    failing = Record(User, "u:{id}", computed={"slug": lambda value: value.nope})
    with pytest.raises(AttributeError, match="nope"):
        failing.unbound.compute(user())


def test_a_second_write_keeps_when_the_record_was_created() -> None:
    first = USER.unbound.stamp(user(), None, NOW)
    second = USER.unbound.stamp(user(created_at="what the caller says"), first, NOW + 5_000)
    assert (second.created_at, second.updated_at) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:05Z",
    )


def test_a_record_with_nothing_to_set_is_stored_as_it_came() -> None:
    class Note(msgspec.Struct):
        id: str

    record = Record(Note, "n:{id}")
    note = Note("1")
    assert record.unbound.compute(note) is note
    assert record.unbound.stamp(note, None, NOW) is note
    assert record.unbound.is_single_row


# Round trips


@given(
    value=st.builds(
        user,
        display_name=st.text(st.characters(exclude_categories=["Cs"])),
        rating=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        extra=st.dictionaries(
            st.text("abcXY", min_size=1), st.integers() | st.text("xyz"), max_size=3
        ),
    )
)
def test_a_record_reads_back_as_it_was_stored(value: User) -> None:
    value = USER.unbound.stamp(value, None, NOW)
    assert USER.json.decode(USER.json.encode(value)) == value


def test_unknown_members_are_stored() -> None:
    row = (
        b'{"id":"1","displayName":"Ann","schemaVersion":3,'
        b'"newThing":{"a":[1]},"extra":"theirs","z":null}'
    )
    value = USER.json.decode(row)
    assert value.extra == {"newThing": {"a": [1]}, "extra": "theirs", "z": None}
    again = msgspec.json.decode(USER.json.encode(value))
    assert again["newThing"] == {"a": [1]} and again["extra"] == "theirs" and again["z"] is None


def test_an_unknown_member_never_replaces_a_known_one() -> None:
    value = user(extra={"displayName": "Mallory", "passwordHash": "x", "more": 1})
    again = msgspec.json.decode(USER.json.encode(value))
    assert again["displayName"] == "Ann" and again["passwordHash"] == "" and again["more"] == 1


def test_a_record_that_omits_defaults_keeps_unknown_members_too() -> None:
    class Sparse(msgspec.Struct, omit_defaults=True):
        id: str
        other: dict[str, Any] = {}

    record = Record(Sparse, "s:{id}", unknown="other")
    assert record.json.encode(Sparse("1")) == b'{"id":"1"}'
    assert record.json.decode(b'{"id":"1","x":2}') == Sparse("1", {"x": 2})


# Private members


def test_a_private_member_is_hidden_under_its_json_name() -> None:
    """It was looked for under the attribute's name; a renamed one, `passwordHash`, went out."""
    shown = USER.shown(user(password_hash="secret", extra={"more": 1}))
    assert "secret" not in msgspec.json.encode(shown).decode()
    assert shown["displayName"] == "Ann" and shown["more"] == 1


def test_a_record_without_secrets_is_shown_whole() -> None:
    class Note(msgspec.Struct):
        id: str

    assert Record(Note, "n:{id}").shown(Note("1")) == {"id": "1"}


# Rejected values


class Deep(msgspec.Struct):
    id: str
    inner: "Deep | None" = None


@dataclass
class Position:
    x: float | None


class Pair(NamedTuple):
    x: float | None


class Shape(TypedDict):
    x: float | None


class Held(msgspec.Struct):
    id: str
    number: float | None = None
    numbers: list[float] = []
    position: Position | None = None
    pair: Pair | None = None
    shape: Shape | None = None
    anything: Any = None


HELD = Record(Held, "h:{id}")


@pytest.mark.parametrize(
    "value",
    [
        Held("1", number=math.nan),
        Held("1", number=math.inf),
        Held("1", numbers=[1.0, -math.inf]),
        Held("1", position=Position(math.nan)),
        Held("1", pair=Pair(math.nan)),
        Held("1", shape={"x": math.nan}),
        Held("1", anything={"x": [math.nan]}),
    ],
    ids=["optional", "infinity", "list", "dataclass", "named tuple", "typed dict", "any"],
)
def test_nan_is_rejected_and_not_stored_as_null(value: Held) -> None:
    with pytest.raises(DocumentError):
        HELD.json.encode(value)


@pytest.mark.parametrize("type_", [Position, Pair, Shape], ids=lambda type_: type_.__name__)
def test_a_type_with_a_number_somewhere_inside_is_always_looked_into(type_: Any) -> None:
    """Types that can hold a NaN are found at declaration. Dataclasses and named tuples were not
    inspected, and their NaN was stored as null."""

    class Holder(msgspec.Struct):
        id: str
        part: type_

    part = {"x": math.nan} if type_ is Shape else type_(math.nan)
    with pytest.raises(DocumentError):
        Record(Holder, "h:{id}").json.encode(Holder("1", part))


def test_a_recursive_type_is_rejected_when_a_value_is_too_deep() -> None:
    """It can hold no float, so it was never looked into: 500 levels were stored, and no other
    program could read them."""
    record = Record(Deep, "d:{id}")
    value: Deep | None = None
    for _ in range(129):
        value = Deep("1", value)
    assert value is not None
    with pytest.raises(DocumentError, match="too deep"):
        record.json.encode(value)
    assert value.inner is not None
    assert record.json.decode(record.json.encode(value.inner)) == value.inner


@pytest.mark.parametrize(
    "value",
    [
        Held(5),  # type: ignore[arg-type]
        Held("1", number="x"),  # type: ignore[arg-type]
        Held("1", numbers=None),  # type: ignore[arg-type]
        Held("1", numbers=[None]),  # type: ignore[list-item]
        Held(None),  # type: ignore[arg-type]
    ],
    ids=["int for str", "str for float", "null for list", "null in list", "null for str"],
)
def test_a_value_of_the_wrong_type_is_rejected(value: Held) -> None:
    with pytest.raises(RecordError):
        HELD.json.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        Held("\ud800"),
        Held("1", anything="\udfff"),
        Held("1", anything=object()),
        Held("1", anything={1: 2}),
    ],
)
def test_a_value_that_is_not_json_is_rejected(value: Held) -> None:
    with pytest.raises(DocumentError):
        HELD.json.encode(value)


@pytest.mark.parametrize("value", [{"id": "1"}, None, 5, "text"], ids=repr)
def test_a_value_of_another_type_is_rejected_by_name(value: Any) -> None:
    """A dict has no attribute `id`: that raised AttributeError, which no API handles."""
    with pytest.raises(RecordError):
        Record(Held, "h:{id}").unbound.key_values(value, {})


ANY: Record[Any] = Record(Any, "v:{key}", name="value")


@pytest.mark.parametrize("value", [{1, 2}, (1, 2), b"bytes", {"a": (1,)}, Held("1")], ids=repr)
def test_a_record_of_any_json_is_made_of_jsons_own_types(value: Any) -> None:
    with pytest.raises(DocumentError):
        ANY.json.encode(value)


@pytest.mark.parametrize(
    "value", [None, True, 0, -0.0, 1.0, "", [], {}, {"a": [1, 2.5, None]}, 2**70, "\0"], ids=repr
)
def test_a_record_of_any_json_keeps_any_json(value: Any) -> None:
    assert repr(ANY.json.decode(ANY.json.encode(value))) == repr(value)


# Rows that a read rejects


UNREADABLE = {
    "nothing": b"",
    "not JSON": b"{",
    "not an object": b"[1]",
    "not UTF-8": b'{"id":"\xff","displayName":"x","schemaVersion":3}',
    "a member missing": b'{"id":"1","schemaVersion":3}',
    "a member of another type": b'{"id":1,"displayName":"x","schemaVersion":3}',
    "a version that is text": b'{"id":"1","displayName":"x","schemaVersion":"3"}',
    "a version that is null": b'{"id":"1","displayName":"x","schemaVersion":null}',
    "too deep": b'{"id":"1","displayName":"x","schemaVersion":3,"a":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "an old one that cannot be upgraded": b'{"id":"1","schemaVersion":1}',
}


@pytest.mark.parametrize("row", UNREADABLE.values(), ids=UNREADABLE)
def test_a_row_that_is_not_of_its_record_is_unreadable_by_name(row: bytes) -> None:
    with pytest.raises(UnreadableError) as refused:
        USER.json.decode(row, "u:1")
    assert refused.value.fields["key"] == "u:1"


@pytest.mark.parametrize(
    "record", [HELD, ANY, Record(Deep, "d:{id}")], ids=lambda record: record.name
)
@pytest.mark.parametrize(
    "row",
    [b"[" * 100_000, b'{"id":"1","inner":' * 50_000 + b"null" + b"}" * 50_000],
    ids=["lists", "objects"],
)
def test_a_row_nested_without_end_is_unreadable_and_nothing_worse(
    record: Record[Any], row: bytes
) -> None:
    """Another program may have written it. The parser ran out of stack with a RecursionError, and
    `verify` with it."""
    with pytest.raises(UnreadableError):
        record.json.decode(row, "k")


@given(row=st.binary(max_size=60))
def test_any_row_decodes_or_is_rejected_by_name(row: bytes) -> None:
    for record in (USER, HELD, ANY):
        with suppress(DataError):
            record.json.decode(row, "k")


NEWER = {
    "and reads": b'{"id":"1","displayName":"x","schemaVersion":4}',
    "and does not read": b'{"id":{"new":1},"schemaVersion":9}',
}


@pytest.mark.parametrize("row", NEWER.values(), ids=NEWER)
def test_a_row_of_newer_code_is_rejected_as_such(row: bytes) -> None:
    """The version was looked for under the attribute's name and not the member's: newer rows were
    read, and written back as old ones."""
    with pytest.raises(NewerError) as refused:
        USER.json.decode(row, "u:1")
    assert refused.value.fields["known"] == 3


def test_a_row_of_older_code_is_brought_up_to_date_as_it_is_read() -> None:
    value = USER.json.decode(b'{"id":"1","name":"Ann","schemaVersion":1}')
    assert (value.display_name, value.schema_version) == ("Ann", 3)
    unversioned = USER.json.decode(b'{"id":"1","name":"Ann"}')
    assert (unversioned.display_name, unversioned.schema_version) == ("Ann", 3)


def test_a_row_of_todays_version_is_not_upgraded() -> None:
    assert USER.json.decode(
        b'{"id":"1","displayName":"Ann","name":"Bob","schemaVersion":3}'
    ).extra == {"name": "Bob"}


def test_a_record_without_a_version_reads_what_decodes() -> None:
    assert HELD.json.decode(b'{"id":"1","number":1.5}') == Held("1", 1.5)
    with pytest.raises(UnreadableError):
        HELD.json.decode(b'{"id":2}')


# Keys


class Event(msgspec.Struct):
    at: str
    kind: str


EVENT = Record(
    Event,
    "e:{stream}:{when}:{kind}",
    fields={"when": "at", "kind": lambda event: event.kind.upper()},
)


def test_key_fields_come_from_the_record_or_are_given() -> None:
    assert EVENT.unbound.key_values(Event("5", "x"), {"stream": "s"}) == ("s", "5", "X")
    assert EVENT.unbound.key_values(Event("5", "x"), {"stream": "s", "when": "5"}) == (
        "s",
        "5",
        "X",
    )


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({}, KeyFieldError),
        ({"stream": "s", "when": "6"}, KeyFieldError),
        ({"stream": "s", "zz": 1}, UsageError),
    ],
    ids=["missing", "another than the record's", "no such field"],
)
def test_key_fields_that_do_not_fit_are_rejected(
    given_: dict[str, object], error: type[KeyhouseError]
) -> None:
    with pytest.raises(error):
        EVENT.unbound.key_values(Event("5", "x"), given_)


# Expiry


class Session(msgspec.Struct):
    id: str
    until: str | None = None


def session(**options: Any) -> Record[Session]:
    return Record(Session, "s:{id}", times=MILLISECONDS, **options)


def test_a_fixed_expiry_is_that_of_the_first_write() -> None:
    record = session(expiry=fixed(60))
    assert record.unbound.expires(Session("1"), None, None, NOW) == NOW + 60_000
    assert record.unbound.expires(Session("1"), NOW + 10, None, NOW) == NOW + 10
    assert not record.unbound.is_single_row


def test_a_sliding_expiry_is_that_of_the_last_write() -> None:
    record = session(expiry=sliding(60))
    assert record.unbound.expires(Session("1"), NOW + 10, None, NOW) == NOW + 60_000
    assert record.unbound.expires(Session("1"), NOW + 10, 5, NOW) == NOW + 5_000


def test_an_expiry_per_write_is_the_ttl_of_the_write() -> None:
    record = session(expiry=per_write())
    assert record.unbound.expires(Session("1"), NOW + 10, None, NOW) is None
    assert record.unbound.expires(Session("1"), None, 5, NOW) == NOW + 5_000


def test_an_expiry_at_a_field_is_the_time_that_it_holds() -> None:
    record = session(expiry=at_field("until"))
    assert (
        record.unbound.expires(Session("1", "2026-01-01T00:00:01.500Z"), None, None, NOW)
        == NOW + 1_500
    )
    assert (
        record.unbound.expires(Session("1", "2026-01-01T01:00:01+01:00"), None, None, NOW)
        == NOW + 1_000
    )
    assert record.unbound.expires(Session("1"), None, None, NOW) is None
    for bad in ("tomorrow", "2026-01-01T00:00:00", "", "2026-13-01T00:00:00Z"):
        with pytest.raises(DocumentError):
            record.unbound.expires(Session("1", bad), None, None, NOW)


def test_a_record_that_does_not_expire_takes_no_ttl() -> None:
    assert session().unbound.expires(Session("1"), None, None, NOW) is None
    for record in (session(), session(expiry=at_field("until"))):
        with pytest.raises(UsageError):
            record.unbound.expires(Session("1"), None, 5, NOW)


@pytest.mark.parametrize(
    "ttl", [0, -1, 0.0001, float("nan"), True, "5", TTL_SECONDS_MAX + 1], ids=repr
)
def test_a_ttl_is_a_number_of_seconds_within_bounds(ttl: Any) -> None:
    with pytest.raises(RecordError):
        session(expiry=per_write()).unbound.expires(Session("1"), None, ttl, NOW)
    assert (
        session(expiry=per_write()).unbound.expires(Session("1"), None, TTL_SECONDS_MAX, NOW)
        == NOW + TTL_SECONDS_MAX * 1_000
    )


def test_a_record_and_its_counter_show_themselves() -> None:
    assert repr(USER) == "Record(user at 'u:{id}')"
    assert Counter("n:{id}", name="hits").type is int


def test_completion_on_a_record_offers_its_declaration() -> None:
    record = Record(str, "r:{id}", name="r")
    offered = [name for name in dir(record) if not name.startswith("_")]
    assert "shown" in offered and "bind" not in offered and "stamp" not in offered
    assert all(hasattr(record, name) for name in offered)
