"""JSON documents: the values that can be stored, and their one stored form.

The form is compact UTF-8 JSON. Members keep their order, numbers their kind (`1` and `1.0` differ),
integers all their digits; of duplicate members the last wins. DocumentError rejects everything that
engines would not store alike: NaN and infinities, lone surrogates, more than 128 levels, integers
of more than 4,000 digits.
"""

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from keyhouse.errors import DocumentError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, INTEGER_DIGITS_MAX
from keyhouse.schema.json_guard import check_depth, check_digits

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_SCALARS = frozenset({str, int, bool, type(None)})
"""Types of values without parts that encoding never changes."""


def encode(value: object) -> bytes:
    """Return the stored form of a Python value; raises DocumentError if it has none."""
    check(value)
    return encode_checked(value)


def encode_checked(value: object) -> bytes:
    """Encode a value that is known to have no NaN or infinity and not to be nested too deep."""
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise DocumentError(
            "A text in the document contains a lone surrogate.", at=error.start
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError("The value is not a JSON document.", reason=str(error)) from None
    if len(data) > INTEGER_DIGITS_MAX:
        check_digits(data)
    return data


def parse(text: bytes) -> Any:
    """Return the value of untrusted JSON text; raises DocumentError if it cannot be stored."""
    check_text(text)
    try:
        value = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DocumentError("The text is not a JSON document.", reason=str(error)) from None
    return value


class Compact(msgspec.Struct, frozen=True, gc=False):
    """A document in its stored form, written without further checks to a record of any JSON.

    Only `compact` may create it.
    """

    text: bytes


def compact(parsed: object) -> Compact:
    """Return the stored form of a value parsed from JSON text that passed `check_text`."""
    return Compact(encode_checked(parsed))


def check_text(text: bytes, *, envelope_levels: int = 0) -> None:
    """Raise DocumentError if the text is nested too deep, or has too long an integer.

    It makes a parser safe to call; the text need not be JSON.
    """
    if len(text) > DOCUMENT_DEPTH_MAX:  # a shorter text has fewer brackets
        # almost no text has so many brackets, and they are counted without a further call
        if text.count(b"[") + text.count(b"{") > DOCUMENT_DEPTH_MAX + envelope_levels:
            check_depth(text, envelope_levels=envelope_levels)
        if len(text) > INTEGER_DIGITS_MAX:
            check_digits(text)


def check(value: object, *, depth: int = 0, typed: bool = False) -> None:
    """Raise DocumentError for a value that encoding would change or never finish.

    That is NaN, infinities and endless nesting. `typed`: its type says how names that are not text
    are read back.
    """
    if type(value) in _SCALARS:
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError("A number in the document is not finite.", value=value)
    elif (inside := _typed_parts(value) if typed else parts(value)) is not None:
        if depth == DOCUMENT_DEPTH_MAX:
            raise DocumentError("The document is nested too deep.", limit=DOCUMENT_DEPTH_MAX)
        for part in inside:
            if type(part) not in _SCALARS:
                check(part, depth=depth + 1, typed=typed)


def check_names(value: object) -> None:
    """Raise DocumentError for a name that is not text, in a value that JSON can hold."""
    for part in parts(value) or ():
        check_names(part)


def round_trips(value: object, read: object) -> bool:
    """Return True if the value read back equals the one written, apart from collection types."""
    if value == read:
        return True
    if isinstance(value, Enum):
        return round_trips(value.value, read)
    if isinstance(value, dict) or isinstance(read, dict):
        if not (isinstance(value, dict) and isinstance(read, dict)):
            return False
        return list(value) == list(read) and all(map(round_trips, value.values(), read.values()))
    own, others = parts(value), parts(read)
    if own is None or others is None:
        return False
    written, reread = list(own), list(others)
    return len(written) == len(reread) and all(map(round_trips, written, reread))


def _typed_parts(value: object) -> Iterable[object] | None:
    return value.values() if isinstance(value, dict) else parts(value)


def parts(value: object) -> Iterable[object] | None:
    """Return the parts of a collection or object, or None for a scalar."""
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise DocumentError("A member's name must be text.", name=name)
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return None
