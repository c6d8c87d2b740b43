"""Rows of a newer program are a separate kind of finding, and verify never deletes them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.keyring import KeyRing
from keyhouse.schema import (
    Index,
    Log,
    LogState,
    Meta,
    Migration,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
)
from keyhouse.store import Store, migrate
from tests.store.support.harness import Harness, findings, kinds_and_keys, played


class Song(msgspec.Struct):
    """A record with a version."""

    id: str
    title: str
    v: int = 1


class State(LogState):
    """The state of a log, with a version."""

    v: int = 1


def fold(state: Any, event: Any, found: Any) -> Any:
    raise AssertionError("no event is appended")


VERSION: Any = {"version": ("v", 1)}
LIST = Summary("list:all", member="id", under="ids", version=("v", 1))
MAP = Summary("map:all", member="id", under="ids", version=("v", 1), entry=lambda song: song.title)
STATE = Record(State, "state:{stream}", name="state", **VERSION)
RECORDS: dict[str, Record[Any]] = {
    "plain": Record(Song, "r:{id}", name="song", **VERSION),
    "kept": Record(Song, "r:{id}", name="song", unknown="keep", **VERSION),
    "upgraded": Record(Song, "r:{id}", name="song", upgrade=lambda plain: plain, **VERSION),
    "rows": Record(
        Song,
        "r:{id}",
        Index("i:{title}:{id}"),
        Unique("u:{title}", value="id"),
        RecordCount("c:{title}"),
        name="song",
        **VERSION,
    ),
    "sealed": Record(Song, "r:{id}", name="song", sealed=("title",), **VERSION),
    "legacy": Record(Song, "now:{id}", name="song", legacy_at="r:{id}", **VERSION),
    "event": Log(Song, "r:{stream}:{id}", name="song", state=STATE, fold=fold, **VERSION),
    "event without a fold": Log(Song, "r:{stream}:{id}", name="song", **VERSION),
}
ROWS = {
    "a member more": b'{"id": "1", "title": "t", "v": 2, "owner": "me"}',
    "of other types": b'{"id": 1, "title": ["t"], "v": 2}',
    "a member less": b'{"v": 2}',
}
FLAGS = [
    {"repair": repair, "delete_unreadable": delete}
    for repair in (False, True)
    for delete in (False, True)
]
ULID = "01KE000000000000000000000A"


def schema(record: Record[Any], *others: Record[Any], steps: int = 0) -> Schema:
    return Schema(
        "songs",
        record,
        *others,
        space=Space("x"),
        meta=Meta(),
        migrations=tuple(Migration(at + 1, "…", record, _step) for at in range(steps)),
    )


async def _step(tx: Any, entry: Any) -> None:
    pass


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_of_a_newer_version_is_found_and_never_deleted(kind: str, row: str) -> None:
    """Documents of a newer kryten-playlist were reported as unreadable, with the advice to delete
    them, and deleted."""
    record = RECORDS[kind]
    others = () if getattr(record, "state", None) is None else (STATE,)
    key = f"r:s:{ULID}" if isinstance(record, Log) else "r:1"

    async def story(harness: Harness) -> None:
        store = Store(schema(record, *others), harness.engine, "space", key_ring=KeyRing.new())
        planted = {key: ROWS[row]}
        if others:
            planted["state:s"] = b'{"through": "' + ULID.encode() + b'", "v": 2}'
        await harness.plant(dict(planted))
        for flags in FLAGS:
            found = await findings(store, **flags)
            assert {("newer", each) for each in planted} <= set(kinds_and_keys(found))
            assert not [each for each in found if each.kind in ("unreadable", "unknown")]
            assert {each: (await harness.rows())[each][0] for each in planted} == planted

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("songs", ["no songs", "a song"])
@pytest.mark.parametrize(
    "value",
    [b'{"ids": ["9"], "v": 2}', b'{"ids": {"9": 1}, "v": 2}', b'{"items": [1], "v": 2}'],
)
@pytest.mark.parametrize("summary", [LIST, MAP], ids=["list", "map"])
def test_a_summary_of_a_newer_version_is_found_and_never_changed(
    summary: Summary, value: bytes, songs: str
) -> None:
    """A list of another shape was rebuilt by --repair, and deleted by --delete-unreadable. Without
    --repair, a list with a member that no record has was reported as dangling."""
    record = Record(Song, "r:{id}", summary, name="song")
    key = summary.template.text

    async def story(harness: Harness) -> None:
        store = Store(schema(record), harness.engine, "space")
        await harness.plant({key: value})
        if songs == "a song":
            await harness.plant({"r:1": b'{"id":"1","title":"t"}'})
        for flags in FLAGS:
            found = kinds_and_keys(await findings(store, **flags))
            assert {kind for kind, _ in found if kind != "missing"} == {"newer"}
            assert (await harness.rows())[key][0] == value

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("state", ["migrated", "migrating"])
def test_a_space_that_newer_code_has_migrated_is_one_finding_and_stays_as_it_is(state: str) -> None:
    record = RECORDS["rows"]

    async def story(harness: Harness) -> None:
        newer = Store(schema(record, steps=3), harness.engine, "space")
        if state == "migrated":
            await migrate(newer)
        else:
            await harness.plant(
                {"meta:job:migrate-1": b'{"owner":"a","lease_until":1,"started_at":1}'}
            )
        await harness.plant({"new:1": b"1", "r:1": b'{"v": 2}', "r:2": b"damaged", "i:t:7": b"1"})
        before = await harness.rows()
        older = Store(schema(record), harness.engine, "space")
        for flags in FLAGS:
            found = kinds_and_keys(await findings(older, **flags))
            assert found == [("newer", "meta:version")]
            assert await harness.rows() == before

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("ring", [None, KeyRing.new()], ids=["no key ring", "another key ring"])
def test_a_sealed_record_is_not_deleted_for_want_of_its_key(ring: KeyRing | None) -> None:
    """Verify without the key ring reported every sealed record as unreadable."""
    record = Record(Song, "r:{id}", name="song", sealed=("title",))

    async def story(harness: Harness) -> None:
        await Store(schema(record), harness.engine, "space", key_ring=KeyRing.new()).put(
            record, Song("1", "t")
        )
        before = await harness.rows()
        store = Store(schema(record), harness.engine, "space", key_ring=ring)
        for flags in FLAGS:
            assert kinds_and_keys(await findings(store, **flags)) == [("sealed", "r:1")]
            assert await harness.rows() == before

    asyncio.run(played(story, "memory", Path()))
