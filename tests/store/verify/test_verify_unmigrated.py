"""`verify` of a space with pending migrations: it advises to migrate, and touches nothing."""

from typing import Any

import msgspec

from keyhouse.schema import Index, Meta, Migration, Record, Schema, Space
from keyhouse.store import Store, Transaction, migrate, verify
from tests.store.support.harness import Harness, everywhere


class OldSong(msgspec.Struct):
    id: str
    title: str


class Song(msgspec.Struct):
    id: str
    name: str


SPACE = Space("a channel")
OLD = Record(OldSong, "song:{id}", Index("idx:title:{title}:{id}"), name="song")
SONG = Record(Song, "song:{id}", Index("idx:name:{name}:{id}"))


async def _rename(tx: Transaction, entry: Any) -> None:
    await tx.put(SONG, Song(entry.record.id, entry.record.title))


BEFORE = Schema("songs", OLD, space=SPACE, meta=Meta())
AFTER = Schema("songs", SONG, space=SPACE, migrations=(Migration(1, "Rename", OLD, _rename),))


@everywhere
async def test_a_space_to_migrate_is_neither_repaired_nor_deleted(harness: Harness) -> None:
    """`--delete-unreadable` deleted the records of the older declaration, and `--repair` was the
    advice."""
    for id in ("a", "b"):
        await Store(BEFORE, harness.engine, "radio").put(OLD, OldSong(id, id.upper()))
    store = Store(AFTER, harness.engine, "radio")
    before = [(row.key, row.value) async for row in store.row_scan()]
    for repair, delete in ((False, False), (False, True), (True, False), (True, True)):
        found = [
            (each.kind, each.detail, each.repaired)
            async for each in verify(store, repair=repair, delete_unreadable=delete)
        ]
        assert found == [("unmigrated", "it is at version 0 of 1", False)]
        assert [(row.key, row.value) async for row in store.row_scan()] == before
    await migrate(store)
    assert [each async for each in verify(store)] == []
    assert await store.get(SONG, id="b") == Song("b", "B")
