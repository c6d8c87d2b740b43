"""The digest of a space: equal for two engines exactly when they hold the same live rows there.

It is the SHA-256 of the rows in key order. Of each row: the lengths of key and value (4 bytes each, big-endian), the expiry
(8 bytes, signed; the greatest: never), the key as UTF-8, the value. Revisions are an engine's own, and not in it.
"""

import hashlib
import struct

from keyhouse.engine import Engine, Row
from keyhouse.store.pagination import rows

_HEAD = struct.Struct(">IIq")
_NEVER = 2**63 - 1


class Digest:
    """Made row by row. `rows` counts them."""

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
    """Of the space as it is now; of no one moment if it is being written."""
    found = Digest()
    async for row in rows(engine, space):
        found.add(row)
    return found
