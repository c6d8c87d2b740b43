"""Stores that version 0.1 wrote open with this version, and are written on.

The redesign changed every part that reads and writes rows. The files are of the version before it,
for each engine and for each system (see `tests/fixtures/stored_0_1/make.py`).
"""

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock, UlidSource
from keyhouse.engine import Batch, Engine, Put, Row, Span
from keyhouse.errors import LinkError
from keyhouse.keyring import KeyRing
from keyhouse.schema import Counter, Index, Log, Record, Schema
from keyhouse.service.registry import load_system, system_names
from keyhouse.store import (
    Entry,
    Finding,
    Store,
    export_rows,
    migrate_keys,
    open_migrated,
    sweep,
    verify,
)
from keyhouse_audiobooks.schema import library_schema
from tests.store.support import library_schema as general
from tests.store.support import linked_schema
from tests.store.support.stored_files import FILES, StoredFile

RING = KeyRing({"first": b"k" * 32}, current="first", index_key=b"i" * 32)
LATER_SECONDS = 101 * 365 * 86_400
"""Every row has expired by then."""

SCHEMAS: dict[str, Schema] = {
    schema.name: schema
    for schema in (
        *(general.LIBRARY, linked_schema.SCHEMA),
        *(schema for name in system_names() for schema in load_system(name).schemas),
    )
}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "library": ("book", {"series": "moved", "tags": ["new"], "shelf": "low", "year": 2002}),
    "linked": ("list", {"person": "bob"}),
    "rosey": ("value", {"changed": True}),
    "streamkit": ("notes", {"title": "changed"}),
    "audiobooks": ("book", {"title": "Moved", "series_position": 2.5, "tags": ["new"]}),
    "kryten_playlist_playlists": ("playlist", {"name": "Renamed"}),
    "history": ("entry", {"ext": {"sport": "tennis", "seasonCategoryId": "9"}}),
}
"""A record of each schema, and a patch that moves its derived rows."""

OWN_ROWS = {"version", "migration", "job"}
STAMPS = {"updated", "updated_at", "updatedAt", "lastUsed"}


class Opened:
    """The spaces of a file, with today's declarations."""

    def __init__(self, file: StoredFile, engine: Engine, clock: ManualClock) -> None:
        self.file, self.engine, self.clock = file, engine, clock

    async def stores(self) -> list[Store]:
        return [
            await self.store(space, stored.schema)
            for space, stored in self.file.facts.spaces.items()
        ]

    async def store(self, space: str, schema_name: str) -> Store:
        ids = UlidSource(self.clock, seed=8)
        if self.file.keyspace == "audiobooks-sealed":
            schema = library_schema(tenants=False, sealed=True)
            return await open_migrated(schema, self.engine, space, ids=ids, key_ring=RING)
        schema = SCHEMAS[schema_name]
        if space in ("halfway", "current"):  # customers of Streamkit with moved keys
            schema = schema.writing_legacy_keys(False)
        return await open_migrated(schema, self.engine, space, ids=ids)

    async def exported(self) -> bytes:
        lines: list[bytes] = []
        await export_rows(self.engine, lines.append)
        return b"".join(lines)

    async def findings(self) -> list[Finding]:
        return [finding for store in await self.stores() async for finding in verify(store)]


async def entries(store: Store) -> list[tuple[Record[Any], Entry[Any]]]:
    """Return every record of a space."""
    return [
        (record, entry) for record in store.schema.records async for entry in store.scan(record)
    ]


async def rows(store: Store) -> dict[str, Any]:
    """Return the rows of a space, without the members that each write sets."""
    return {
        row.key: without_stamps(msgspec.json.decode(row.value)) async for row in store.row_scan()
    }


def without_stamps(value: Any) -> Any:
    if not isinstance(value, dict) or "$enc" in value:
        return None if isinstance(value, dict) else value
    return {name: without_stamps(part) for name, part in value.items() if name not in STAMPS}


