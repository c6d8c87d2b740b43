"""The child process of `test_opening_together.py`: it opens a space that is to be migrated."""

import asyncio
from multiprocessing.synchronize import Barrier
from queue import Queue
from typing import Any

from msgspec import Struct

from keyhouse import Index, Meta, Migration, Record, Schema, Space, Transaction, open_store
from keyhouse.store import Entry

SONGS = 250


class OldSong(Struct):
    id: str
    title: str


class Song(Struct):
    id: str
    name: str
    seconds: int


OLD_SONG = Record(OldSong, "song:{id}", name="song")
SONG = Record(Song, "song:{id}", Index("idx:song:name:{name}:{id}"))


async def _rename(tx: Transaction, entry: Entry[OldSong]) -> None:
    await asyncio.sleep(0.001)  # so that the others meet the lease
    await tx.put(SONG, Song(id=entry.record.id, name=entry.record.title, seconds=0))


async def _count(tx: Transaction, entry: Entry[Song]) -> None:
    entry.record.seconds += 1
    await tx.put(SONG, entry.record)


BEFORE = Schema("songs", OLD_SONG, space=Space("a channel"), meta=Meta())
AFTER = Schema(
    "songs",
    SONG,
    space=Space("a channel"),
    meta=Meta(),
    migrations=(
        Migration(1, "Rename the title", OLD_SONG, _rename),
        Migration(2, "Count once", SONG, _count),
    ),
)


def open_together(barrier: Barrier, url: str, answers: "Queue[str]") -> None:
    """Open the space when all processes are there; report what was read, or the error."""
    barrier.wait()
    answers.put(asyncio.run(_open(url)))


async def _open(url: str) -> str:
    try:
        async with open_store(AFTER, url, "radio") as store:
            read: list[Any] = [entry.record.seconds async for entry in store.scan(SONG)]
    except Exception as error:
        return repr(error)
    return f"{len(read)} songs, each counted {set(read)}"
