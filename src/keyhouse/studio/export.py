"""Export of selected records as JSON lines, in the form of `keyhouse export`."""

from collections.abc import AsyncIterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from keyhouse.auth import Caller
from keyhouse.http import Response, Stream
from keyhouse.store import Store
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.private_keys import KeyView
from keyhouse.studio.rendering import hidden_members, masked
from keyhouse.studio.selection import RecordSelection, SelectedRecords


class Export:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def download(
        self, system: str, space: str, query: RecordSelection, caller: Caller
    ) -> Response[Stream]:
        """Send selected records as JSON lines: key, value, revision and expiry. Private members
        are masked."""
        found = self._catalog.system(system)
        view = KeyView(self._catalog.stores(found, space), caller)
        selected = SelectedRecords(self._catalog, found, space, query, view)

        async def lines() -> AsyncIterator[bytes]:
            found: list[tuple[Store, str]] = []
            async for each in selected.records():
                found.append(each)
                if len(found) == 100:
                    yield await _lines(found)
                    found = []
            if found:
                yield await _lines(found)

        name = f"{query.record or space}.jsonl"
        headers = (
            ("Content-Disposition", f'attachment; filename="{_ascii(name)}"'),
            ("Cache-Control", "private, no-store"),
        )
        return Response(lines(), headers=headers, media_type="application/jsonl")


async def _lines(selected: list[tuple[Store, str]]) -> bytes:
    lines: list[bytes] = []
    for store, group in groupby(selected, key=itemgetter(0)):
        for row in await store.rows([key for _, key in group]):
            if row is None:
                continue
            match = store.find(row.key)
            hidden = () if match is None else hidden_members(match.record.declared)
            line = {
                "key": row.key,
                "value": _raw(masked(row.value, hidden)),
                "revision": row.revision,
                "expires": row.expires,
            }
            lines += (msgspec.json.encode(line), b"\n")
    return b"".join(lines)


def _raw(value: bytes) -> Any:
    try:
        return msgspec.Raw(msgspec.json.format(value, indent=-1))
    except msgspec.MsgspecError:
        return value.decode(errors="backslashreplace")


def _ascii(name: str) -> str:
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in name
    )
