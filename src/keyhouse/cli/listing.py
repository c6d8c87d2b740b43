"""Rows as they come, in the form that the reader wants: a table on a terminal, tabs in a pipe, lines of JSON."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from keyhouse.cli.output import one_line, show_line
from keyhouse.cli.rows import Shown
from keyhouse.cli.value import text_of

CHUNK_ROWS: Final = 100
"""Rows that are laid out together. The columns of one table are as wide as its rows need."""

KEY_SHARE: Final = 0.6
"""How much of a line a key may take before the value beside it is cut shorter than the rest."""


class Listing:
    """A context. `fields` are what is shown of each row: `key`, `what`, `value`, `expires`, `revision`, `change`."""

    def __init__(self, fields: Sequence[str], *, json: bool = False, live: bool = False) -> None:
        self._fields = tuple(fields)
        self._json = json
        self._tty = sys.stdout.isatty()
        self._chunk_rows = 1 if live else CHUNK_ROWS
        self._chunk: list[Shown] = []
        self._headed = False

    def __enter__(self) -> "Listing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(highlight=False)
        table = Table(box=None, show_header=not self._headed, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
        for name in self._fields:
            table.add_column(name, overflow="fold", no_wrap=name in _NARROW)
        room = self._room(console.width)
        for row in self._chunk:
            cells: list[Text] = []
            for name, cell in zip(self._fields, self._cells(row), strict=True):
                text = Text(cell, _style(name, row))
                if name == "value":
                    text.truncate(room, overflow="ellipsis")
                cells.append(text)
            table.add_row(*cells)
        console.print(table)
        self._headed = True
        self._chunk.clear()

    def _room(self, width: int) -> int:
        """What is left of a line for the value."""
        from rich.cells import cell_len

        others = [name for name in self._fields if name != "value"]
        longest = {name: max([len(name), *(cell_len(_text(row, name)) for row in self._chunk)]) for name in others}
        longest["key"] = min(longest["key"], int(width * KEY_SHARE))
        return max(12, width - sum(longest.values()) - 2 * len(others) - 2)


_NARROW: Final = ("revision", "change", "expires", "what", "value")


def _text(row: Shown, name: str) -> str:
    found: Any = getattr(row, name)
    if name == "value":
        if row.unreadable:
            return one_line(f"unreadable: {row.unreadable}")
        return "" if row.change == "gone" else one_line(text_of(found))
    return "" if found is None else one_line(str(found))


def _style(name: str, row: Shown) -> str:
    if row.kind == "unknown" or row.unreadable:
        return "red"
    if row.change == "gone":
        return "dim strike" if name == "key" else "dim"
    if name == "key":
        return "cyan" if row.is_record else "dim cyan"
    return "" if name == "value" else "dim"
