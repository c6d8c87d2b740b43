"""All output formats: Rich on a terminal, plain text in a pipe, JSON for programs.

A command returns a `Report`, or Markdown, and knows nothing of terminals. Control characters, which
a stored key may contain, are printed as escapes.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from keyhouse.errors import KeyhouseError

__all__ = [
    "ALARMS",
    "Part",
    "Report",
    "json_text",
    "number",
    "one_line",
    "show",
    "show_error",
    "show_json",
    "show_line",
    "show_markdown",
    "show_reports",
    "show_value",
    "terminal",
    "visible",
]

ALARMS = ("missing", "wrong", "unreadable")
"""Cells with only one of these words are highlighted."""


T = TypeVar("T")

Rows = Sequence[tuple[str, ...]]


class Part(msgspec.Struct, frozen=True):
    """A titled table without a header. Cells may contain `code`. Of more rows than `most`, it has
    the first ones, and how many more there are."""

    title: str
    rows: Rows
    most: int | None = None

    @property
    def shown(self) -> Rows:
        if self.most is None or len(self.rows) <= self.most:
            return self.rows
        return [*self.rows[: self.most], (f"and {len(self.rows) - self.most:,} more",)]


class Report(msgspec.Struct, frozen=True):
    """A heading, a sentence or two, and tables with the details."""

    heading: str
    text: str
    parts: list[Part] = []


def show(result: T, report: Callable[[T], Report | str], *, json: bool) -> None:
    """Print the result of a command: JSON for programs, else the report or sentence made of it."""
    if json:
        show_json(result)
    elif isinstance(text := report(result), str):
        print(text)
    else:
        show_reports([text])


def show_json(value: object) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(json_text(value), indent=2).encode() + b"\n")


def terminal() -> Any:
    """Return Rich's console. With NO_COLOR set it writes no escape sequences, not even for bold."""
    from rich.console import Console

    return Console(highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def show_line(value: object) -> None:
    """Print one JSON line, and flush it: a reader of a stream gets each line at once."""
    sys.stdout.buffer.write(json_text(value).encode() + b"\n")
    sys.stdout.buffer.flush()


def show_value(value: object, note: str) -> None:
    """Print a value: coloured, with a note below, on a terminal; one line of JSON in a pipe."""
    if not sys.stdout.isatty():
        show_line(value)
        return
    from rich.syntax import Syntax
    from rich.text import Text

    console = terminal()
    text = msgspec.json.format(json_text(value), indent=2)
    console.print(
        Syntax(text, "json", theme="ansi_dark", background_color="default", word_wrap=True)
    )
    console.print(Text(visible(note), "dim"))


def show_markdown(text: str) -> None:
    if not sys.stdout.isatty():
        print(visible(text))
        return
    from rich.markdown import Markdown

    terminal().print(Markdown(visible(text)))


def show_reports(reports: list[Report]) -> None:
    """Print reports, without their empty parts, separated by empty lines."""
    for number, report in enumerate(reports):
        if number:
            print()
        parts = [part for part in report.parts if part.rows]
        if sys.stdout.isatty():
            _show_rich(report, parts)
        else:
            print(
                "\n\n".join([one_line(report.heading), visible(report.text), *map(_plain, parts)])
            )


def show_error(error: Exception, *, as_json: bool) -> None:
    """Print an error to standard error: one sentence with its fields."""
    if as_json and isinstance(error, KeyhouseError):
        answer = {
            "error": error.sentence,
            "type": error.type,
            "code": error.code,
            "status": error.status,
            "fields": error.json_fields(),
        }
        print(json_text(answer), file=sys.stderr)
    else:
        print(f"keyhouse: {visible(str(error))}", file=sys.stderr)


def visible(text: str) -> str:
    """Escape non-printable characters (control, bidi, zero width) as `\\x1b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def json_text(value: object) -> str:
    """Return JSON on one line, with non-printable characters as JSON escapes: the same value to a
    parser."""
    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    from json import dumps  # it escapes to ASCII

    return "".join(c if c.isprintable() else dumps(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Escape a text so that it stays on one line."""
    return visible(text).replace("\n", "\\n")


def number(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count: `1 row`, `2,000 rows`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def _plain(part: Part) -> str:
    columns = max(len(row) for row in part.shown)
    rows = [
        [_bare(one_line(cell)) for cell in row] + [""] * (columns - len(row)) for row in part.shown
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([part.title, *lines])


def _bare(cell: str) -> str:
    """Remove the marks around a cell that is all `code`, so that it can be copied."""
    return cell[1:-1] if re.fullmatch(r"`[^`]*`", cell) else cell


def _show_rich(report: Report, parts: list[Part]) -> None:
    from rich.table import Table
    from rich.text import Text

    def styled(text: str) -> Text:
        pieces = re.split(r"`([^`]+)`", text)
        return Text.assemble(
            *[(piece, "cyan" if index % 2 else "") for index, piece in enumerate(pieces)]
        )

    console = terminal()
    console.print(Text(one_line(report.heading), "bold"))
    console.print(styled(visible(report.text)))
    for part in parts:
        console.print(Text("\n" + part.title, "bold green"))
        table = Table.grid(padding=(0, 2), pad_edge=True)
        for _ in range(max(map(len, part.shown))):
            table.add_column(overflow="fold")
        for row in part.shown:
            table.add_row(
                *[
                    Text(cell, "bold red") if cell in ALARMS else styled(one_line(cell))
                    for cell in row
                ]
            )
        console.print(table)
