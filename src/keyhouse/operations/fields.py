"""Key fields in requests: as text in a path or a query, as JSON in a body."""

from datetime import date
from typing import Any

from keyhouse.errors import KeyFieldError
from keyhouse.keys.segment import Segment

__all__ = ["field_of_json", "field_of_text", "is_text"]

NULL = "null"
_DIGITS_MAX = 100


def field_of_text(name: str, segment: Segment, text: str) -> Any:
    """Return the value of a field that was sent as text. Raises KeyFieldError if it has none.

    Only the text's type is read here; the template checks the value.
    """
    try:
        return segment.from_text(text)
    except ValueError:
        raise _invalid(name, segment, text) from None


def is_text(segment: Segment) -> bool:
    """Return whether `field_of_text` returns every text as it is."""
    return type(segment).from_text is Segment.from_text


def field_of_json(name: str, segment: Segment, value: Any) -> Any:
    """Return the value of a field that was sent as JSON. Raises KeyFieldError if it has none."""
    if date in segment.innermost.takes and isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise _invalid(name, segment, value) from None
    return value


def _invalid(name: str, segment: Segment, value: object) -> KeyFieldError:
    shown = {} if segment.innermost.is_hashed else {"value": value}
    return KeyFieldError(
        "The field does not have its type.", field=name, **shown, needed=segment.description
    )
