"""Values as text: numbers, sizes, times, stored JSON. Nothing is rounded by a script."""

import re
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import msgspec

from keyhouse.schema import MILLISECONDS, Record
from keyhouse.studio.settings import NAME

SPACE_PAGES: Final = frozenset({"tree", "key", "edit", "verify", "bulk", "export", "live"})
"""Last segments of the pages of a space."""

_HERE: Final = re.compile(rf"/{NAME}/[\x21-\x5b\x5d-\x7e]*")
MASK: Final = "••••••"
_COLOURED_CHARS_MAX: Final = 20_000
_STRING: Final = r'"(?:[^"\\]|\\.)*+"?'  # one that is not closed is read once, to its end
_TOKEN: Final = re.compile(
    rf"(?P<member>{_STRING})(?=\s*:)|(?P<string>{_STRING})"
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<literal>\b(?:true|false|null)\b)"
)
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def quoted(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")


def studio_path(*segments: str, **query: Any) -> str:
    """Return a path of the Studio. A trailing "" makes it end with a slash."""
    path = "/".join([f"/{NAME}", *map(quoted, segments)])
    given = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def local_path(path: str) -> str:
    """Return the path if it is one of the Studio, else nothing. Browsers resolve dots, also encoded
    ones, and so leave it."""
    if not _HERE.fullmatch(path):
        return ""
    segments = re.split(r"[?#]", path, maxsplit=1)[0].split("/")
    return "" if any(unquote(each) in (".", "..") for each in segments) else path


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


def plural(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 row`, `2 rows`."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def size(value: int | None) -> str:
    """Return a number of bytes with three digits."""
    if value is None:
        return ""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1_000:
            return f"{value} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1_000
    return f"{amount:.3g} TB"


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
    return tuple(record.member(name) for name in (*record.private, *record.sealed))
