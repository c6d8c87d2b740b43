"""The journal: who did what through the Studio, with the record as it was before."""

from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.store import Store
from keyhouse.studio.schema import JOURNAL, JournalLine

IMAGE_CHARS_MAX: Final = 300_000
"""Longest value that a line keeps; a change of a longer one cannot be undone."""

LINES_PAGE: Final = 50


class JournalPage(msgspec.Struct):
    lines: list[JournalLine]
    cursor: str


class JournalQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str = ""


class Journal:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, operator: str, action: str, **parts: Any) -> str:
        """Append a line and return its id."""
        for name in ("before", "after"):
            if len(parts.get(name) or "") > IMAGE_CHARS_MAX:
                parts[name] = None
        line = JournalLine(
            id=self._store.ids.new(),
            at=self._store.engine.clock.now(),
            operator=operator,
            action=action,
            **parts,
        )
        await self._store.put(JOURNAL, line)
        return line.id

    async def line(self, id: str) -> JournalLine | None:
        return await self._store.get(JOURNAL, id=id)

    async def page(self, query: JournalQuery, caller: Caller) -> JournalPage:
        """List what operators did, the newest first."""
        page = await self._store.page(
            JOURNAL, limit=LINES_PAGE, cursor=query.cursor or None, reverse=True
        )
        return JournalPage([entry.record for entry in page.entries], page.cursor or "")
