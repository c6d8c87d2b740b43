"""A kind of key field and kinds of derived rows of one's own, as ARCHITECTURE.md says to add them.

A new kind of derived row was described as a record whose value is the number of records. One that
several records share was repaired as if it were the row of one record: `verify` wrote the
contribution of that record over those of the others.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from keyhouse import (
    KeyhouseError,
    Meta,
    Migration,
    Record,
    Schema,
    Space,
    Template,
    open_store,
    verify,
)
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DeclarationError, UnbuiltIndexError, UnreadableError
from keyhouse.keys.segment import Segment
from keyhouse.schema import document
from keyhouse.schema.compiled_rows import KeyValues
from keyhouse.schema.derived import BoundDerived, Derived, RowPlace
from keyhouse.schema.description import describe
from keyhouse.schema.expiry import per_write
from keyhouse.store import Entry, Store, Transaction
from keyhouse.studio.private_keys import KeyView

ID = "0190b3b1-5ea4-7a31-8d0a-6a1f3d1c8a01"


class Uuid(Segment):
    length = 36
    takes = (str,)
    pattern = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    description = "a UUID"
    is_verbatim = True

    def format(self, value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            raise ValueError("must be a UUID in lower case")
        return value

    def parse(self, text: str) -> str:
        return text


class Card(Derived):
    """A row with some attributes of the record, for lists."""

    kind = "card"

    def __init__(self, at: Template, *members: str) -> None:
        super().__init__(at)
        self.members: Sequence[str] = members

    def bind(self, place: RowPlace) -> "BoundCard":
        return BoundCard(self, place)

    def value_text(self) -> str:
        return ", ".join(self.members)


class BoundCard(BoundDerived):
    declared: Card

    def contribution(self, record: Any, values: KeyValues) -> bytes:
        return document.encode_checked(
            {name: getattr(record, name) for name in self.declared.members}
        )


class Song(msgspec.Struct):
    id: str
    title: str
    artist: str


CARD = Card(Template("card:{artist}:{id}", id=Uuid()), "title")
SONG = Record(Song, Template("song:{id}", id=Uuid()), CARD)
SCHEMA = Schema("songs", SONG, meta=Meta(), space=Space("a listener"))


def test_they_are_written_found_verified_and_described() -> None:
    async def scenario() -> None:
        async with open_store(SCHEMA, MemoryEngine(), "ann") as store:
            await store.put(SONG, Song(ID, "Blue", "Joni"))
            with pytest.raises(KeyhouseError, match="must be a UUID"):
                await store.get(SONG, id="x")
            key = f"card:Joni:{ID}"
            row = await store.row(key)
            assert row is not None and row.value == b'{"title":"Blue"}'
            found = store.find(key)
            assert found is not None and found.fields == {"artist": "Joni", "id": ID}
            async with store.transaction() as tx:
                tx.write(key, None)
                tx.write(f"card:Neil:{ID}", (b"{}", None))
            findings = [each.kind async for each in verify(store, repair=True)]
            assert sorted(findings) == ["dangling", "missing"]
            assert [each async for each in verify(store)] == []

    asyncio.run(scenario())
    [row] = describe(SCHEMA).records[0].derived
    assert (row.kind, row.value) == ("card", "title")
    assert [field.type for field in row.fields] == ["text", "a UUID"]


def test_a_value_that_may_hold_a_private_member_is_not_shown() -> None:
    """The Studio asked whether a row was a summary, and showed the card of a private title to
    operators who may not see private members."""
    card = Card(Template("card:{artist}:{id}", id=Uuid()), "title")
    record = Record(Song, Template("song:{id}", id=Uuid()), card, private=("title",))
    store = Store(Schema("songs", record, space=Space("a listener")), MemoryEngine(), "ann")
    shown = KeyView([store]).value(f"card:Joni:{ID}", b'{"title":"Blue"}')
    assert b"Blue" not in shown


class Roster(Derived):
    """A row with the title of each record of the same fields, by the record's id."""

    kind = "roster"

    def bind(self, place: RowPlace) -> "BoundRoster":
        return BoundRoster(self, place)

    def value_text(self) -> str:
        return "{id: title, …}"

    def carried(self) -> str:
        return "id"


class BoundRoster(BoundDerived):
    strategy = "merge"

    def contribution(self, record: Any, values: KeyValues) -> tuple[str, str]:
        return str(values[0]), record.title

    def merge(self, key: str, row: bytes | None, removed: Any, added: Any) -> bytes | None:
        titles = _titles(row)
        if removed is not None:
            titles.pop(removed[0], None)
        if added is not None:
            titles[added[0]] = added[1]
        return document.encode_checked(titles) if titles else None

    def holds(self, row: bytes | None, contribution: tuple[str, str]) -> bool:
        return _titles(row).get(contribution[0]) == contribution[1]

    def owners(self, key: str, row: bytes) -> list[list[KeyValues]]:
        return [[(id,)] for id in _titles(row)]

    def stored_contribution(self, row: bytes, values: KeyValues) -> tuple[str, str]:
        return str(values[0]), _titles(row)[str(values[0])]


