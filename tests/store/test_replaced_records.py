"""Another declaration of a record in the same schema: `Schema.replacing`."""

import asyncio

import pytest
from msgspec import Struct

from keyhouse import KeyRing, Meta, Record, Schema, Space, Store, Unique, open_engine
from keyhouse.errors import DeclarationError
from keyhouse.schema import Index, Owner
from keyhouse.store import verify


class Member(Struct, kw_only=True):
    id: str
    email: str


class Note(Struct, kw_only=True):
    id: str
    member: str


BY_EMAIL = Unique("by-email:{email:norm}", value="id")
MEMBER = Record(Member, "member:{id}", BY_EMAIL)
BY_EMAIL_SEALED = Unique("by-email:{email:hmac}", value="id")
SEALED = Record(Member, "member:{id}", BY_EMAIL_SEALED, sealed=("email",))
OF_MEMBER = Index("of-member:{member}:{id}")
NOTE = Record(Note, "note:{id}", OF_MEMBER, belongs_to=Owner(MEMBER, by=OF_MEMBER))
CLUB = Schema("club", MEMBER, NOTE, meta=Meta(), space=Space("a club"))


@pytest.mark.parametrize("prefix", ["", "tenant:{tenant}:"])
def test_the_record_is_a_handle_of_the_other_declaration(prefix: str) -> None:
    async def scenario() -> None:
        schema = CLUB.replacing(MEMBER, SEALED)
        schema = schema.under(prefix) if prefix else schema
        engine = await open_engine("memory:")
        store = Store(schema, engine, "chess", key_ring=KeyRing.new())
        key = (await store.put(MEMBER, Member(id="1", email="ada@example.org"))).key
        await store.put(NOTE, Note(id="n", member="1"))
        row = await store.row(key)
        assert row is not None and b"ada@" not in row.value
        for handle, index in ((MEMBER, BY_EMAIL), (SEALED, BY_EMAIL_SEALED)):
            assert await store.get(handle, id="1") == Member(id="1", email="ada@example.org")
            found = await store.lookup(handle, index, email="ada@example.org")
            assert found is not None and found.record.id == "1"
        assert [each async for each in verify(store)] == []
        await store.delete(MEMBER, id="1")  # with what belongs to it
        assert await store.get(NOTE, id="n") is None
        await engine.close()

    asyncio.run(scenario())


def test_the_schema_itself_stays_as_it_is() -> None:
    CLUB.replacing(MEMBER, SEALED)
    assert CLUB.record_of(MEMBER) is MEMBER and CLUB.record_of(SEALED) is None


def test_another_record_or_other_rows_are_rejected() -> None:
    with pytest.raises(DeclarationError, match="no such record"):
        CLUB.replacing(SEALED, MEMBER)
    without_rows = Record(Member, "member:{id}")
    with pytest.raises(DeclarationError, match="same kinds of derived rows"):
        CLUB.replacing(MEMBER, without_rows)
