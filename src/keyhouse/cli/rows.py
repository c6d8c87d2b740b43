"""Rows as commands show them: what each is in the schema, its value without private members, when it goes by itself."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from keyhouse.engine import Change, Engine, Row
from keyhouse.errors import DataError, DocumentError, KeyFieldError, KeyhouseError, UsageError
from keyhouse.keys import Span
from keyhouse.schema import MILLISECONDS, KeyMatch, Record, Schema
from keyhouse.schema.description import kind_of
from keyhouse.service.remote import RemoteRow

_PAGE_ROWS = 200

GROUPS = ("records", "derived")
"""What `--only` takes besides the name of a record."""


class AbsentError(KeyhouseError):
    """What was asked for is not there. For the store that is an answer; for whoever asked by a command, exit code 3."""

    status = 404
    code = "NOT_FOUND"


Filter = Callable[[str], bool]


class Shown(msgspec.Struct, frozen=True):
    """A row. `kind`: `record`, `index`, …, or `unknown` for a key of no template. `value` is absent where it was not read,
    and `unreadable` says why a value can't be shown as its record. What a service does not tell is absent."""

    space: str
    key: str
    kind: str
    record: str | None
    revision: int | msgspec.UnsetType
    expires: str | msgspec.UnsetType | None
    value: Any | msgspec.UnsetType = msgspec.UNSET
    unreadable: str | msgspec.UnsetType = msgspec.UNSET
    change: str | msgspec.UnsetType = msgspec.UNSET
    """Of a watch: `put` or `gone`."""

    @property
    def what(self) -> str:
        return (
            self.record or self.kind
            if self.is_record or not self.record
            else f"{self.kind} of {self.record}"
        )

    @property
    def is_record(self) -> bool:
        return self.kind in ("record", "counter", "log")


def shown(schema: Schema, space: str, row: Row, *, keys_only: bool = False) -> Shown:
    found = schema.find(row.key)
    kind, record = (
        ("unknown", None) if found is None else (kind_of(found.declared), found.record.name)
    )
    expires = None if row.expires is None else MILLISECONDS.format(row.expires)
    there = Shown(space, row.key, kind, record, row.revision, expires)
    if keys_only:
        return there
    try:
        return msgspec.structs.replace(there, value=_value(found, row))
    except (DataError, DocumentError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return msgspec.structs.replace(there, value=None, unreadable=str(error))


def shown_change(schema: Schema, space: str, change: Change) -> Shown:
    gone = change.value is None
    row = Row(change.key, change.value or b"null", change.revision, change.expires)
    return msgspec.structs.replace(
        shown(schema, space, row, keys_only=gone), change="gone" if gone else "put"
    )


def shown_told(
    schema: Schema, space: str, told: RemoteRow, *, keys_only: bool = False, watched: bool = False
) -> Shown:
    """As a service tells it."""
    bare = keys_only or told.value is msgspec.UNSET
    row = Row(told.key, told.value or b"null", told.revision or 0, told.expires or None)
    there = shown(schema, space, row, keys_only=bare)
    expires = told.expires if told.expires is msgspec.UNSET else there.expires
    change: str | msgspec.UnsetType = ("gone" if told.gone else "put") if watched else msgspec.UNSET
    return msgspec.structs.replace(there, revision=told.revision, expires=expires, change=change)


def _value(found: KeyMatch | None, row: Row) -> Any:
    if found is None or not isinstance(found.declared, Record):
        return msgspec.json.decode(row.value)
    return found.record.shown(found.record.decode(row.value, row.key))


def filter_of(schema: Schema, only: str | None) -> Filter:
    """Whether a key is to be shown."""
    names = [record.name for record in schema.records]
    if only is None:
        return lambda key: True
    if only not in (*GROUPS, *names):
        raise UsageError("No record has this name.", only=only, known=[*GROUPS, *names])

    def passes(key: str) -> bool:
        found = schema.find(key)
        if found is None:
            return False
        is_record = isinstance(found.declared, Record)
        return (
            is_record == (only == "records")
            if only in GROUPS
            else is_record and found.record.name == only
        )

    return passes


def span_of(prefix: str) -> Span:
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise KeyFieldError("The start of a key is not text in UTF-8.", prefix=prefix) from None
    return Span.prefix(prefix)


async def walked(
    engine: Engine, space: str, span: Span, *, reverse: bool = False, keys_only: bool = False
) -> AsyncIterator[Row]:
    """The rows of the span, page by page: each page is of its own moment."""
    while True:
        page = await engine.scan(
            space, span, limit=_PAGE_ROWS, reverse=reverse, keys_only=keys_only
        )
        for row in page.rows:
            yield row
        if not page.more:
            return
        last = page.rows[-1].key
        span = span.before(last) if reverse else span.after(last)
