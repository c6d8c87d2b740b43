"""Rows as commands print them: what each is in the schema, its value, and when it expires."""

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

import msgspec
from msgspec import UNSET

from keyhouse.advice import nearest
from keyhouse.cli.output import json_text, one_line, show_line, terminal
from keyhouse.engine import Change, Row
from keyhouse.errors import DataError, DocumentError, KeyFieldError, UsageError
from keyhouse.keys import Span
from keyhouse.schema import MILLISECONDS, KeyMatch, Schema
from keyhouse.service.remote import RemoteRow

GROUPS = ("records", "derived")
"""Values of `--type` besides the names of records."""


class RowView(msgspec.Struct, frozen=True):
    """A row for output, without private members.

    `kind` is `record`, `index`, …, or `unknown` if the key matches no template. `value` is unset if
    it was not read; `unreadable` is the reason why it can't be decoded. Members that a service does
    not return are unset. `change` is `put` or `gone`, in a watch.
    """

    space: str
    key: str
    kind: str
    record: str | None
    revision: int | msgspec.UnsetType
    expires: str | msgspec.UnsetType | None
    value: Any | msgspec.UnsetType = msgspec.UNSET
    unreadable: str | msgspec.UnsetType = msgspec.UNSET
    change: str | msgspec.UnsetType = msgspec.UNSET

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


