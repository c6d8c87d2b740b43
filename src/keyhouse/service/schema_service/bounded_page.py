"""Pages of a list, bounded by bytes, and read and encoded in steps.

A page has up to 500 records, each of up to 380 KiB. To read, decode and encode them at once would
take seconds, in which no other request is served, and hundreds of megabytes. So a page is read in
steps of a bounded number of records, fewer where they are large, and ends once it has
`SERVED_PAGE_BYTES_MAX`; its cursor continues after it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from keyhouse.limits import SERVED_PAGE_BYTES_MAX
from keyhouse.store import RecordPage
from keyhouse.store.long_read import wait_for_turn

__all__ = ["BoundedPages"]

STEP_ITEMS_MAX: Final = 50
STEP_BYTES: Final = 128 * 1_024
"""Bytes of a step, by the average of those before it."""

UNKNOWN_ITEM_BYTES: Final = 64 * 1_024
"""The size of a record before the first one of its kind was read: the first step is a small one."""

ReadStep = Callable[[int, str | None], Awaitable[RecordPage[Any]]]
"""Reads up to so many records from a cursor."""

_encode = msgspec.json.Encoder().encode


class BoundedPages:
    """Reads pages, and remembers the size of records by their name: it sizes the next step."""

    def __init__(self, space: str) -> None:
        self._space = space
        self._item_bytes: dict[str, int] = {}

    async def read(
        self,
        name: str,
        read: ReadStep,
        item: Callable[[Any], Any],
        limit: int,
        cursor: str | None,
    ) -> tuple[list[Any], int, str | None]:
        """Return encoded items, the revision of the first step, and the cursor of the next page."""
        items: list[msgspec.Raw] = []
        size, revision = 0, None
        while True:
            each = self._item_bytes.get(name, UNKNOWN_ITEM_BYTES)
            step = min(limit, STEP_ITEMS_MAX, max(1, STEP_BYTES // each))
            await wait_for_turn(self._space)  # one step per turn of the event loop, by spaces
            page = await read(step, cursor)
            found = [_encode(item(entry)) for entry in page.entries]
            step_bytes = sum(map(len, found))
            if found:
                self._item_bytes[name] = step_bytes // len(found)
            items += map(msgspec.Raw, found)
            size += step_bytes
            limit -= step
            cursor = page.cursor
            revision = page.revision if revision is None else revision
            if limit <= 0 or cursor is None or size >= SERVED_PAGE_BYTES_MAX:
                return items, revision, cursor
