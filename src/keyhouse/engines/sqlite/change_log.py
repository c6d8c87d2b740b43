"""One commit in the log of changes: the keys it put and the keys it deleted, as readable JSON.

Values are not stored twice: a reader of the log reads the row, and skips a change that is older.
"""

from collections.abc import Sequence

import msgspec


class LoggedKeys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """`[["put", …], ["deleted", …]]`."""

    put: list[str]
    deleted: Sequence[str]


encode = msgspec.json.Encoder().encode
"""Encodes the keys put and the keys deleted, as a pair or as LoggedKeys."""

decode = msgspec.json.Decoder(LoggedKeys).decode
