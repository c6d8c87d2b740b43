"""Values as text, for the templates."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from keyhouse.errors import DocumentError
from keyhouse.schema import SECONDS

__all__ = ["ago", "clock_time", "counted", "length", "query", "wait"]

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def counted(number: int, noun: str) -> str:
    """Return "1 item" or "1,200 items"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock_time(seconds: float | None) -> str:
    """Return the duration of an item: "4:05" or "1:30:00"; "" if it is unknown."""
    if seconds is None:
        return ""
    minutes, left = divmod(int(seconds), _MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


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


def query(path: str, parameters: Mapping[str, Any]) -> str:
    """Return a path with parameters; those that are empty are left out."""
    given = [
        (name, each)
        for name, value in parameters.items()
        for each in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        )
        if each not in (None, "", 0, False)
    ]
    return f"{path}?{urlencode(given)}" if given else path
