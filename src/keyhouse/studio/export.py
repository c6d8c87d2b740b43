"""Export of a table as JSON lines, in the form of `keyhouse export`."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from keyhouse.auth import Caller
from keyhouse.http import Response, Stream
from keyhouse.studio.catalog import SystemCatalog, record_of
from keyhouse.studio.record_table import parse_filter
from keyhouse.studio.rendering import hidden_members, masked


class ExportQuery(msgspec.Struct, forbid_unknown_fields=True):
    record: str
    q: str = ""
    by: str = ""


class Export:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def download(
        self, system: str, space: str, query: ExportQuery, caller: Caller
    ) -> Response[Stream]:
        """Send the records of a filter as JSON lines: key, value and expiry. Private members are
        masked."""
        store = self._catalog.store(self._catalog.system(system), space, query.record)
        record = record_of(store, query.record)
        chosen = parse_filter(store, record, query.q, query.by)
        hidden = hidden_members(record)

        async def lines() -> AsyncIterator[bytes]:
            entries = store.scan(
                record,
                by=chosen.by,
                prefix=chosen.prefix,
                between=chosen.between,
                unreadable="skip",
                **chosen.fields,
            )
            keys: list[str] = []
            async for entry in entries:
                keys.append(entry.key)
                if len(keys) == 100:
                    yield await _lines(store, keys, hidden)
                    keys = []
            if keys:
                yield await _lines(store, keys, hidden)

        name = f"{query.record}.jsonl"
        headers = (
            ("Content-Disposition", f'attachment; filename="{_ascii(name)}"'),
            ("Cache-Control", "private, no-store"),
        )
        return Response(lines(), headers=headers, media_type="application/jsonl")


async def _lines(store: Any, keys: list[str], hidden: tuple[str, ...]) -> bytes:
    rows = await store.rows(keys)
    return b"".join(
        msgspec.json.encode(
            {
                "key": row.key,
                "value": _raw(masked(row.value, hidden)),
                "revision": row.revision,
                "expires": row.expires,
            }
        )
        + b"\n"
        for row in rows
        if row is not None
    )


def _raw(value: bytes) -> Any:
    try:
        return msgspec.Raw(msgspec.json.format(value, indent=-1))
    except msgspec.MsgspecError:
        return value.decode(errors="backslashreplace")


def _ascii(name: str) -> str:
    return "".join(each if each.isalnum() or each in "._-" else "_" for each in name)
