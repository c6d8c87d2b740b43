"""Bodies of NATS requests are decoded into their type, or rejected with the reason."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from keyhouse.errors import (
    DocumentError,
    KeyhouseError,
    LimitError,
    MalformedError,
    MissingFieldError,
    RecordError,
)
from keyhouse.nats.endpoint import Body


class Asked(msgspec.Struct):
    key: str | UnsetType = UNSET
    value: Any = UNSET


BODY = Body(Asked, required=("key", "value"))


def nested(levels: int) -> bytes:
    return b'{"key":"a","value":' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"not json at all", MalformedError),
        (b'{"key": "a"', MalformedError),
        (b'{"key": "\xff"}', MalformedError),
        (b'{"key": "\xed\xa0\x80", "value": 1}', MalformedError),
        (b'\xef\xbb\xbf{"key": "a", "value": 1}', MalformedError),
        ('{"key": "a", "value": 1}'.encode("utf-16"), MalformedError),
        (b"", MissingFieldError),
        (b"{}", MissingFieldError),
        (b'{"key": "a"}', MissingFieldError),
        (b"[]", RecordError),
        (b"null", RecordError),
        (b'{"key": 7, "value": 1}', RecordError),
        (b'{"key": "a", "value": NaN}', DocumentError),
        (b'{"key": "a", "value": -Infinity}', DocumentError),
        (b'{"key": "a", "value": 1e400}', RecordError),
        (b'{"key": "a", "value": "\\ud800"}', DocumentError),
        (b'{"key": "a", "value": {"\\udfff": 1}}', DocumentError),
        (b'{"key": "a", "value": ' + b"7" * 4_001 + b"}", DocumentError),
        (nested(129), DocumentError),
        (nested(100_000), DocumentError),
        (b'{"key": "a", "value": [' + b"[]," * 100_000 + b"[]]}", LimitError),
        (b'{"key": "a", "value": [' + b"1e-320," * 10_000 + b"1]}", LimitError),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else str(part)[:30],
)
def test_an_invalid_body_is_rejected_with_the_reason(
    data: bytes, error: type[KeyhouseError]
) -> None:
    with pytest.raises(error) as refused:
        BODY.read(data)
    assert type(refused.value) is error


def test_a_body_at_the_limits_is_read() -> None:
    assert BODY.read(nested(128)).key == "a"
    assert BODY.read(b'{"key":"a","value":' + b"7" * 4_000 + b"}").value == int("7" * 4_000)
    assert BODY.read(b'{"key":"a","value":null,"more":1}').value is None
    assert BODY.read(b'{"key":"a","value":18446744073709551617,"key":"b"}') == Asked("b", 2**64 + 1)
