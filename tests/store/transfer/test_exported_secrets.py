"""Secrets in files of a store. An export and a backup are the rows as they are stored, so private
members are in clear and sealed ones encrypted; an export for reading has no private members, and
no record with sealed ones."""

import asyncio
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from keyhouse import KeyRing, Store, open_engine
from keyhouse.engine import Engine
from keyhouse.errors import SealedError
from keyhouse.store import back_up, export_rows, import_rows, read_backup, restore
from tests.support.planted import (
    BADGE,
    PERSON,
    PRIVATE,
    SEALED,
    VAULT,
    Badge,
    Person,
    badge,
    found_in,
    person,
)
from tests.support.program import run

SCHEMA: Final = "tests.support.planted:VAULT"
SEALED_MARKS: Final = (SEALED.encode(), f"{PRIVATE}-note".encode())
"""Planted in sealed members; `note` is private as well."""


async def plant(engine: Engine, ring: KeyRing) -> Store:
    store = Store(VAULT, engine, "ann", key_ring=ring)
    for id in ("p1", "p2"):
        await store.put(PERSON, msgspec.convert(person(id), Person))
    await store.put(BADGE, msgspec.convert(badge("b1"), Badge))
    return store


async def exported(engine: Engine) -> bytes:
    file = io.BytesIO()
    await export_rows(engine, file.write)
    return file.getvalue()


async def backed_up(engine: Engine) -> bytes:
    with tempfile.TemporaryFile() as file:
        await back_up(engine, file)
        file.seek(0)
        return file.read()


async def imported(engine: Engine, content: bytes) -> None:
    await import_rows(engine, io.BytesIO(content))


async def restored(engine: Engine, content: bytes) -> None:
    await restore(engine, read_backup(io.BytesIO(content), engine.clock))


@pytest.mark.parametrize(
    ("write", "read"), [(exported, imported), (backed_up, restored)], ids=["export", "backup"]
)
def test_a_complete_file_has_private_members_in_clear_and_sealed_ones_encrypted(
    write: Callable[..., asyncio.Future[bytes]], read: Callable[..., asyncio.Future[None]]
) -> None:
    async def main() -> None:
        ring = KeyRing.new()
        async with open_engine("memory:") as engine, open_engine("memory:") as other:
            store = await plant(engine, ring)
            content = await write(engine)
            for id in ("p1", "p2"):
                for text in (person(id)["pin"], *person(id)["aliases"]):
                    assert text.encode() in content, "a complete copy: protect it like the store"
            assert found_in(content, marks=SEALED_MARKS) == []
            await read(other, content)
            copy = Store(VAULT, other, "ann", key_ring=ring)
            for id in ("p1", "p2"):
                assert await copy.get(PERSON, id=id) == await store.get(PERSON, id=id)
            stranger = Store(VAULT, other, "ann", key_ring=KeyRing.new())
            with pytest.raises(SealedError):
                await stranger.get(PERSON, id="p1")

    asyncio.run(main())


def test_an_export_for_reading_has_neither_private_nor_sealed_members(tmp_path: Path) -> None:
    async def main() -> bytes:
        async with open_engine(f"sqlite:{tmp_path}/box.db") as engine:
            await plant(engine, KeyRing.new())
            file = io.BytesIO()
            await export_rows(engine, file.write, schemas=(VAULT,))
            return file.getvalue()

    content = asyncio.run(main())
    at = ("--store", "sqlite:box.db")
    by_command = run("export", SCHEMA, "--records", *at, cwd=tmp_path).stdout.encode()
    for lines in (content, by_command):
        assert found_in(lines) == [] and found_in(lines, marks=SEALED_MARKS) == []
        shown = [json.loads(line) for line in lines.splitlines()]
        keys = [each["key"] for each in shown if "key" in each]
        assert keys == ["badge:p1:b1"], "records with sealed members are left out"
    run("export", SCHEMA, "rows.jsonl", *at, cwd=tmp_path)
    run("backup", SCHEMA, "copy.backup", *at, cwd=tmp_path)
    for name in ("rows.jsonl", "copy.backup"):
        content = (tmp_path / name).read_bytes()
        assert PRIVATE.encode() in content and found_in(content, marks=SEALED_MARKS) == []