def _titles(row: bytes | None) -> dict[str, str]:
    titles = {} if row is None else document.parse(row)
    if not isinstance(titles, dict):
        raise UnreadableError("The roster is not a map.")
    return titles


BLUE, RIVER, RUST, LOST = [f"0190b3b1-5ea4-7a31-8d0a-6a1f3d1c8a0{n}" for n in range(4)]
SONGS = [Song(BLUE, "Blue", "Joni"), Song(RIVER, "River", "Joni"), Song(RUST, "Rust", "Neil")]
OF_JONI = {BLUE: "Blue", RIVER: "River"}
KEY = Template("song:{id}", id=Uuid())
LISTED = Record(Song, KEY, Roster("roster:{artist}"), name="song")


def schema(record: Record[Song], *migrations: Migration) -> Schema:
    return Schema("rosters", record, migrations=migrations, meta=Meta(), space=Space("a listener"))


Story = Callable[[Store], Awaitable[None]]


def with_songs(story: Story) -> Callable[[], None]:
    """Turn a story of a store with three songs into a test, after which the store is sound."""

    def test() -> None:
        async def scenario() -> None:
            async with open_store(schema(LISTED), MemoryEngine(), "ann") as store:
                await store.put_many(LISTED, SONGS)
                await story(store)
                assert [each async for each in verify(store)] == []

        asyncio.run(scenario())

    return test


async def roster(store: Store, artist: str) -> object:
    row = await store.row(f"roster:{artist}")
    return None if row is None else document.parse(row.value)


@with_songs
async def test_contributions_to_a_shared_row_come_and_go_with_their_records(store: Store) -> None:
    assert await roster(store, "Joni") == OF_JONI
    await store.update(LISTED, {"title": "A Case of You"}, id=BLUE)
    await store.update(LISTED, {"artist": "Neil"}, id=RIVER)
    assert await roster(store, "Joni") == {BLUE: "A Case of You"}
    assert await roster(store, "Neil") == {RUST: "Rust", RIVER: "River"}
    await store.delete(LISTED, id=BLUE)
    await store.delete(LISTED, id=RUST)
    assert await roster(store, "Joni") is None
    assert await roster(store, "Neil") == {RIVER: "River"}


@pytest.mark.parametrize(
    ("damaged", "kinds"),
    [
        (None, ["missing", "missing"]),
        ({BLUE: "Blue"}, ["wrong"]),
        ({BLUE: "Green", RIVER: "River"}, ["wrong"]),
        ({**OF_JONI, RUST: "Rust"}, ["dangling"]),
        ({**OF_JONI, LOST: "of no record"}, ["dangling"]),
        (["no map"], ["unreadable"] * 3),
    ],
)
def test_verify_repairs_contributions_to_a_shared_row(damaged: object, kinds: list[str]) -> None:
    @with_songs
    async def story(store: Store) -> None:
        async with store.transaction() as tx:
            value = None if damaged is None else (document.encode_checked(damaged), None)
            tx.write("roster:Joni", value)
        assert sorted([each.kind async for each in verify(store)]) == kinds
        assert await roster(store, "Joni") == damaged
        assert [each.repaired async for each in verify(store, repair=True)]
        assert await roster(store, "Joni") == OF_JONI

    story()


def test_a_shared_row_is_built_on_old_records() -> None:
    bare = Record(Song, KEY, name="song")

    async def scenario(engine: MemoryEngine) -> None:
        async with open_store(schema(bare), engine, "ann") as store:
            await store.put_many(bare, SONGS)
        with pytest.raises(UnbuiltIndexError):
            await open_store(schema(LISTED), engine, "ann")
        async with open_store(schema(LISTED), engine, "ann", reindex=True) as store:
            assert await roster(store, "Joni") == OF_JONI
            assert [each async for each in verify(store)] == []

    asyncio.run(scenario(MemoryEngine()))


class Track(msgspec.Struct):
    id: str
    title: str
    by: list[str]


def test_a_migration_takes_each_record_out_of_a_shared_row_and_into_others() -> None:
    track = Record(Track, KEY, Roster("roster:{artist}", each={"artist": "by"}), name="song")

    async def step(tx: Transaction, entry: Entry[Song]) -> None:
        song = entry.record
        by = [song.artist, "everyone"] if song.id != RIVER else ["everyone"]
        await tx.put(track, Track(song.id, song.title, by))

    migrated = schema(track, Migration(1, "several artists", LISTED, step))  # type: ignore[arg-type]

    async def scenario(engine: MemoryEngine) -> None:
        async with open_store(schema(LISTED), engine, "ann") as store:
            await store.put_many(LISTED, SONGS)
        async with open_store(migrated, engine, "ann") as store:
            assert await roster(store, "Joni") == {BLUE: "Blue"}
            assert await roster(store, "everyone") == {song.id: song.title for song in SONGS}
            assert [each async for each in verify(store)] == []

    asyncio.run(scenario(MemoryEngine()))


def test_a_record_that_expires_feeds_no_shared_row_of_ones_own() -> None:
    with pytest.raises(DeclarationError, match="would outlive it"):
        Record(Song, KEY, Roster("roster:{artist}"), expiry=per_write())