def view_row(
    schema: Schema, space: str, row: Row | Change | RemoteRow, *, keys_only: bool = False
) -> RowView:
    """Return the view of a row of a store, of a change, or of a row that a service reports: its
    private members may have been left out."""
    match = schema.find(row.key)
    kind, record = "unknown", None
    if match is not None:
        kind, record = match.declared.declared.kind, match.record.name
    expires = MILLISECONDS.format(row.expires) if isinstance(row.expires, int) else row.expires
    view = RowView(space, row.key, kind, record, row.revision, expires)
    if isinstance(row, RemoteRow) and row.unreadable is not UNSET:
        return msgspec.structs.replace(view, unreadable=row.unreadable)
    if keys_only or row.value is None or row.value is UNSET:
        return view
    try:
        is_shown = isinstance(row, RemoteRow)
        return msgspec.structs.replace(
            view, value=_value(match, row.key, row.value, is_shown=is_shown)
        )
    except (DataError, DocumentError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return msgspec.structs.replace(view, value=None, unreadable=str(error))


def view_change(view: RowView, change: Change | RemoteRow) -> RowView:
    """Return the view of a row as a change: put, or gone."""
    gone = change.gone if isinstance(change, RemoteRow) else change.value is None
    return msgspec.structs.replace(view, change="gone" if gone else "put")


def _value(match: KeyMatch | None, key: str, value: bytes, *, is_shown: bool) -> Any:
    if match is None or not match.is_record:
        return msgspec.json.decode(value)
    if is_shown and match.record.declared.private:
        return match.record.json.without_private(msgspec.json.decode(value))
    return match.record.json.shown(match.record.decode(value, key), value)


def key_filter(schema: Schema, row_type: str | None) -> Callable[[str], bool]:
    """Return the predicate for `--type`."""
    names = [record.name for record in schema.records]
    if row_type is None:
        return lambda key: True
    if row_type not in (*GROUPS, *names):
        raise UsageError("Unknown record.", type=row_type, **nearest(row_type, [*GROUPS, *names]))

    def accepts(key: str) -> bool:
        match = schema.find(key)
        if match is None:
            return False
        is_record = match.is_record
        return (
            is_record == (row_type == "records")
            if row_type in GROUPS
            else is_record and match.record.name == row_type
        )

    return accepts


def prefix_span(prefix: str) -> Span:
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise KeyFieldError("The prefix is not valid UTF-8.", prefix=prefix) from None
    return Span.prefix(prefix)


# Listings

_CHUNK_ROWS: Final = 100
"""Rows in one table: its columns are as wide as these rows need."""
_KEY_SHARE: Final = 0.5
"""Maximum share of a line for keys, next to other columns; longer keys wrap."""
_OPTIONAL: Final = ("revision", "expires", "what")
"""Columns to drop when the terminal is too narrow, in this order."""
_GAP: Final = 2
_KEY_MIN: Final = 12
_KEY_LIVE: Final = 36
"""Initial width of the key column when each row is printed at once."""
_VALUE_MIN: Final = 8


class Listing:
    """A context manager that prints rows: a table on a terminal, tabs in a pipe, or lines of JSON.

    `columns` are members of RowView. `live` prints each row at once. `space`, if given, is named on
    a terminal when there was no row.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        json: bool = False,
        live: bool = False,
        space: str | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._json = json
        self._tty = sys.stdout.isatty()
        self._chunk_rows = 1 if live else _CHUNK_ROWS
        self._widest = dict.fromkeys(self._columns, 0) | ({"key": _KEY_LIVE} if live else {})
        self._chunk: list[RowView] = []
        self._has_header = False
        self._unseen_space = space if self._tty and not json else None

    def __enter__(self) -> "Listing":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            return
        self._flush()
        if self._unseen_space is not None:
            print(
                f"No such rows in the space `{one_line(self._unseen_space)}`."
                " `keyhouse spaces` lists the spaces that hold rows.",
                file=sys.stderr,
            )

    def add(self, row: RowView) -> None:
        self._unseen_space = None
        if self._json:
            show_line(row)
        elif not self._tty:
            cells = [_cell(row, name) for name in self._columns]
            print("\t".join(cells), flush=self._chunk_rows == 1)
        else:
            self._chunk.append(row)
            if len(self._chunk) >= self._chunk_rows:
                self._flush()

    def _flush(self) -> None:
        if not self._chunk:
            return
        from rich.table import Table
        from rich.text import Text

        console = terminal()
        widths = self._widths(console.width)
        table = Table(
            box=None,
            show_header=not self._has_header,
            header_style="bold",
            padding=(0, 2, 0, 0),
            pad_edge=False,
        )
        for name, width in widths.items():
            table.add_column(name, overflow="fold", width=width)
        for row in self._chunk:
            cells = {name: Text(_cell(row, name), _style(name, row)) for name in widths}
            if "value" in cells:
                cells["value"].truncate(widths["value"], overflow="ellipsis")
            table.add_row(*cells.values())
        console.print(table)
        self._has_header = True
        self._chunk.clear()

    def _widths(self, width: int) -> dict[str, int]:
        """Return the width of each column, never narrower than in the previous chunk.

        Optional columns are dropped where the key would be too narrow; keys wrap beyond their
        share; the value gets the rest.
        """
        from rich.cells import cell_len

        for name, before in self._widest.items():
            self._widest[name] = max(
                [before, len(name), *(cell_len(_cell(row, name)) for row in self._chunk)]
            )
        widths = self._widest.copy()
        key = min(widths["key"], max(_KEY_MIN, int(width * _KEY_SHARE)))
        value = _VALUE_MIN if "value" in widths else 0
        for name in _OPTIONAL:
            if key + value + _others(widths) > width:
                widths.pop(name, None)
                self._widest.pop(name, None)
        others = _others(widths)
        widths["key"] = min(widths["key"], max(1, min(key, width - others - value - _GAP)))
        if "value" in widths:
            widths["value"] = max(
                1, min(widths["value"], width - others - widths["key"] - 2 * _GAP)
            )
        return widths


def _others(widths: dict[str, int]) -> int:
    return sum(width + _GAP for name, width in widths.items() if name not in ("key", "value"))


def _cell(row: RowView, name: str) -> str:
    value: Any = getattr(row, name)
    if name == "value":
        if row.unreadable:
            return one_line(f"unreadable: {row.unreadable}")
        return "" if row.change == "gone" else one_line(json_text(value))
    return "" if value is None or value is UNSET else one_line(str(value))


def _style(name: str, row: RowView) -> str:
    if row.kind == "unknown" or row.unreadable:
        return "red"
    if row.change == "gone":
        return "dim strike" if name == "key" else "dim"
    if name == "key":
        return "cyan" if row.is_record else "dim cyan"
    return "" if name == "value" else "dim"
