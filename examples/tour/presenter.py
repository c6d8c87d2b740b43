"""Output of the demo: a title, a text, the code that runs, its output, and the changed rows.

The printed code is the source of the called function, so the two cannot differ.
"""

import inspect
import io
import textwrap
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from keyhouse.engine import Engine, Row
from keyhouse.store import RawRows

Rows = dict[str, Row]

_PIPE_COLUMNS = 120
_ROWS_MAX = 1_000


class Presenter:
    def __init__(self, engine: Engine, space: str) -> None:
        self._raw_rows = RawRows(engine, space)
        plain = Console()
        self._console = plain if plain.is_terminal else Console(width=_PIPE_COLUMNS)
        self._number = 0

    async def step(
        self,
        title: str,
        text: str,
        run: Callable[..., Awaitable[object]],
        *arguments: object,
        given: str = "",
    ) -> None:
        """Print a function (after the code `given`), call it, and print its output and changed
        rows.
        """
        self.title(title, text)
        self.code("\n\n".join(filter(None, [given, _body(run)])))
        before = await self._rows()
        printed = io.StringIO()
        with redirect_stdout(printed):
            await run(*arguments)
        self._lines("→ ", printed.getvalue(), "green")
        self._difference(before, await self._rows())

    def title(self, title: str, text: str) -> None:
        self._number += 1
        self._console.print()
        self._console.print(Rule(f"{self._number}. {title}", align="left", style="cyan"))
        self._console.print(Text(" ".join(text.split())), soft_wrap=False)

    def code(self, code: str) -> None:
        self._console.print()
        if self._console.is_terminal:
            highlighted = Syntax(
                code, "python", theme="ansi_dark", background_color="default", word_wrap=True
            )
            self._console.print(Padding(highlighted, (0, 0, 0, 4)))
        else:
            self._lines("    ", code, "")

    def output(self, text: str) -> None:
        self._lines("  ", text, "green")

    def say(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text))

    def _lines(self, mark: str, text: str, style: str) -> None:
        for line in text.splitlines():
            self._console.print(Text(mark + line, style), soft_wrap=True)

    async def _rows(self) -> Rows:
        page = await self._raw_rows.row_page(limit=_ROWS_MAX)
        return {row.key: row for row in page.rows}

    def _difference(self, before: Rows, after: Rows) -> None:
        changed = [
            key
            for key in sorted(before.keys() | after.keys())
            if _content(before.get(key)) != _content(after.get(key))
        ]
        if not changed:
            return
        self._console.print(Text("\n  rows in the file", "bold"))
        width = max(map(len, changed))
        for key in changed:
            row = after.get(key)
            mark, style = (
                ("-", "red")
                if row is None
                else ("+", "green")
                if key not in before
                else ("~", "yellow")
            )
            line = Text.assemble(
                (f"  {mark} {key:<{width}}", style), "" if row is None else f"  {_value(row)}"
            )
            line.truncate(self._console.width, overflow="ellipsis")
            self._console.print(line, soft_wrap=True)


def _content(row: Row | None) -> tuple[bytes, int | None] | None:
    """Return a row without its revision: a row rewritten unchanged is not a change."""
    return None if row is None else (row.value, row.expires)


def _value(row: Row) -> str:
    text = row.value.decode()
    if row.expires is None:
        return text
    return f"{text}   until {datetime.fromtimestamp(row.expires / 1_000, UTC):%H:%M:%S}"


def _body(function: Callable[..., object]) -> str:
    """Return the lines below `async def …:`."""
    lines = inspect.getsource(function).splitlines()
    return textwrap.dedent("\n".join(lines[1:]))
