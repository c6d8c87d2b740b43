"""A space with pending migrations: every operation answers alike, and the log tells it once."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from keyhouse import (
    Counter,
    Index,
    Log,
    LogState,
    ManualClock,
    Migration,
    Record,
    RecordCount,
    RemoteStore,
    Schema,
    Space,
    Store,
    Summary,
    Unique,
    open_store,
)
from keyhouse.errors import PreparingError
from keyhouse.schema import FoldResult
from keyhouse.service.schema_service.system import with_meta
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.served import Served, serving
from tests.support.engine_openers import sqlite
from tests.support.polling import wait_until
from tests.support.verb_requests import Sample, verb_requests


class OldSong(msgspec.Struct):
    id: str
    title: str


class Song(msgspec.Struct):
    id: str
    name: str


class Played(msgspec.Struct):
    song: str


class Plays(LogState, kw_only=True):
    count: int = 0


def _fold(state: Plays | None, event: Played, found: object) -> FoldResult:
    return FoldResult(Plays(through="", count=1))


async def _fail(tx: Any, entry: Any) -> None:
    raise ValueError("the step is wrong")


SPACE = Space("a channel")
OLD = Record(OldSong, "song:{id}", name="song")
SONG = Record(
    Song,
    "song:{id}",
    Index("idx:song:name:{name}:{id}"),
    Unique("one:{name}", value="id", name="one"),
    RecordCount("number:{name}", name="number"),
    Summary("ids:{name}", member="id", under="ids", name="ids"),
)
VIEWS = Counter("views:{id}:{day:date}")
PLAYS = Record(Plays, "plays:{song}")
PLAYED = Log(Played, "played:{song}:{at:ulid}", state=PLAYS, fold=_fold)
BEFORE = with_meta(Schema("songs", OLD, space=SPACE))
AFTER = Schema(
    "songs",
    *(SONG, VIEWS, PLAYS, PLAYED),
    space=SPACE,
    migrations=(Migration(1, "Rename the title", OLD, _fail),),
)

VALUE = {"id": "a", "name": "A"}
NAMED = {"name": "A"}
SAMPLES = {
    "record": Sample(
        "song",
        {"id": "a"},
        {"value": VALUE, "addresses": [{"id": "a"}]},
        {Unique: ("one", NAMED), RecordCount: ("number", NAMED), Summary: ("ids", NAMED)},
    ),
    "counter": Sample("views", {"id": "a", "day": "2026-01-31"}, {"by": 1}, query={"id": "a"}),
    "log": Sample("played", {}, {"value": {"song": "a"}}),
}
BODIES = verb_requests(
    SAMPLES,
    operations=[{"op": "delete", "record": "song", "fields": {"id": "a"}}],
    watch={"subject": "keyhouse.changes.songs.ann.w"},
)


async def _fill(folder: Path) -> None:
    engine = await sqlite(folder)(ManualClock())
    await Store(BEFORE, engine, "ann").put(OLD, OldSong("a", "A"))
    await engine.close()


def test_every_operation_on_a_space_to_migrate_says_that_it_is_being_migrated(
    tmp_path: Path,
) -> None:
    """A watch sent an event `unreadable` for each old row; counters were read."""

    async def story() -> dict[str, Any]:
        await _fill(tmp_path)
        async with called("sqlite", tmp_path, AFTER) as call:
            return {name: await call(name, body) for name, body in BODIES.items()}

    for name, reply in asyncio.run(story()).items():
        assert reply.get("error_code") == PreparingError.code, (name, reply)


async def _same(tx: Any, entry: Any) -> None: ...


NEWER = Schema(
    "songs",
    *AFTER.records[:4],
    space=SPACE,
    migrations=tuple(Migration(id, "Nothing", SONG, _same) for id in (1, 2)),
)
OLDER = {
    "of version 1": Schema(
        "songs", *NEWER.records[:4], space=SPACE, migrations=NEWER.migrations[:1]
    ),
    "without migrations": Schema("songs", *NEWER.records[:4], space=SPACE),
}


@pytest.mark.parametrize("moment", ["before the start", "while it runs"])
@pytest.mark.parametrize("older", OLDER)
def test_every_operation_on_a_space_of_newer_code_is_503_with_the_reason(
    older: str, moment: str, tmp_path: Path
) -> None:
    """It was 500; without migrations, a list was empty and a record was written."""
    opener = sqlite(tmp_path)
    writes = {"create", "put", "patch", "delete", "add", "append", "batch", "clear"}
    bodies = {name: BODIES[name] for name in sorted(BODIES, key=lambda name: name not in writes)}

    async def story() -> dict[str, Any]:
        replies = {}
        if moment == "before the start":
            await _migrated_by_newer_code(opener)
        async with called("sqlite", tmp_path, OLDER[older]) as call:
            if moment == "while it runs":
                for space in bodies:
                    await call("put", BODIES["put"], space)
                await _migrated_by_newer_code(opener, *bodies)
                call.clock.advance(seconds=60)
            for name, body in bodies.items():
                space = "ann" if moment == "before the start" else name
                replies[name] = await call(name, body, space)
        return replies

    for name, reply in asyncio.run(story()).items():
        if moment == "while it runs" and name not in writes:
            continue  # a read notices it by a row that does not decode
        assert reply.get("error_code") == PreparingError.code, (name, reply)


async def _migrated_by_newer_code(opener: Any, *spaces: str) -> None:
    engine = await opener(ManualClock())
    for space in spaces or ("ann",):
        await open_store(NEWER, engine, space, reindex=True)
    await engine.close()


def test_a_list_of_rows_that_newer_code_has_migrated_meanwhile_is_503_and_not_empty(
    tmp_path: Path,
) -> None:
    old = Schema("songs", OLD, space=SPACE)

    async def rename(tx: Any, entry: Any) -> None:
        await tx.put(SONG, Song(entry.record.id, entry.record.title))

    new = Schema("songs", SONG, space=SPACE, migrations=(Migration(1, "Rename", OLD, rename),))
    with serving(sqlite(tmp_path), tmp_path, old) as served:
        box = served.client("ann")
        box.post("/records/song", json={"id": "a", "title": "A"}).raise_for_status()
        assert len(box.get("/records/song").json()["items"]) == 1

        async def migrated() -> None:
            engine = await sqlite(tmp_path)(ManualClock())
            await open_store(new, engine, "ann")
            await engine.close()

        asyncio.run(migrated())
        for _ in range(2):
            listed = box.get("/records/song")
            assert listed.status_code == 503, listed.text
            assert "newer" in listed.json()["fields"]["reason"]
        assert box.get("/records/song/a").status_code == 503


def _until_failed(served: Served) -> None:
    box = served.client("ann")
    wait_until(lambda: "doctor" in box.get("/records/song").json()["detail"])


def test_a_watch_of_a_space_that_could_not_be_migrated_is_503_as_a_list_is(tmp_path: Path) -> None:
    asyncio.run(_fill(tmp_path))
    with serving(sqlite(tmp_path), tmp_path, AFTER) as served:
        _until_failed(served)
        box = served.client("ann")
        listed, watched = box.get("/records/song"), box.get("/watch?record=song&since=0")
        assert listed.status_code == watched.status_code == 503
        assert listed.json()["detail"] == watched.json()["detail"]

        async def watch() -> None:
            async with RemoteStore(AFTER, served.url, served.token("ann")) as store:
                async for _ in store.watch(SONG, since=1):
                    pass

        with pytest.raises(PreparingError, match="keyhouse doctor"):
            asyncio.run(watch())


def test_requests_to_a_space_that_is_not_prepared_are_logged_once_and_not_as_errors(
    tmp_path: Path,
) -> None:
    """Each was an error of the log, for as long as a migration took."""
    asyncio.run(_fill(tmp_path))
    with capture_logs() as lines, serving(sqlite(tmp_path), tmp_path, AFTER) as served:
        _until_failed(served)
        box = served.client("ann")
        for _ in range(5):
            assert box.get("/records/song/a").status_code == 503
            assert box.delete("/records/song/a").status_code == 503
    errors = [line["event"] for line in lines if line["log_level"] == "error"]
    assert errors == ["preparation failed"]
    warnings = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert warnings == ["requests are rejected until the space is prepared"]
