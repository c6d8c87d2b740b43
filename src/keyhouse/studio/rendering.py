"""Values as text: numbers, sizes, times, stored JSON. Nothing is rounded by a script."""

import re
from typing import Any, Final

import msgspec

from keyhouse.schema import MILLISECONDS, Record
from keyhouse.service.pages import PagePaths
from keyhouse.studio.settings import NAME

SPACE_PAGES: Final = frozenset({"tree", "key", "edit", "verify", "bulk", "export", "live"})
"""Last segments of the pages of a space."""

PATHS: Final = PagePaths(NAME)
studio_path: Final = PATHS.path
MASK: Final = "••••••"
_COLOURED_CHARS_MAX: Final = 20_000
_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'  # one that is not closed is read once, to its end
_TOKEN: Final = re.compile(
    rf"(?P<member>{_STRING})(?=\s*:)|(?P<string>{_STRING})"
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<literal>\b(?:true|false|null)\b)"
)
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def record_segment(name: str) -> str:
    """Return a record's name as a segment of a path: between tildes if a page has that path."""
    if name in SPACE_PAGES or name.endswith(".json") or name.startswith("~"):
        return f"~{name}~"
    return name


def record_name(segment: str) -> str:
    """Return the record's name that a segment of a path means."""
    return segment[1:-1] if len(segment) > 2 and segment[0] == segment[-1] == "~" else segment


def record_path(system: str, space: str, record: str, **query: Any) -> str:
    """Return the path of a record's table."""
    return studio_path(system, space, record_segment(record), **query)


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def moment(value: int | None) -> str:
    """Return a time in the clock's milliseconds as RFC 3339."""
    return "" if value is None else MILLISECONDS.format(value)


def pretty(value: bytes) -> tuple[str, bool]:
    """Return stored JSON with line breaks, and whether it is JSON. Numbers stay as written."""
    try:
        value.decode()
        return msgspec.json.format(value, indent=2).decode(), True
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value.decode(errors="backslashreplace"), False


def tokens(text: str) -> list[tuple[str, str]]:
    """Split JSON text into pieces with the class that colours them; "" for none.

    A long text is one piece.
    """
    if len(text) > _COLOURED_CHARS_MAX:
        return [("", text)]
    pieces: list[tuple[str, str]] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces += [("", text[end : match.start()]), (str(match.lastgroup), match[0])]
        end = match.end()
    return [piece for piece in (*pieces, ("", text[end:])) if piece[1]]


def marked(text: str) -> list[tuple[bool, str]]:
    """Split a sentence of a schema's description into pieces, with whether each is code: its
    Markdown has backticks around names."""
    return [(number % 2 == 1, piece) for number, piece in enumerate(text.split("`")) if piece]


def masked(value: bytes, members: tuple[str, ...]) -> bytes:
    """Return stored JSON with the values of these members hidden; all of it if it is not an
    object."""
    if not members:
        return value
    try:
        document = _RAW.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(MASK)
    hidden = msgspec.Raw(msgspec.json.encode(MASK))
    return msgspec.json.encode(
        {name: hidden if name in members else each for name, each in document.items()}
    )


def hidden_members(record: Record[Any]) -> tuple[str, ...]:
    """Return the members that pages do not show: private and sealed ones."""
    return tuple(record.json.member(name) for name in (*record.private, *record.sealed))
