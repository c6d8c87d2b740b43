"""One key: its segments, its value as stored, its expiry, and the rows that it is related to."""

from functools import partial
from typing import Any, Literal

import msgspec
import structlog

from keyhouse.auth import Caller
from keyhouse.engine import Row
from keyhouse.errors import UsageError
from keyhouse.http import EventStream
from keyhouse.keys import check_key
from keyhouse.schema import KeyMatch
from keyhouse.schema.explanation import Explanation, Miss, explain, nearest
from keyhouse.service.event_hub import EventHub
from keyhouse.service.pages import PageReply
from keyhouse.service.stored_row import RelatedRow, stored_row
from keyhouse.store import Event, Store
from keyhouse.studio.catalog import StudioSystem, SystemCatalog, is_editable
from keyhouse.studio.journal import Journal
from keyhouse.studio.private_keys import KeyView, masked_key
from keyhouse.studio.rendering import hidden_members, pretty
from keyhouse.studio.sessions import Sessions

_log = structlog.get_logger("keyhouse.studio")


class KeyQuery(msgspec.Struct, forbid_unknown_fields=True):
    k: str


class RevealForm(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["reveal"]


class KeyField(msgspec.Struct):
    name: str
    type: str
    value: str


class RelatedLine(msgspec.Struct):
    """A derived row of a record, or a record of a derived row. `is_whole` is false if private
    fields of its key are masked."""

    kind: str
    key: str
    state: str
    is_whole: bool


class KeyPage(msgspec.Struct, kw_only=True):
    """`value` is the stored JSON as text. `expires` and `now` are milliseconds of the store's
    clock."""

    system: str
    engine: str
    space: str
    key: str
    exists: bool = False
    kind: str = ""
    record: str = ""
    template: str = ""
    fields: list[KeyField] = []
    record_key: str | None = None
    value: str = ""
    is_json: bool = True
    hidden: list[str] = []
    is_revealed: bool = False
    unreadable: str = ""
    revision: int = 0
    bytes: int = 0
    expires: int | None = None
    now: int = 0
    is_record: bool = False
    is_editable: bool = False
    related: list[RelatedLine] = []
    nearest: list[Miss] = []


class KeyPages:
    def __init__(self, catalog: SystemCatalog, journal: Journal, sessions: Sessions) -> None:
        self._catalog = catalog
        self._journal = journal
        self._sessions = sessions
        self._events = EventHub()

    async def page(self, system: str, space: str, query: KeyQuery, caller: Caller) -> KeyPage:
        """Explain a key and show its row."""
        return await self._page(system, space, query.k, caller, reveal=False)

    async def reveal(
        self, system: str, space: str, query: KeyQuery, form: RevealForm, caller: Caller
    ) -> PageReply:
        """Show private members only in the answer to this form; the journal has it before."""
        await self._journal.write(caller.tenant, "reveal", system=system, space=space, key=query.k)
        page = await self._page(system, space, query.k, caller, reveal=True)
        return PageReply("key.html", page)

    async def _page(
        self, system: str, space: str, key: str, caller: Caller, *, reveal: bool
    ) -> KeyPage:
        check_key(key)
        served = self._catalog.system(system)
        view = KeyView(self._catalog.stores(served, space), caller)
        view.check(key)
        store, match = self._catalog.find(served, space, key)
        row = await store.row(key)
        _log.info(
            "operator read a value",
            operator=caller.tenant,
            system=system,
            space=space,
            key=masked_key(match, key),
        )
        return await key_page(served, store, match, key, row, view, reveal=reveal)

    async def live(self, system: str, space: str, query: KeyQuery, caller: Caller) -> EventStream:
        """Stream the changes of a record, until the session ends."""
        served = self._catalog.system(system)
        KeyView(self._catalog.stores(served, space), caller).check(query.k)
        store, match = self._catalog.find(served, space, query.k)
        if match is None or not match.is_record:
            raise UsageError(
                "Only the changes of a record can be followed, by the key of the record.",
                key=query.k,
            )
        record = match.record.declared
        fields: dict[str, Any] = match.fields
        stream = self._events.stream(store, record, encode=_change, **fields)
        return stream.while_valid(partial(self._sessions.is_valid, caller))


def _change(event: Event[Any]) -> tuple[str, Any]:
    """Encode a change without its value, which the page reads again."""
    return "gone" if event.gone else "put", {"key": event.key, "revision": event.revision}


async def key_page(
    system: StudioSystem,
    store: Store,
    match: KeyMatch | None,
    key: str,
    row: Row | None,
    view: KeyView,
    *,
    reveal: bool = False,
) -> KeyPage:
    page = KeyPage(
        system=system.name,
        engine=system.engine,
        space=store.space,
        key=key,
        now=store.engine.clock.now(),
    )
    explained = explain(store.schema, key)
    if explained is None:
        page.nearest = nearest(system.schemas, key)
    else:
        _explain(page, explained)
    if match is not None:
        page.is_record = match.is_record
        page.is_editable = is_editable(store, match)
    if row is None:
        return page
    hidden = () if match is None or not page.is_record else hidden_members(match.record.declared)
    page.exists = True
    page.hidden, page.is_revealed = list(hidden), reveal and bool(hidden)
    page.value, page.is_json = pretty(row.value if reveal else view.value(key, row.value))
    page.revision, page.bytes, page.expires = row.revision, len(row.value), row.expires
    if match is not None:
        stored = await stored_row(store, match, row)
        page.related = _related(stored.neighbours, view)
        page.unreadable = stored.unreadable
        if page.unreadable and hidden_members(match.record.declared) and not view.sees_private:
            page.unreadable = "The value does not decode."  # the reason may have private members
    return page


def _related(rows: list[RelatedRow], view: KeyView) -> list[RelatedLine]:
    return [
        RelatedLine(row.kind, shown, row.state, shown == row.key)
        for row in rows
        if (shown := view.key(row.key))
    ]


def _explain(page: KeyPage, explained: Explanation) -> None:
    page.kind, page.record = explained.kind, explained.record
    page.template, page.record_key = explained.template, explained.record_key
    page.fields = [KeyField(field.name, field.type, str(field.value)) for field in explained.fields]
