"""Every form of output, in one place: for people on a terminal (Rich), for pipes (plain text), for programs (JSON).

A command says what it has to say as a `Report`, or as Markdown, and knows nothing of terminals. Characters that a terminal
would obey instead of showing, which a stored key may well hold, are written as escapes.
"""

import os
import re
import sys
from typing import Any

import msgspec

from keyhouse.errors import KeyhouseError

ALARMS = ("missing", "wrong", "unreadable")
"""Words that stand out where they are all that a cell says."""


class Part(msgspec.Struct, frozen=True):
    """A titled table without a head. Its cells may hold `code`."""

    title: str
    rows: list[tuple[str, ...]]


class Report(msgspec.Struct, frozen=True):
    """A heading, a sentence or two, and what is known in detail."""

    heading: str
    text: str
    parts: list[Part] = []


def show_json(value: object) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(json_text(value), indent=2).encode() + b"\n")


def terminal() -> Any:
    """Rich's console. With `NO_COLOR` in the environment it writes no escape at all, not even for bold."""
    from rich.console import Console

    return Console(highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def show_line(value: object) -> None:
    """One of many: a line of its own, which whoever reads them gets at once."""
    sys.stdout.buffer.write(json_text(value).encode() + b"\n")
    sys.stdout.buffer.flush()


def show_value(value: object, note: str) -> None:
    """A value: in colour with the note below it on a terminal; in a pipe it alone, as one line of JSON."""
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
    """Each with its empty parts left out, and an empty line between two."""
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
    """One sentence with its fields, to standard error."""
    if as_json and isinstance(error, KeyhouseError):
        fields = {name: _json_safe(value) for name, value in error.fields.items()}
        answer = {
            "error": error.sentence,
            "code": error.code,
            "status": error.status,
            "fields": fields,
        }
        print(json_text(answer), file=sys.stderr)
    else:
        print(f"keyhouse: {visible(str(error))}", file=sys.stderr)


def visible(text: str) -> str:
    """The text with what does not print (control characters, bidi marks, zero width) written as `\\x1b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def json_text(value: object) -> str:
    """On one line, with what does not print written as JSON's own escapes: the same value to whoever reads it."""
    text = msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    from json import dumps  # which writes ASCII, where it is wanted

    return "".join(c if c.isprintable() else dumps(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """On one line, whatever the text holds."""
    return visible(text).replace("\n", "\\n")


def number(count: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _plain(part: Part) -> str:
    columns = max(len(row) for row in part.rows)
    rows = [
        [_bare(one_line(cell)) for cell in row] + [""] * (columns - len(row)) for row in part.rows
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([part.title, *lines])


def _bare(cell: str) -> str:
    """A cell that is all `code` needs no marks around it, which whoever copies it would have to take off again."""
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
        for _ in range(max(map(len, part.rows))):
            table.add_column(overflow="fold")
        for row in part.rows:
            table.add_row(
                *[
                    Text(cell, "bold red") if cell in ALARMS else styled(one_line(cell))
                    for cell in row
                ]
            )
        console.print(table)


def _json_safe(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)
