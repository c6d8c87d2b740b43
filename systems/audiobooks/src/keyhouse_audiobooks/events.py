"""The event streams of a library: changes of its catalog, of operations and of their logs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from keyhouse.http import EventStream
from keyhouse.schema import Record
from keyhouse.service.event_hub import EventHub
from keyhouse.store import Event, Store
from keyhouse_audiobooks.accounts.permissions import SCAN, VIEW
from keyhouse_audiobooks.files.messages import ChangeEvent, WatchedType
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.schema import AUTHOR, BOOK, OPERATION, OPERATION_LOG, SERIES, WORK

__all__ = ["LibraryEvents"]

_WATCHED: Final[Mapping[WatchedType, Record[Any]]] = {
    "book": BOOK,
    "author": AUTHOR,
    "series": SERIES,
    "work": WORK,
}


class LibraryEvents:
    """A stream lasts as long as its member has the permission, which `is_allowed` tells."""

    def __init__(self, store: Store, is_allowed: Callable[[Member, str], Awaitable[bool]]) -> None:
        self._store = store
        self._is_allowed = is_allowed
        self._hub = EventHub()

    def catalog(self, type: WatchedType | None, since: int | None, member: Member) -> EventStream:
        """Stream the changes of books, authors, series and works, or of one type."""
        records = [*_WATCHED.values()] if type is None else [_WATCHED[type]]
        stream = self._hub.stream(self._store, *records, since=since, encode=self._encode)
        return self._guarded(stream, member, VIEW)

    def operations(self, since: int | None, member: Member) -> EventStream:
        stream = self._hub.stream(self._store, OPERATION, since=since, encode=self._encode)
        return self._guarded(stream, member, SCAN)

    def lines(self, operation_id: str, since: int | None, member: Member) -> EventStream:
        """Stream the log lines of an operation."""
        stream = self._hub.stream(
            self._store, OPERATION_LOG, since=since, operation_id=operation_id
        )
        return self._guarded(stream, member, SCAN)

    def _guarded(self, stream: EventStream, member: Member, permission: str) -> EventStream:
        return stream.while_valid(lambda: self._is_allowed(member, permission))

    def _encode(self, event: Event[Any]) -> tuple[str, ChangeEvent]:
        match = self._store.find(event.key)
        assert match is not None and match.is_record
        record = match.record.declared
        change = ChangeEvent(str(match.fields["id"]), record.name, event.revision, None)
        if event.gone:
            return f"{record.name}.deleted", change
        change.data = record.shown(event.record)
        change.data.pop("source", None)
        return f"{record.name}.updated", change
