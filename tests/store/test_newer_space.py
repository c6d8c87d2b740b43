"""A space that newer code has migrated: each kind of older schema rejects it alike."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse import Index, ManualClock, Meta, Migration, Record, Schema, Space, Store, open_store
from keyhouse.engine import Engine
from keyhouse.errors import NewerError
from keyhouse.store import migrate, verify, version
from tests.support.engine_openers import ALL


class Note(msgspec.Struct):
    id: str
    title: str


class Later(msgspec.Struct):
    id: str
    name: str


async def _rename(tx: Any, entry: Any) -> None:
    await tx.put(LATER, Later(entry.record.id, entry.record.title))


async def _same(tx: Any, entry: Any) -> None:
    await tx.rewrite(LATER, entry)


SPACE = Space("a desk")
NOTE = Record(Note, "note:{id}", name="note")
INDEXED = Record(Note, "note:{id}", Index("idx:note:{title}:{id}"), name="note")
LATER = Record(Later, "note:{id}", name="note")
FIRST = Migration(1, "Rename the title", NOTE, _rename)
SECOND = Migration(2, "Write again", LATER, _same)
NEWEST = Schema("notes", LATER, space=SPACE, migrations=(FIRST, SECOND))

OLDER: dict[str, tuple[Schema, Record[Any], Any]] = {
    "without meta": (Schema("notes", NOTE, space=SPACE), NOTE, Note("b", "B")),
    "with meta": (Schema("notes", NOTE, space=SPACE, meta=Meta()), NOTE, Note("b", "B")),
    "without meta, with an index": (
        Schema("notes", INDEXED, space=SPACE),
        INDEXED,
        Note("b", "B"),
    ),
    "with meta and an index": (
        Schema("notes", INDEXED, space=SPACE, meta=Meta()),
        INDEXED,
        Note("b", "B"),
    ),
    "of version 1": (
        Schema("notes", LATER, space=SPACE, migrations=(FIRST,)),
        LATER,
        Later("b", "B"),
    ),
}


async def _verified(schema: Schema, engine: Engine) -> None:
    findings = [each async for each in verify(Store(schema, engine, "mine"), repair=True)]
    assert [each.kind for each in findings] == ["newer"]
    raise NewerError(findings[0].detail)


Step = Callable[[Schema, Engine, Record[Any], Any], Awaitable[Any]]
STEPS: dict[str, Step] = {
    "open": lambda schema, engine, record, value: open_store(schema, engine, "mine"),
    "reindex": lambda schema, engine, record, value: open_store(
        schema, engine, "mine", reindex=True
    ),
    "migrate": lambda schema, engine, record, value: migrate(Store(schema, engine, "mine")),
    "version": lambda schema, engine, record, value: version(Store(schema, engine, "mine")),
    "put": lambda schema, engine, record, value: Store(schema, engine, "mine").put(record, value),
    "clear": lambda schema, engine, record, value: Store(schema, engine, "mine").clear(),
    "verify": lambda schema, engine, record, value: _verified(schema, engine),
}


@pytest.mark.parametrize("prefix", ["", "desk:{desk}:"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("older", OLDER)
def test_a_schema_of_any_older_version_rejects_a_space_that_newer_code_has_migrated(
    older: str, step: str, prefix: str, tmp_path: Path
) -> None:
    """A schema without migrations opened it, and wrote rows of the first version."""
    schema, record, value = OLDER[older]
    newest = NEWEST.under(prefix) if prefix else NEWEST
    schema = schema.under(prefix) if prefix else schema

    async def story() -> None:
        engine = await ALL["memory"](tmp_path)(ManualClock())
        store = await open_store(newest, engine, "mine")
        await store.put(LATER, Later("a", "A"))
        before = [each async for each in store.row_scan()]
        with pytest.raises(NewerError, match="newer program"):
            await STEPS[step](schema, engine, record, value)
        assert [each async for each in store.row_scan()] == before
        await engine.close()

    asyncio.run(story())


@pytest.mark.parametrize("kind", ALL)
def test_a_schema_without_meta_rows_notices_a_newer_space_on_every_engine(
    kind: str, tmp_path: Path
) -> None:
    async def story() -> None:
        schema = OLDER["without meta"][0]
        engine = await ALL[kind](tmp_path)(ManualClock())
        store = await open_store(schema, engine, "mine")
        await store.put(NOTE, Note("a", "A"))
        await open_store(NEWEST, engine, "mine")
        with pytest.raises(NewerError, match="newer program"):
            await open_store(schema, engine, "mine")
        await engine.close()

    asyncio.run(story())


def test_a_key_of_ones_own_at_the_place_of_the_version_is_not_read_as_a_version(
    tmp_path: Path,
) -> None:
    number = Record(int, "meta:{name}", name="number")
    schema = Schema("numbers", number, space=SPACE)

    async def story() -> None:
        engine = await ALL["memory"](tmp_path)(ManualClock())
        store = await open_store(schema, engine, "mine")
        await store.put(number, 7, name="version")
        store = await open_store(schema, engine, "mine")
        await store.put(number, 8, name="version")
        assert await version(store) == 0
        await engine.close()

    asyncio.run(story())


def test_the_error_of_another_schema_on_a_migrated_space_names_that_cause(tmp_path: Path) -> None:
    """The error was "use the newer program", of which there is none."""
    other = Schema("tasks", Record(Note, "task:{id}", name="task"), meta=Meta(), space=SPACE)
    url = f"sqlite:{tmp_path}/desk.db"

    async def run() -> None:
        async with open_store(NEWEST, url, "ann"):
            pass
        with pytest.raises(NewerError, match="not the schema of the space, open its own file"):
            async with open_store(other, url, "ann"):
                pass

    asyncio.run(run())
