"""Values as text, for the templates."""

from typing import Final

from keyhouse.errors import DocumentError
from keyhouse.schema import SECONDS
from keyhouse.service.pages.text import counted

__all__ = ["ago", "length", "wait"]

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def length(seconds: int) -> str:
    """Return a total duration: "45 s", "12 min", "3 h 20 min"."""
    if seconds < _MINUTE:
        return f"{seconds} s"
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def wait(seconds: int) -> str:
    """Return how long to wait, rounded up: "40 seconds", "12 minutes"."""
    if seconds < _MINUTE:
        return counted(max(1, seconds), "second")
    if seconds <= 2 * _HOUR:
        return counted(-(-seconds // _MINUTE), "minute")
    return counted(-(-seconds // _HOUR), "hour")


def ago(text: str, now: int) -> str:
    """Return how long ago a time of a document was; "" if it is not a time. `now` in
    milliseconds."""
    try:
        seconds = max(0, (now - SECONDS.parse(text)) // 1_000)
    except DocumentError:
        return ""
    for unit, size in (("day", _DAY), ("hour", _HOUR), ("minute", _MINUTE)):
        if seconds >= size:
            return f"{counted(seconds // size, unit)} ago"
    return "just now"
