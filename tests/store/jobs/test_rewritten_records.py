"""Records that newer code has written before its migration ran."""

import asyncio

from msgspec import Struct

from keyhouse.engines.memory import MemoryEngine
from keyhouse.schema import Index, Meta, Migration, Record, Schema, Space
from keyhouse.store import Entry, Store, Transaction, migrate, verify


class Oldest(Struct, kw_only=True):
    id: str
    seconds: int = 0


class Second(Struct, kw_only=True):
    id: str
    length: int = 0


class Third(Struct, kw_only=True):
    id: str
    minutes: int = 0


async def _to_second(tx: Transaction, entry: Entry[Oldest]) -> None:
    await tx.put(SECOND, Second(id=entry.record.id, length=entry.record.seconds))


async def _to_third(tx: Transaction, entry: Entry[Second]) -> None:
    await tx.put(THIRD, Third(id=entry.record.id, minutes=entry.record.length // 60))


FIRST = Record(Oldest, "song:{id}", name="song")
SECOND = Record(Second, "song:{id}", Index("idx:song:length:{length:06d}:{id}"), name="song")
THIRD = Record(Third, "song:{id}", Index("idx:song:minutes:{minutes:06d}:{id}"), name="song")
STEPS = (Migration(1, "length", FIRST, _to_second), Migration(2, "minutes", SECOND, _to_third))
SONGS = [
    Schema("songs", FIRST, meta=Meta(), space=Space("a band")),
    Schema("songs", SECOND, meta=Meta(), space=Space("a band"), migrations=STEPS[:1]),
    Schema("songs", THIRD, meta=Meta(), space=Space("a band"), migrations=STEPS),
]


def test_records_that_newer_code_wrote_before_the_migration_are_kept() -> None:
    """A plain store writes to a space that is not migrated. The migration decoded its records by
    the older declaration, whose members have defaults, and replaced their values by these."""

    async def story() -> None:
        engine = MemoryEngine()
        await Store(SONGS[0], engine, "x").put(FIRST, Oldest(id="a", seconds=120))
        await Store(SONGS[0], engine, "x").put(FIRST, Oldest(id="b", seconds=180))
        await Store(SONGS[1], engine, "x").put(SECOND, Second(id="b", length=240))
        await Store(SONGS[1], engine, "x").put(SECOND, Second(id="c", length=300))
        newest = Store(SONGS[2], engine, "x")
        await newest.put(THIRD, Third(id="d", minutes=6))
        await migrate(newest)
        found = {e.record.id: e.record.minutes async for e in newest.scan(THIRD)}
        assert found == {"a": 2, "b": 4, "c": 5, "d": 6}
        assert [finding async for finding in verify(newest)] == []

    asyncio.run(story())
