"""Building an index again leaves the rows that the upgraded records derive, and no others.

The kinds of derived rows and the changes of a member are those of a migration of changed fields.
"""

import asyncio
from collections import Counter as Multiset
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from keyhouse.errors import UnbuiltIndexError
from keyhouse.schema import Index, Meta, Migration, Record, Schema, Space
from keyhouse.store import Store, Transaction, build_indexes, migrate, open_migrated, reindex
from keyhouse.store.jobs import job
from keyhouse.testing.faults import Killed, fail
from tests.sizes import size
from tests.store.jobs.test_changed_fields import CHANGES, KINDS, PART, Case, declared, rows
from tests.store.support.harness import Harness, findings, played


class UpgradeCase(Case):
    """A change by `upgrade`: the records stay as they are stored."""

    def __init__(self, change: str, kind: str) -> None:
        super().__init__(change, kind, {})
        options = {"version": ("v", 2), "upgrade": self.upgrade}
        self.new = declared(self.change.after, kind, options)
        self.after = self.schema()

    def schema(self, *migrations: Migration) -> Schema:
        return Schema("items", self.new, PART, space=Space("x"), meta=Meta(), migrations=migrations)

    def upgrade(self, stored: dict[str, Any]) -> dict[str, Any]:
        kept = {name: part for name, part in stored.items() if name in ("id", "tag", "owner")}
        return kept | self.change.convert(SimpleNamespace(**stored))

    async def check_rows(self, harness: Harness, space: str) -> None:
        """Compare the derived rows with those of a space that the newer declaration wrote alone."""
        store = Store(self.after, harness.engine, space)
        other = Store(self.after, harness.engine, space + "-new")
        await other.put(PART, PART.type("o"))
        async for entry in store.scan(self.new):
            await other.put(self.new, entry.record)
        for each in (store, other):  # lists that were full have room again
            if any(getattr(derived, "members_max", None) for derived in self.new.derived):
                await findings(each, repair=True)
        assert await self.derived_rows(store, harness) == await self.derived_rows(other, harness)
        # a row whose key no template builds any more is deleted by `verify --delete-unreadable`
        assert {finding.kind for finding in await findings(store)} <= {"unknown"}

    async def derived_rows(self, store: Store, harness: Harness) -> dict[str, Any]:
        return {
            key: row
            for key, row in (await rows(harness, store.space)).items()
            if (match := store.find(key)) is not None and not match.is_record
        }


async def by_migration(case: UpgradeCase, engine: Any, space: str) -> None:
    case.after = case.schema(reindex(1, "…", case.new))
    await migrate(Store(case.after, engine, space))


async def by_opening(case: UpgradeCase, engine: Any, space: str) -> None:
    await open_migrated(case.after, engine, space, reindex=True)


async def by_building_again(case: UpgradeCase, engine: Any, space: str) -> None:
    await build_indexes(Store(case.after, engine, space), again=True)


Rebuild = Callable[[UpgradeCase, Any, str], Awaitable[None]]

KILLS = [(1, 3, 5)] if size(0, 1, 1) else [(1,), (3,), (5,)]
"""Commits at which a rebuild is killed; in a usual run, one of them for each kind, in turn."""


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("rebuild", [by_migration, by_opening, by_building_again])
@pytest.mark.parametrize("change", CHANGES)
def test_a_rebuilt_index_has_the_rows_of_the_upgraded_records_and_no_others(
    change: str, rebuild: Rebuild, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the older values stayed: a scan by the index returned each record twice."""
    monkeypatch.setattr(job, "CHUNK_ROWS", 2)

    async def story(harness: Harness) -> None:
        for number, kind in enumerate(KINDS):
            case = UpgradeCase(change, kind)
            for at in (None, *KILLS[number % len(KILLS)]) if engine == "memory" else (None,):
                space = f"space-{number}-{at}"
                await case.fill(harness, space)
                if at is not None:
                    try:
                        await rebuild(case, harness.faulty(fail(at, Killed)), space)
                    except Killed:
                        harness.clock.advance(seconds=60)
                await rebuild(case, harness.engine, space)
                await case.check_rows(harness, space)

    asyncio.run(played(story, engine, tmp_path))


class Song(msgspec.Struct):
    """Its lengths become ten times as long."""

    id: str
    length: int
    form: int = 1


def songs(by: Index, form: int, factor: int) -> tuple[Record[Song], Schema]:
    def upgrade(stored: dict[str, Any]) -> dict[str, Any]:
        return {**stored, "length": stored["length"] * factor}

    song = Record(Song, "song:{id}", by, name="song", version=("form", form), upgrade=upgrade)
    return song, Schema("songs", song, space=Space("x"), meta=Meta())


def test_an_upgrade_that_moves_records_in_an_index_is_noticed_and_scans_show_none_twice() -> None:
    async def story(harness: Harness) -> None:
        by = Index("len:{length:06d}:{id}")
        song, schema = songs(by, 1, 1)
        store = await open_migrated(schema, harness.engine, "space")
        for id, length in (("a", 5), ("b", 7), ("c", 9)):
            await store.put(song, Song(id, length))

        song, schema = songs(by, 2, 10)
        store = Store(schema, harness.engine, "space")
        await store.put(song, Song("b", 71))
        listed = [entry.record async for entry in store.scan(song, by=by)]
        assert Multiset(each.id for each in listed) <= Multiset("abc")
        assert all(each.length >= 50 for each in listed)

        with pytest.raises(UnbuiltIndexError):
            await open_migrated(schema, harness.engine, "space")
        store = await open_migrated(schema, harness.engine, "space", reindex=True)
        listed = [entry.record async for entry in store.scan(song, by=by)]
        assert [(each.id, each.length) for each in listed] == [("a", 50), ("b", 71), ("c", 90)]
        assert await findings(store) == []

    asyncio.run(played(story, "memory", Path()))


def test_an_upgrade_that_leaves_the_rows_of_an_index_needs_no_build() -> None:
    async def story(harness: Harness) -> None:
        by = Index("len:{length:06d}:{id}")
        song, schema = songs(by, 1, 1)
        store = await open_migrated(schema, harness.engine, "space")
        await store.put(song, Song("a", 5))
        for form in (2, 4, 4):
            song, schema = songs(by, form, 1)
            store = await open_migrated(schema, harness.engine, "space")
            assert [entry.key async for entry in store.scan(song, by=by)] == ["song:a"]

    asyncio.run(played(story, "memory", Path()))


def test_a_step_that_rewrites_each_upgraded_record_leaves_no_row_of_the_older_values() -> None:
    async def story(harness: Harness) -> None:
        for kind in ("index", "unique", "count", "summary"):
            case = UpgradeCase("rescale", kind)
            await case.fill(harness, kind)

            async def step(tx: Transaction, entry: Any, case: UpgradeCase = case) -> None:
                await tx.put(case.new, entry.record)
                await tx.rewrite(case.new, entry)

            case.after = case.schema(Migration(1, "…", case.new, step))
            await open_migrated(case.after, harness.engine, kind)
            await case.check_rows(harness, kind)

    asyncio.run(played(story, "memory", Path()))
