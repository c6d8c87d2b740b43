"""Expiry of records."""

from typing import Literal

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.limits import TTL_SECONDS_MAX


class Expiry(msgspec.Struct, frozen=True):
    """The expiry rule of a record.

    fixed      a time after it was created
    sliding    a time after its last write
    write      the TTL given with each write
    field      the time in one of its fields
    """

    mode: Literal["fixed", "sliding", "write", "field"]
    seconds: int = 0
    field: str = ""


def fixed(seconds: int) -> Expiry:
    """Expire a time after the record was created."""
    return Expiry("fixed", seconds=seconds)


def sliding(seconds: int) -> Expiry:
    """Expire a time after the record's last write."""
    return Expiry("sliding", seconds=seconds)


def per_write() -> Expiry:
    """Expire after the TTL given with each write; without one, the record does not expire."""
    return Expiry("write")


@checked(DeclarationError)
def at_field(name: str) -> Expiry:
    """Expire at the time in this field, a `datetime` with a zone or text in RFC 3339; while it is
    null, the record does not expire."""
    return Expiry("field", field=name)


def check_seconds(seconds: int, name: str) -> None:
    if type(seconds) is not int or not 1 <= seconds <= TTL_SECONDS_MAX:
        raise DeclarationError(
            "An expiry is a whole number of seconds from 1 to 2,147,483,647.",
            record=name,
            seconds=seconds,
        )
