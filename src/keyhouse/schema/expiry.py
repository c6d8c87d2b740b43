"""When a record goes by itself."""

from typing import Literal

import msgspec

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError
from keyhouse.limits import TTL_SECONDS_MAX


class Expiry(msgspec.Struct, frozen=True):
    """When a record goes by itself: a time after it was made (`fixed`), after it was last written (`sliding`), as each write
    says (`write`), or at the time that one of its fields holds (`field`)."""

    mode: Literal["fixed", "sliding", "write", "field"]
    seconds: int = 0
    field: str = ""


def fixed(seconds: int) -> Expiry:
    return Expiry("fixed", seconds=seconds)


def sliding(seconds: int) -> Expiry:
    return Expiry("sliding", seconds=seconds)


def per_write() -> Expiry:
    return Expiry("write")


@checked(DeclarationError)
def at_field(name: str) -> Expiry:
    return Expiry("field", field=name)


def check_seconds(seconds: int, name: str) -> None:
    if type(seconds) is not int or not 1 <= seconds <= TTL_SECONDS_MAX:
        raise DeclarationError(
            "A record expires after 1 to 2,147,483,647 seconds, a whole number.",
            record=name,
            seconds=seconds,
        )
