"""How everything lies on disk: the one place that knows. Numbers are big-endian, so that bytes order as numbers do.

| column family | key | value |
|---|---|---|
| `default`: the rows | space, 0, key | revision (8 bytes), expiry (8 bytes, signed; the greatest: never), then the value |
| `expiry`: for the sweep | expiry (8 bytes, signed, with its sign bit turned), then the row's key in `default` | nothing |
| `changes`: one for each commit | revision (8 bytes) | `["space",["put",…],["deleted",…]]` as JSON |
| `applied`: batch ids | `i`, space, 0, id | revision (8 bytes), the moment of its commit (8 bytes, signed) |
| `applied`: the same by time | `t`, moment (as an expiry above), space, 0, id | nothing |
| `meta` | `format` | the version of all this, as a JSON integer |

A space holds no U+0000, so `0` ends it, and all that starts with it and `0` is its own: a key that holds anything can't
leave it, and spaces order as their names do. A span without an end stops at the space and `1`.

A row of `expiry` says when to look, not that the row still expires then: a row that was put again may expire later, or
never. What a put knows to be outdated it removes; the sweep removes the rest.

The newest row of `changes` is never pruned, and there is one for every revision: it is the counter of revisions.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from keyhouse.engine import Span
from keyhouse.errors import UsageError

FORMAT: Final = 1
"""The version of the table above. A newer one is refused."""

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
"""In front of a row's value: its revision and its expiry. Also the value of a batch id: its revision, and when."""

HEAD_BYTES: Final = HEAD.size

IDS: Final = b"i"
IDS_BY_TIME: Final = b"t"

_NUMBER = Struct(">Q")
_SIGN = 2**63


class CommittedKeys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one commit did, for the watches: keys only, because a watch gives out the newest row."""

    space: str
    put: Sequence[str]
    deleted: Sequence[str]


encode_keys = msgspec.json.Encoder().encode
decode_keys = msgspec.json.Decoder(CommittedKeys).decode


@lru_cache(maxsize=4_096)
def prefix_of(space: str) -> bytes:
    """What every key of the space begins with."""
    if "\0" in space:
        raise UsageError("The name of a space can't hold the character U+0000.", space=space)
    return space.encode() + b"\0"


def bounds(prefix: bytes, span: Span) -> tuple[bytes, bytes]:
    """The span's two ends, both within the space."""
    stop = prefix[:-1] + b"\1" if span.stop is None else prefix + span.stop.encode()
    return prefix + span.start.encode(), stop


def split_key(row_key: bytes) -> tuple[str, str]:
    """The space and the key of a row."""
    space, _, key = row_key.partition(b"\0")
    return space.decode(), key.decode()


def number(value: int) -> bytes:
    return _NUMBER.pack(value)


def number_of(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


def moment(at: int) -> bytes:
    """A time, of either sign, as bytes that order as times do."""
    return _NUMBER.pack(at + _SIGN)


def moment_of(data: bytes) -> int:
    return number_of(data) - _SIGN
