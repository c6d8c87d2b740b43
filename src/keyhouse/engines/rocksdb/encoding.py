"""The format on disk. Numbers are big-endian, so that bytes sort as numbers do.

    column family           key                         value
    ---------------------   -------------------------   -------------------------------------------
    default: the rows       space, 0, key               revision, expiry (maximum: never), value
    expiry: for the sweep   expiry*, key in `default`   empty
    changes: the commits    revision                    ["space",["put",…],["deleted",…]] as JSON
    applied: batch ids      "i", space, 0, id           revision, time of the commit
    applied: by time        "t", time*, space, 0, id    empty
    meta                    "format"                    the version of this format, a JSON integer

Revisions, expiries and times have 8 bytes; expiries and times are signed, and those marked with a
star have their sign bit flipped, so that they sort.

A space contains no U+0000, so `0` terminates it, and every key that starts with the space and `0`
belongs to it. Keys may contain any character, and spaces sort by name. An open span stops at the
space and `1`.

An entry of `expiry` is a hint when to look at a row: a row that was put again may expire later, or
never. A put removes the entries it knows to be stale; the sweep removes the rest.

The newest row of `changes` is never pruned, and there is one for every revision: it is the counter
of revisions.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from keyhouse.engine import Span
from keyhouse.errors import UsageError

FORMAT: Final = 1
"""The version of this format. A newer one is rejected."""

ROWS: Final = "default"
EXPIRY: Final = "expiry"
CHANGES: Final = "changes"
APPLIED: Final = "applied"
META: Final = "meta"
FAMILIES: Final = (ROWS, EXPIRY, CHANGES, APPLIED, META)

FORMAT_KEY: Final = b"format"

NEVER: Final = 2**63 - 1
"""The expiry of a row that has none."""

HEAD: Final = Struct(">Qq")
"""Before a row's value: its revision and expiry. The value of a batch id: its revision and time."""

HEAD_BYTES: Final = HEAD.size

IDS: Final = b"i"
IDS_BY_TIME: Final = b"t"

_NUMBER = Struct(">Q")
_SIGN = 2**63


class CommittedKeys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One commit in the log of changes: keys only, because a watch delivers the newest row."""

    space: str
    put: Sequence[str]
    deleted: Sequence[str]


encode_keys = msgspec.json.Encoder().encode
decode_keys = msgspec.json.Decoder(CommittedKeys).decode


@lru_cache(maxsize=4_096)
def prefix_of(space: str) -> bytes:
    """Return the prefix of every key of the space."""
    if "\0" in space:
        raise UsageError("The name of a space must not contain U+0000.", space=space)
    return space.encode() + b"\0"


def bounds(prefix: bytes, span: Span) -> tuple[bytes, bytes]:
    """Return the two ends of the span, both within the space."""
    stop = prefix[:-1] + b"\1" if span.stop is None else prefix + span.stop.encode()
    return prefix + span.start.encode(), stop


def split_key(row_key: bytes) -> tuple[str, str]:
    """Return the space and the key of a row."""
    space, _, key = row_key.partition(b"\0")
    return space.decode(), key.decode()


def number(value: int) -> bytes:
    return _NUMBER.pack(value)


def number_of(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


def moment(at: int) -> bytes:
    """Encode a time, of either sign, as bytes that sort as times do."""
    return _NUMBER.pack(at + _SIGN)


def moment_of(data: bytes) -> int:
    return number_of(data) - _SIGN
