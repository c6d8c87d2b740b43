"""Rows as they come, in the form that the reader wants: a table on a terminal, tabs in a pipe, lines of JSON."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from msgspec import UNSET

from keyhouse.cli.output import one_line, show_line, terminal
from keyhouse.cli.rows import Shown
from keyhouse.cli.value import text_of

CHUNK_ROWS: Final = 100
"""Rows that are laid out together. The columns of one table are as wide as its rows need."""

KEY_SHARE: Final = 0.5
"""How much of a line keys may take before they are folded, where there is more to show than keys."""


class Listing:
    """A context. `fields` are what is shown of each row: `key`, `what`, `value`, `expires`, `revision`, `change`."""

    def __init__(self, fields: Sequence[str], *, json: bool = False, live: bool = False) -> None:
        self._fields = tuple(fields)
        self._json = json
        self._tty = sys.stdout.isatty()
        self._chunk_rows = 1 if live else CHUNK_ROWS
        self._longest = dict.fromkeys(self._fields, 0) | ({"key": _KEY_LIVE} if live else {})
        self._chunk: list[Shown] = []
        self._headed = False

    def __enter__(self) -> "Listing":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._flush()

    def add(self, row: Shown) -> None:
        if self._json:
            show_line(row)
        elif not self._tty:
            print("\t".join(self._cells(row)), flush=self._chunk_rows == 1)
        else:
            self._chunk.append(row)
            if len(self._chunk) >= self._chunk_rows:
                self._flush()

    def _cells(self, row: Shown) -> list[str]:
        return [_text(row, name) for name in self._fields]

    def _flush(self) -> None:
        if not self._chunk:
            return
        from rich.table import Table
        from rich.text import Text

        console = terminal()
        widths = self._widths(console.width)
        table = Table(
            box=None,
            show_header=not self._headed,
            header_style="bold",
            padding=(0, 2, 0, 0),
            pad_edge=False,
        )
        for name, width in widths.items():
            table.add_column(name, overflow="fold", width=width)
        for row in self._chunk:
            cells = {name: Text(_text(row, name), _style(name, row)) for name in widths}
            if "value" in cells:
                cells["value"].truncate(widths["value"], overflow="ellipsis")
            table.add_row(*cells.values())
        console.print(table)
        self._headed = True
        self._chunk.clear()

    def _widths(self, width: int) -> dict[str, int]:
        """How wide each column is, and no narrower than before. What can be done without is left out where the key would
        have too little room; the key is folded where it is longer than its share, and the value has what is left."""
        from rich.cells import cell_len

        for name, before in self._longest.items():
            self._longest[name] = max(
                [before, len(name), *(cell_len(_text(row, name)) for row in self._chunk)]
            )
        longest = self._longest.copy()
        key = min(longest["key"], max(_KEY_LEAST, int(width * KEY_SHARE)))
        value = _VALUE_LEAST if "value" in longest else 0
        for name in _DISPENSABLE:
            if (
                key
                + value
                + sum(w + _GAP for other, w in longest.items() if other not in ("key", "value"))
                > width
            ):
                longest.pop(name, None)
                self._longest.pop(name, None)
        others = sum(w + _GAP for other, w in longest.items() if other not in ("key", "value"))
        longest["key"] = min(longest["key"], max(1, min(key, width - others - value - _GAP)))
        if "value" in longest:
            longest["value"] = max(
                1, min(longest["value"], width - others - longest["key"] - 2 * _GAP)
            )
        return longest


_DISPENSABLE: Final = ("revision", "expires", "what")
_GAP: Final = 2
_KEY_LEAST: Final = 12
_KEY_LIVE: Final = 36
"""How wide the column of keys begins where each row is shown at once, and the ones to come are not known."""
_VALUE_LEAST: Final = 8


def _text(row: Shown, name: str) -> str:
    found: Any = getattr(row, name)
    if name == "value":
        if row.unreadable:
            return one_line(f"unreadable: {row.unreadable}")
        return "" if row.change == "gone" else one_line(text_of(found))
    return "" if found is None or found is UNSET else one_line(str(found))


def _style(name: str, row: Shown) -> str:
    if row.kind == "unknown" or row.unreadable:
        return "red"
    if row.change == "gone":
        return "dim strike" if name == "key" else "dim"
    if name == "key":
        return "cyan" if row.is_record else "dim cyan"
    return "" if name == "value" else "dim"
