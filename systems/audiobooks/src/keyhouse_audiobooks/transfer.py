"""Import of a store of a program that follows the document: its rows as JSON lines, with `key` and
`value`.

Its index rows have names with an unescaped `:`. Index rows are a function of the records, so they
are not read at all: the records are put, in the order in which they refer to each other, and the
store derives the rows. Counters and logs are restored as they were; sessions are not: users sign in
again. Books without a work get one, as the migration of version 1.1.0 does.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError
from keyhouse.schema import Counter, Record
from keyhouse.store import (
    PrefixConversion,
    Store,
    Transaction,
    convert_prefix,
    open_migrated,
    stored_spaces,
)
from keyhouse_audiobooks.schema import (
    ARGON2_PARAMS,
    ASSET,
    AUTHOR,
    BOOK,
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    DURATION_MAP,
    OPERATION,
    OPERATION_LOG,
    PLAYBACK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PREFERENCE,
    PROGRESS,
    ROLE_PERMISSIONS,
    SCHEMAS,
    SEGMENT,
    SERIES,
    TENANT_PREFIX,
    USER,
    USER_LISTEN_SECONDS,
    USER_SECRETS,
    WORK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
    backfill_work,
    introduce_works,
)

__all__ = ["OriginalImport", "convert_tenants", "import_lines"]

_ORDER: Final[tuple[Record[Any], ...]] = (
    *(ARGON2_PARAMS, USER, USER_SECRETS, PREFERENCE, ROLE_PERMISSIONS),
    *(AUTHOR, SERIES, WORK, BOOK, ASSET, SEGMENT, DURATION_MAP),
    *(PLAYLIST, PLAYLIST_ITEM, PROGRESS, PLAYBACK),
    *(BOOK_PLAYS, BOOK_LISTEN_SECONDS, USER_LISTEN_SECONDS, WORK_PLAYS, WORK_LISTEN_SECONDS),
    *(OPERATION, OPERATION_LOG),
)
_INDEX_PREFIXES: Final = ("idx:", "bfi:")
_IGNORED_PREFIXES: Final = ("mig:", "meta:version", "sess:")
_PROBLEMS_MAX: Final = 100
_NUMBERED: Final = re.compile(r"((?:pli|opl):[^:]+:)(\d{1,10})")
"""Keys with a number, which a program may have padded to any width."""


class _Line(Struct):
    key: str
    value: msgspec.Raw


class OriginalImport(Struct):
    """`left_out` counts the rows that were left out; `problems` names them, at most 100."""

    imported: int = 0
    index_rows: int = 0
    left_out: int = 0
    problems: list[str] = []

    def add_problem(self, key: str, reason: str) -> None:
        self.left_out += 1
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(f"{key}: {reason}")


async def import_lines(engine: Engine, library: str, lines: Iterable[bytes]) -> OriginalImport:
    """Import the rows into a library. Records that are there are replaced; a repeated import
    changes nothing more."""
    store = await open_migrated(SCHEMAS[0], engine, library)
    result = OriginalImport()
    by_record: dict[str, list[tuple[str, bytes]]] = {}
    decode = msgspec.json.Decoder(_Line).decode
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            result.add_problem(f"line {number}", str(error))
            continue
        if row.key.startswith(_INDEX_PREFIXES):
            result.index_rows += 1
        elif not row.key.startswith(_IGNORED_PREFIXES):
            if numbered := _NUMBERED.fullmatch(row.key):
                row.key = numbered[1] + numbered[2].zfill(10)
            found = store.find(row.key)
            name = "" if found is None else getattr(found.declared, "name", "")
            by_record.setdefault(name, []).append((row.key, bytes(row.value)))
    for record in _ORDER:
        for key, value in by_record.pop(record.name, ()):
            await _import_row(store, record, key, value, result)
    for rows in by_record.values():
        for key, _ in rows:
            if not key.endswith(":next_seq"):
                result.add_problem(key, "not a key of the library")
    books = [entry async for entry in store.scan(BOOK) if entry.record.work_id is None]
    for entry in books:
        await store.transact(partial(_introduce, entry.record.id))
    for id in [entry.record.id async for entry in store.scan(WORK)]:
        await backfill_work(store, id)
    return result


async def _introduce(id: str, tx: Transaction) -> None:
    entry = await tx.entry(BOOK, id=id)
    if entry is not None:
        await introduce_works(tx, entry)


async def _import_row(
    store: Store, record: Record[Any], key: str, value: bytes, result: OriginalImport
) -> None:
    fields: dict[str, Any] = dict(record.template.parse(key) or {})

    async def work(tx: Transaction) -> None:
        if isinstance(record, Counter):
            wanted = msgspec.json.decode(value, type=int)
            await tx.add(record, wanted - (await tx.get(record, **fields) or 0), **fields)
        else:
            decoded = record.json.decode(value, key)
            if record is BOOK and decoded.work_id is None:
                stored = await tx.get(BOOK, **fields)  # an earlier import has given it a work
                decoded.work_id = None if stored is None else stored.work_id
            await tx.restore(record, decoded, **fields)

    try:
        await store.transact(work)
        result.imported += 1
    except (KeyhouseError, msgspec.DecodeError) as error:
        result.add_problem(key, str(error))


async def convert_tenants(engine: Engine, *, on: bool) -> dict[str, PrefixConversion]:
    """Convert every library; return the result of each by its name."""
    plain = SCHEMAS[0]
    prefixed = plain.under(TENANT_PREFIX)
    source, target = (plain, prefixed) if on else (prefixed, plain)
    names = [name async for name in stored_spaces(engine)]
    return {name: await convert_prefix(engine, name, source, target) for name in names}
