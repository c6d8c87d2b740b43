"""JSON documents: what may be stored as a value, and the one form in which it is stored.

The form is compact UTF-8 JSON. Members keep their order, numbers their kind (`1` and `1.0` differ) and, for integers, every
digit; of duplicate members the last wins. What can't be kept alike on every engine is refused: NaN and infinities,
lone surrogates, more than 128 levels, integers of more than 4,000 digits.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec

from keyhouse.errors import DocumentError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, INTEGER_DIGITS_MAX
from keyhouse.schema.json_guard import check_depth, check_digits, depth_checks, value_checks

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """The document of a Python value; DocumentError when it is not one."""
    check(value)
    return encode_checked(value)


def encode_checked(value: object) -> bytes:
    """The same for a value that is known to hold no number that isn't one, and not to be too deep."""
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise DocumentError(
            "A text in the document holds a lone surrogate.", at=error.start
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError("The value is not a JSON document.", reason=str(error)) from None
    if len(data) > INTEGER_DIGITS_MAX:
        check_digits(data)
    return data


def parse(text: bytes) -> Any:
    """The value of a JSON text from outside; DocumentError when it is not a document that can be stored."""
    check_text(text)
    try:
        value = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DocumentError("The text is not a JSON document.", reason=str(error)) from None
    return value


class Compact(msgspec.Struct, frozen=True, gc=False):
    """A document in the form in which it is stored. It can be put as the value of a record of any JSON, and nothing of it is
    looked at again. Made by `compact`, and by nothing else."""

    text: bytes


def compact(parsed: object) -> Compact:
    """The document of a value that a parser has read from JSON text, which `check_text` has let through."""
    return Compact(encode_checked(parsed))


def check_text(text: bytes, *, beneath: int = 0) -> None:
    """Refuse text that a parser could not take: nested too deep, or a number without end. It may be no JSON. `beneath`:
    the levels of an envelope around the document."""
    check_depth(text, beneath=beneath)
    if len(text) > INTEGER_DIGITS_MAX:
        check_digits(text)


def text_checks(text: bytes, *, values_max: int) -> Iterator[None]:
    """The same in steps, for a large text and who has others to answer meanwhile; LimitError when it holds more values."""
    yield from depth_checks(text)
    yield from value_checks(text, values_max)
    check_digits(text)


def check(value: object, *, depth: int = 0) -> None:
    """Refuse what encoding would silently change, or could not end: NaN, infinities, endless nesting."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError("A number in the document is not finite.", value=value)
    elif (parts := _parts(value)) is not None:
        if depth == DOCUMENT_DEPTH_MAX:
            raise DocumentError("The document is nested too deep.", limit=DOCUMENT_DEPTH_MAX)
        for part in parts:
            check(part, depth=depth + 1)


def is_kept(value: object, read: object) -> bool:
    """Whether what is read back is what was written. A collection may have been of another kind than a list."""
    if value == read:
        return True
    if isinstance(value, Enum):
        return is_kept(value.value, read)
    if isinstance(value, dict) or isinstance(read, dict):
        both = isinstance(value, dict) and isinstance(read, dict) and list(value) == list(read)
        return both and all(map(is_kept, value.values(), read.values()))  # type: ignore[attr-defined]  # both are dicts
    parts, others = _parts(value), _parts(read)
    if parts is None or others is None:
        return False
    written, found = list(parts), list(others)
    return len(written) == len(found) and all(map(is_kept, written, found))


def _parts(value: object) -> Iterable[object] | None:
    """What a value is made of; `None` for one that has no parts."""
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
