"""Formats of times in stored records. All are UTC."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from keyhouse.errors import DocumentError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class TimeFormat:
    """RFC 3339 in UTC with `Z`, in seconds or milliseconds.

    Parses any offset, and rejects a time without one.
    """

    __slots__ = ("_unit",)

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def format(self, now: int) -> str:
        """Format clock milliseconds."""
        seconds, milliseconds = divmod(now, 1_000)
        text = _second(seconds)
        return f"{text}Z" if self._unit == "seconds" else f"{text}.{milliseconds:03d}Z"

    def parse(self, text: str | datetime) -> int:
        """Return clock milliseconds; raises DocumentError if it is not a time with a zone."""
        try:
            return _milliseconds(text)
        except TypeError:
            raise _not_a_time(text) from None


@lru_cache(1_024)
def _second(seconds: int) -> str:
    """Return a second without its zone: most times of a service are of the same few seconds."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


@lru_cache(1_024)
def _milliseconds(text: str | datetime) -> int:
    """Parse a time: those of one record are parsed several times for each write."""
    try:
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text) from None
    if moment.tzinfo is None:
        zone = "Z, or an offset such as +01:00" if isinstance(text, str) else "tzinfo=UTC"
        raise DocumentError(f"The time has no zone: add {zone}.", text=text)
    try:
        return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
    except OverflowError:  # the offset leads out of the years that datetime can represent
        raise DocumentError("The time is not in the years 1 to 9999 of UTC.", text=text) from None


def _not_a_time(text: object) -> DocumentError:
    return DocumentError(
        "Not a time: RFC 3339 is expected, such as 2026-01-18T12:00:00Z.", text=text
    )


SECONDS = TimeFormat("seconds")
"""`2026-01-18T12:00:00Z`"""

MILLISECONDS = TimeFormat("milliseconds")
"""`2026-01-18T12:00:00.000Z`"""
