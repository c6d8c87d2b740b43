"""What a person types for a value, a time to live and a revision."""

import re
from pathlib import Path
from typing import Any, TextIO

import msgspec

from keyhouse.cli.opening import opened_file
from keyhouse.cli.output import json_text
from keyhouse.errors import UsageError
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.store import ANY, Unset

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_value(value: str | None, file: Path | None, stdin: TextIO, *, as_text: bool) -> bytes:
    """The document: as an argument, from a file, or from standard input; `as_text`: made of that text."""
    if value is not None and file is not None:
        raise UsageError("Give the value as an argument or as --file, not as both.")
    if value is not None:
        content = value.encode(errors="surrogateescape")
    elif file is not None:
        with opened_file(file, "rb") as opened:
            content = opened.read(4 * VALUE_BYTES_MAX)
    elif stdin.isatty():
        raise UsageError("Give a value: as an argument, by --file, or on standard input.")
    else:
        content = stdin.buffer.read(4 * VALUE_BYTES_MAX)
        if not content and not as_text:
            raise UsageError(
                "Nothing came on standard input: give a value there, as an argument, or by --file."
            )
    return _quoted(content) if as_text else content


def _quoted(content: bytes) -> bytes:
    try:
        return msgspec.json.encode(content.decode())
    except UnicodeDecodeError:
        raise UsageError("The text is not UTF-8.") from None


def seconds(ttl: str | None) -> int | None:
    if ttl is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})([smhd]?)", ttl)
    if found is None:
        raise UsageError("A time to live is a number of seconds, or like 15m, 24h or 7d.", ttl=ttl)
    return int(found[1]) * _UNITS[found[2]]


def expected(revision: str | None) -> int | Unset | None:
    """What the store takes: a revision, `None` for "absent", or no expectation."""
    if revision is None:
        return ANY
    if revision == "absent":
        return None
    if not re.fullmatch(r"[0-9]{1,19}", revision):
        raise UsageError("A revision is a whole number, or `absent`.", expect=revision)
    return int(revision)


def text_of(value: Any) -> str:
    """A value as one line of JSON."""
    return json_text(value)
