"""The journal: who did what through the Studio, with the record as it was before."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import NotFoundError
from keyhouse.store import Store
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.rendering import MASK, masked_row, pretty
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
    def __init__(self, store: Store, catalog: SystemCatalog) -> None:
        self._store = store
        self._catalog = catalog

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

    async def complete(self, id: str, revision: int, after: str | None) -> None:
        """Add the outcome of a committed change."""
        line = await self.line(id)
        if line is not None:
            line.revision = revision
            line.after = None if len(after or "") > IMAGE_CHARS_MAX else after
            await self._store.put(JOURNAL, line)

    async def drop(self, id: str) -> None:
        """Remove the line of a change that was not made."""
        await self._store.delete(JOURNAL, id=id)

    async def line(self, id: str) -> JournalLine | None:
        return await self._store.get(JOURNAL, id=id)

    async def of_job(self, id: str) -> AsyncIterator[JournalLine]:
        """Yield the changes that a job has made, the oldest first."""
        async for entry in self._store.scan(JOURNAL, between=(id, None)):
            if entry.record.job == id and entry.record.revision is not None:
                yield entry.record

    async def page(self, query: JournalQuery, caller: Caller) -> JournalPage:
        """List what operators did, the newest first."""
        page = await self._store.page(
            JOURNAL, limit=LINES_PAGE, cursor=query.cursor or None, reverse=True
        )
        lines = [self._masked(entry.record) for entry in page.entries]
        return JournalPage(lines, page.cursor or "")

    def _masked(self, line: JournalLine) -> JournalLine:
        """Hide private members of the values."""
        if not line.key or not (line.before or line.after):
            return line
        try:
            system = self._catalog.system(line.system)
            match = self._catalog.find(system, line.space, line.key)[1]
        except NotFoundError:
            match = None
        for name in ("before", "after"):
            if (text := getattr(line, name)) is None:
                continue
            hidden = MASK if match is None else pretty(masked_row(match, text.encode()))[0]
            setattr(line, name, hidden)
        return line
