"""How one commit is kept in the log of changes: the keys it put and the keys it deleted, as JSON that people can read.

Values are not kept twice: who reads the log reads the row, and a change that the row has outgrown is not the newest.
"""

from collections.abc import Sequence

import msgspec


class Keys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """`[["put", …], ["deleted", …]]`."""

    put: list[str]
    deleted: Sequence[str]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Keys).decode
