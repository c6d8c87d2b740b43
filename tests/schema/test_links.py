"""A link that cannot work is rejected when the schema is declared."""

from typing import Any

import msgspec
import pytest

from keyhouse.errors import DeclarationError
from keyhouse.schema import Index, Owner, Record, Reference, Schema, Space, per_write
from keyhouse.schema.description import describe


class Thing(msgspec.Struct, kw_only=True):
    id: str
    of: str | None = None
    number: int = 0


def record(name: str, *derived: Any, **options: Any) -> Record[Thing]:
    return Record(Thing, f"{name}:{{id}}", *derived, name=name, **options)


def schema(*records: Record[Any]) -> Schema:
    return Schema("things", *records, space=Space("a test"))


OWNER = record("owner")


def test_a_link_is_described() -> None:
    by = Index("things:{of}:{id}")
    described = describe(
        schema(
            OWNER,
            record("thing", by, belongs_to=Owner(OWNER, by=by)),
            Record(str, "part:{id}:{at}", name="part", belongs_to=(Owner(OWNER),)),
        )
    )
    assert described.records[1].notes == {"belongs to": "`owner:{id}`, found by `things:{of}:{id}`"}
    assert described.records[2].notes == {"belongs to": "`owner:{id}`"}


def rejected(sentence: str, *records: Record[Any]) -> None:
    with pytest.raises(DeclarationError, match=sentence):
        schema(*records)


def test_an_owner_of_another_schema_is_rejected() -> None:
    rejected("same schema", record("thing", belongs_to=Owner(OWNER)))
    rejected("same schema", record("thing", belongs_to=Owner("owner")))


def test_an_index_of_another_record_is_rejected() -> None:
    rejected(
        "index of the same record",
        OWNER,
        record("thing", belongs_to=Owner(OWNER, by=Index("things:{of}:{id}"))),
    )


def test_an_owner_that_expires_is_rejected() -> None:
    owner = record("owner", expiry=per_write())
    rejected("would outlive it", owner, record("thing", belongs_to=Owner(owner)))


def test_keys_that_do_not_begin_with_the_owner_are_rejected() -> None:
    by = Index("things:{number:04d}:{of}:{id}")
    rejected(
        "must begin with the key fields", OWNER, record("thing", by, belongs_to=Owner(OWNER, by=by))
    )
    two = Record(Thing, "two:{id}:{of:04d}", name="two", fields={"of": "number"})
    rejected("must begin with the key fields", two, record("thing", belongs_to=Owner(two)))


def test_an_owned_record_cannot_be_referred_to() -> None:
    owned = record("owned", belongs_to=Owner(OWNER))
    rejected("nothing can refer to it", OWNER, owned, record("thing", references=Reference(owned)))


def test_an_owner_with_legacy_keys_is_rejected() -> None:
    owner = record("owner", legacy_at="old:{id}")
    rejected("legacy key", owner, record("thing", belongs_to=Owner(owner)))


def test_the_arguments_of_a_link_have_types() -> None:
    with pytest.raises(DeclarationError, match="wrong type"):
        Owner(OWNER, by="things")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="wrong type"):
        record("thing", belongs_to=OWNER)
