"""Pages of a list, and of records by their addresses, bounded by bytes, read and encoded in steps.

A page has up to 500 records, each of up to 380 KiB. To read, decode and encode them at once would
take seconds, in which no other request is served, and hundreds of megabytes. So a page is read in
steps, in turns with the work of others (`served_engine`): of a bounded number of records, and of
those that were read no more are decoded than fit in `STEP_BYTES`, one at least. A page ends with
the step that reaches its size, by default `SERVED_PAGE_BYTES_MAX`; its cursor continues after it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from keyhouse.operations.limits import SERVED_PAGE_BYTES_MAX
from keyhouse.store import Entry, RecordPage
from keyhouse.store.reads.long_read import LongRead

__all__ = ["BoundedPages"]

STEP_ITEMS_MAX: Final = 50
STEP_BYTES: Final = 128 * 1_024
"""Stored bytes of a step."""

UNKNOWN_ITEM_BYTES: Final = 64 * 1_024
"""The size of a record before the first one of its kind was read: the first step is a small one."""

ReadPage = Callable[[LongRead, int, str | None], Awaitable[RecordPage[Any]]]
"""Reads up to so many records of a step from a cursor."""

ReadEach = Callable[[LongRead, Sequence[str]], Awaitable[list[Entry[Any] | None]]]
"""Reads the records at the first of some keys, as many as the step allows."""

_encode = msgspec.json.Encoder().encode


class BoundedPages:
    """Reads pages, and remembers the size of records by their name: it sizes the first step of the
    next page. `report_read` takes the rows and bytes that an engine does not count."""

    def __init__(self, report_read: Callable[[int, int], None]) -> None:
        self._report_read = report_read
        self._item_bytes: dict[str, int] = {}

    async def read(
        self,
        name: str,
        read: ReadPage,
        item: Callable[[Any], Any],
        limit: int,
        cursor: str | None,
        bytes_max: int = SERVED_PAGE_BYTES_MAX,
    ) -> tuple[list[msgspec.Raw], int, str | None]:
        """Return encoded items, the revision of the first step, and the cursor of the next page."""
        items: list[msgspec.Raw] = []
        size, revision = 0, None
        step = self._first_step(name)
        while True:
            page = await read(step, limit, cursor)
            self._remember(name, step)
            found = [_encode(item(entry)) for entry in page.entries]
            items += map(msgspec.Raw, found)
            size += sum(map(len, found))
            limit -= step.kept
            cursor = page.cursor
            revision = page.revision if revision is None else revision
            if limit <= 0 or cursor is None or size >= bytes_max:
                return items, revision, cursor

    async def read_each(
        self,
        name: str,
        read: ReadEach,
        item: Callable[[Any], Any],
        keys: Sequence[str],
        bytes_max: int = SERVED_PAGE_BYTES_MAX,
    ) -> list[Any]:
        """Return the encoded items at the first keys, null where there is none. A record is
        read once, however often its key is given, and costs as often as it is sent."""
        items: list[msgspec.Raw] = []
        size = read_size = 0
        distinct = [*dict.fromkeys(keys)]
        by_key: dict[str, bytes] = {}
        step = self._first_step(name)
        for key in keys:
            if key not in by_key:
                asked = distinct[len(by_key) : len(by_key) + step.rows]
                entries = await read(step, asked)
                self._remember(name, step)
                encoded = [_encode(entry and item(entry)) for entry in entries]
                by_key.update(zip(asked, encoded, strict=False))
                read_size += sum(map(len, encoded))
            items.append(msgspec.Raw(data := by_key[key]))
            size += len(data)
            if size >= bytes_max:
                break
        self._report_read(max(0, len(items) - len(by_key)), max(0, size - read_size))
        return items

    def _first_step(self, name: str) -> LongRead:
        each = self._item_bytes.get(name, UNKNOWN_ITEM_BYTES)
        rows = min(STEP_ITEMS_MAX, max(1, STEP_BYTES // max(1, each)))
        return LongRead(STEP_ITEMS_MAX, rows=rows, bytes_max=STEP_BYTES)

    def _remember(self, name: str, step: LongRead) -> None:
        if step.kept:
            self._item_bytes[name] = step.kept_bytes // step.kept
