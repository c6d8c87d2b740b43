"""The digest of a space: equal in two engines exactly if they have the same live rows there.

It is the SHA-256 of the rows in key order. For each row: the lengths of key and value (4 bytes
each, big-endian), the expiry (8 bytes, signed; the maximum: never), the key as UTF-8, the value.
Revisions differ between engines and are not included.
"""

import hashlib
import struct

from keyhouse.engine import Engine, Row
from keyhouse.store.reads.long_read import rows

_HEAD = struct.Struct(">IIq")
_NEVER = 2**63 - 1


class Digest:
    """A digest built row by row. `rows` counts them."""

    __slots__ = ("_hash", "rows")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rows = 0

    def add(self, row: Row) -> None:
        key = row.key.encode()
        head = _HEAD.pack(len(key), len(row.value), _NEVER if row.expires is None else row.expires)
        self._hash.update(head + key + row.value)
        self.rows += 1

    def text(self) -> str:
        return self._hash.hexdigest()


async def digest(engine: Engine, space: str) -> Digest:
    """Return the digest of the space. Not of one moment, if the space is written meanwhile."""
    found = Digest()
    async for row in rows(engine, space):
        found.add(row)
    return found
