"""Plugin storage: `db.kv.<plugin>.set {key, value, ttl?}`. One table of (plugin, key, value,
expires_at).

A key has 1 to 255 characters and is stored as it is: no character is special, so a prefix is
literal and keys order by their bytes. A value is any JSON, `null` included. Each write sets when
the value expires, or that it never does: a `set` without `ttl` clears an earlier one.
"""

from typing import Any

from keyhouse.keys import Regex, Template, TextSegment
from keyhouse.schema import Record, Schema, Space, per_write

__all__ = ["PLUGIN", "SCHEMAS", "VALUE"]

PLUGIN = Regex("[a-z0-9_-]{1,100}", requirement="must be 1 to 100 of a-z, 0-9, _ and -")

VALUE: Record[Any] = Record(
    Any,
    Template("{key}", key=TextSegment(chars_max=255)),
    name="value",
    doc="A plugin's value under one of its keys.",
    expiry=per_write(),
)

SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "rosey",
        VALUE,
        space=Space("a plugin", segment=PLUGIN),
        doc="Key-value storage of chat-bot plugins.",
    ),
)