@pytest.mark.parametrize("name", FILES)
def test_what_0_1_stored_is_read_and_written_on(name: str, tmp_path: Path) -> None:
    file = StoredFile(name, tmp_path)
    clock = ManualClock(file.facts.at)

    async def work() -> None:
        async with file.opened(clock) as engine:
            opened = Opened(file, engine, clock)
            assert await opened.exported() == file.exported
            await commit(opened)
            assert await opened.findings() == []
            await read(opened)
            await write(opened)
            await expire(opened)
            await delete(opened)

    asyncio.run(work())


async def read(opened: Opened) -> None:
    """Every row is of a declaration, and every record is read."""
    for store in await opened.stores():
        matches = [store.find(key) for key in opened.file.rows(store.space)]
        assert None not in matches
        stored = {
            (match.record.name, match.values) for match in matches if match and match.is_record
        }
        found = {(record.name, entry.values) for record, entry in await entries(store)}
        assert stored == {of for of in found if store.space != "older" or of in stored}


async def commit(opened: Opened) -> None:
    """A batch that was applied is known, and a watch resumes with it."""
    for space, stored in opened.file.facts.spaces.items():
        again = Batch(puts=(Put("never written", b"1"),), id="sent-again")
        assert await opened.engine.commit(space, again) == stored.revision
        changes = opened.engine.watch(space, Span(), since=stored.before)
        async with aclosing(changes):
            change = await anext(changes)
        [row, unwritten] = await opened.engine.read(space, [change.key, "never written"])
        assert row == Row(change.key, change.value or b"", stored.revision, change.expires)
        assert unwritten is None


async def write(opened: Opened) -> None:
    """Each record is written as it was read, and one of each schema is changed."""
    for store in await opened.stores():
        if store.space == "halfway":  # a customer of Streamkit whose keys were being moved
            moved = await migrate_keys(store, job="keys-v2")
            assert (moved.copied, moved.deleted, moved.conflicts) == (5, 5, ())
        before = await rows(store)
        for record, entry in await entries(store):
            if not isinstance(record, Counter | Log):
                is_object = isinstance(entry.record, dict | msgspec.Struct)
                await store.update(record, {} if is_object else entry.record, **entry.fields)
        assert await rows(store) == before
        if store.schema.name in CHANGES:
            name, patch = CHANGES[store.schema.name]
            entry = await anext(aiter(store.scan(store.schema.record(name))))
            await store.update(store.schema.record(name), patch, **entry.fields)
            assert await rows(store) != before
    assert await opened.findings() == []


async def expire(opened: Opened) -> None:
    opened.clock.advance(seconds=LATER_SECONDS)
    await sweep(opened.engine)
    assert b'"expires":' not in await opened.exported()
    assert await opened.findings() == []


async def delete(opened: Opened) -> None:
    """Delete every record; one that others refer to after them. No derived row is left."""
    for store in await opened.stores():
        lasting = OWN_ROWS | {r.name for r in store.schema.records if isinstance(r, Counter)}
        while waiting := [each for each in await entries(store) if each[0].name not in lasting]:
            for record, entry in waiting:
                with suppress(LinkError):
                    await store.delete(record, **entry.fields)
        for key, value in (await rows(store)).items():
            match = store.find(key)
            assert match is not None and (match.record.name in lasting or value == 0)
    assert await opened.findings() == []


def test_a_sealed_member_of_0_1_is_opened_and_found_by_its_hmac(tmp_path: Path) -> None:
    file = StoredFile("sqlite-audiobooks-sealed", tmp_path)
    clock = ManualClock(file.facts.at)

    async def work() -> None:
        async with file.opened(clock) as engine:
            store = await Opened(file, engine, clock).store("main", "audiobooks")
            user = store.schema.record("user")
            [by_email] = [
                row
                for row in user.derived
                if isinstance(row, Index) and "hmac" in row.template.text
            ]
            entry = await store.lookup(user, by_email, email="...")
            assert entry is not None and entry.record.email == "..."

    asyncio.run(work())
