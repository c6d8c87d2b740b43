"""Key fields in requests: as text in a path or a query, as JSON in a body."""

from datetime import date
from typing import Any

from keyhouse.errors import KeyFieldError
from keyhouse.keys import Day, Descending, FixedPoint, Integer, OptionalSegment
from keyhouse.keys.blind_segment import is_blind
from keyhouse.keys.segment_protocol import Segment

__all__ = ["field_of_json", "field_of_text", "is_text"]

NULL = "null"
_DIGITS_MAX = 100


def field_of_text(name: str, segment: Segment, text: str) -> Any:
    """Return the value of a field that was sent as text. Raises KeyFieldError if it has none.

    Only the text's type is read here; the template checks the value.
    """
    if isinstance(segment, OptionalSegment) and text == NULL:
        return None
    inner = _inner(segment)
    try:
        if isinstance(inner, Integer):
            return _whole(text)
        if isinstance(inner, FixedPoint):
            return _whole(text) if text.isdecimal() else float(text)
        if isinstance(inner, Day):
            return date.fromisoformat(text)
    except ValueError:
        raise _invalid(name, segment, text) from None
    return text


def is_text(segment: Segment) -> bool:
    """Return whether `field_of_text` returns every text as it is."""
    kinds = (OptionalSegment, Integer, FixedPoint, Day)
    return not isinstance(segment, OptionalSegment) and not isinstance(_inner(segment), kinds)


def field_of_json(name: str, segment: Segment, value: Any) -> Any:
    """Return the value of a field that was sent as JSON. Raises KeyFieldError if it has none."""
    if isinstance(_inner(segment), Day) and isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise _invalid(name, segment, value) from None
    return value


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise ValueError
    return int(text)


def _inner(segment: Segment) -> Segment:
    while isinstance(segment, (OptionalSegment, Descending)):
        segment = segment.inner
    return segment


def _invalid(name: str, segment: Segment, value: object) -> KeyFieldError:
    shown = {} if is_blind(segment) else {"value": value}
    return KeyFieldError(
        "The field does not have its type.", field=name, **shown, needed=segment.description
    )
