"""The journal: who did what through the Studio, with the record as it was before."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import NotFoundError
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.store import Store
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.private_keys import KeyView, masked_value
from keyhouse.studio.rendering import MASK, pretty
from keyhouse.studio.schema import JOURNAL, JournalLine

IMAGE_CHARS_MAX: Final = 300_000
"""Longest value that a line keeps; a change of a longer one cannot be undone."""

LINES_PAGE: Final = 50
LINES_STEP: Final = 5
PAGE_CHARS_MAX: Final = 1_024 * 1_024
"""Lines of a page, and of a step after which other requests have their turn. A page ends after the
step whose values exceed the characters."""


class JournalPage(msgspec.Struct):
    lines: list[JournalLine]
    cursor: str


class JournalQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str = ""


class ChangeQuery(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class Journal:
    def __init__(self, store: Store, catalog: SystemCatalog) -> None:
        self._store = store
        self._catalog = catalog

    async def write(self, operator: str, action: str, **parts: Any) -> str:
        """Append a line and return its id."""
        line = JournalLine(
            id=self._store.ids.new(),
            at=self._store.engine.clock.now(),
            operator=operator,
            action=action,
            **parts,
        )
        await self._store.put(JOURNAL, _fitted(line))
        return line.id

    async def complete(self, id: str, revision: int, after: str | None) -> None:
        """Add the outcome of a committed change."""
        line = await self.line(id)
        if line is not None:
            line.revision = revision
            line.after = after
            await self._store.put(JOURNAL, _fitted(line))

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
        """List what operators did, the newest first. A page of large values has fewer lines."""
        lines: list[JournalLine] = []
        chars, cursor = 0, query.cursor or None
        while True:
            page = await self._store.page(JOURNAL, limit=LINES_STEP, cursor=cursor, reverse=True)
            for entry in page.entries:
                lines.append(self._masked(entry.record, caller))
                chars += len(entry.record.before or "") + len(entry.record.after or "")
            cursor = page.cursor
            if cursor is None or len(lines) >= LINES_PAGE or chars > PAGE_CHARS_MAX:
                return JournalPage(lines, cursor or "")
            await asyncio.sleep(0)

    async def change(self, query: ChangeQuery, caller: Caller) -> JournalLine:
        """Show one change, with the record before and after."""
        line = await self.line(query.id)
        if line is None or not line.key:
            raise NotFoundError("The journal has no such change.", id=query.id)
        return self._masked(line, caller)

    def shown_key(self, line: JournalLine, caller: Caller | None = None) -> str:
        """Return the key of a line as an operator may see it; without one, as everybody may."""
        view = self._view(line, caller)
        return MASK if view is None else view.key(line.key)

    def _view(self, line: JournalLine, caller: Caller | None) -> KeyView | None:
        """Return the view of a line's space; None if that is no longer served."""
        try:
            system = self._catalog.system(line.system)
            return KeyView(self._catalog.stores(system, line.space), caller)
        except NotFoundError:
            return None

    def _masked(self, line: JournalLine, caller: Caller) -> JournalLine:
        """Hide private members of the key and of the values."""
        if not line.key:
            return line
        view = self._view(line, caller)
        match = None if view is None else view.find(line.key)
        for name in ("before", "after"):
            if (text := getattr(line, name)) is None:
                continue
            hidden = MASK if match is None else pretty(masked_value(match, text.encode()))[0]
            setattr(line, name, hidden)
        if view is not None:
            line.key = view.key(line.key)
        return line


def _fitted(line: JournalLine) -> JournalLine:
    """Return the line without the values that it has no room for: the one after is the first to go,
    because an undo needs the other."""
    for name in ("before", "after"):
        if len(getattr(line, name) or "") > IMAGE_CHARS_MAX:
            setattr(line, name, None)
    for name in ("after", "before"):
        if len(msgspec.json.encode(line)) > VALUE_BYTES_MAX:
            setattr(line, name, None)
    return line
