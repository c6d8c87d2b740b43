"""Formats of times in stored records. All are UTC."""

from datetime import UTC, datetime, timedelta
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
        moment = _EPOCH + timedelta(milliseconds=now)
        return moment.replace(tzinfo=None).isoformat(timespec=self._unit) + "Z"

    def parse(self, text: str) -> int:
        """Return clock milliseconds; raises DocumentError if it is not a time with a zone."""
        try:
            moment = datetime.fromisoformat(text)
        except (ValueError, TypeError):
            raise DocumentError(
                "Not a time: RFC 3339 is expected, such as 2026-01-18T12:00:00Z.", text=text
            ) from None
        if moment.tzinfo is None:
            raise DocumentError(
                "The time has no zone: add Z, or an offset such as +01:00.", text=text
            )
        try:
            return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND
        except OverflowError:  # the offset leads out of the years that datetime can represent
            raise DocumentError(
                "The time is not in the years 1 to 9999 of UTC.", text=text
            ) from None


SECONDS = TimeFormat("seconds")
"""`2026-01-18T12:00:00Z`"""

MILLISECONDS = TimeFormat("milliseconds")
"""`2026-01-18T12:00:00.000Z`"""
