"""Rows as items of the table, and conditions on them. Everything here is pure.

`expires` holds the expiry to the millisecond: reads and conditions use it. `sweep` and `expires`
are the key of the sparse index that the sweep reads. `ttl` is for DynamoDB's own TTL, which deletes
an item without a log entry; it is set a day late, so that the sweep comes first and clock skew does
no harm.

Other programs may write items into the table. An item without the engine's `revision` is a foreign
row: it is read like any row, at revision 0, which no commit has, and a check of revision 0 holds
while it is there. The next commit that writes the key replaces it. No watch reports it, since it is
not in the log.
"""

from collections.abc import Mapping
from decimal import Decimal
from math import floor
from typing import Any, Final, NamedTuple, cast
from zlib import crc32

from keyhouse.engine import FOREIGN_REVISION, Row
from keyhouse.engines.dynamodb.flattening import (
    Attribute,
    Item,
    flatten,
    foreign_document,
    rebuild,
)
from keyhouse.engines.dynamodb.layout import Layout

TTL_LATE_SECONDS: Final = 24 * 3_600

SWEEP_SHARDS: Final = 8
"""Partitions of the expiry index: each takes 1,000 writes a second, and a sweep reads all."""

SHARDS: Final = tuple(f"{number:02d}" for number in range(SWEEP_SHARDS))


class Condition(NamedTuple):
    """The revision that must be stored; None: no row; FOREIGN_REVISION: a foreign row. With `now`,
    an expired row counts as none."""

    revision: int | None
    now: int | None = None


class Items:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.names = {"#k": layout.key, "#r": layout.revision, "#e": layout.expires}

    def key(self, space: str, key: str) -> Item:
        return {self.layout.space: {"S": space}, self.layout.key: {"S": key}}

    def item(self, space: str, row: Row) -> Item:
        names = self.layout
        item = self.key(space, row.key)
        item[names.revision] = {"N": str(row.revision)}
        item.update(self._content(row.value))
        if row.expires is not None:
            item[names.expires] = {"N": str(row.expires)}
            item[names.ttl] = {"N": str(ttl_of(row.expires))}
            item[names.sweep] = {"S": SHARDS[crc32(space.encode()) % SWEEP_SHARDS]}
        return item

    def row(self, item: Mapping[str, Attribute], *, keys_only: bool = False) -> Row:
        names = self.layout
        return Row(
            item[names.key]["S"],
            b"" if keys_only else self._value(item),
            _revision(item.get(names.revision)),
            _expires(item.get(names.expires)),
        )

    def _value(self, item: Mapping[str, Attribute]) -> bytes:
        value = item.get(self.layout.value)
        if value is not None and "S" in value:
            return cast(str, value["S"]).encode()
        if value is not None and "B" in value:
            return bytes(value["B"])
        shaped = "S" in item.get(self.layout.shape, ())
        return rebuild(item, self.layout) if shaped else foreign_document(item, self.layout)

    def condition(self, condition: Condition) -> dict[str, Any]:
        """Return the condition as parameters of an operation."""
        revision, now = condition
        values: Item = {}
        names: dict[str, str] = {}
        if now is not None:
            names["#e"] = self.layout.expires
            values[":now"] = {"N": str(now)}
        if revision is None:
            names["#k"] = self.layout.key
            text = "attribute_not_exists(#k)" + ("" if now is None else " OR #e <= :now")
        else:
            names["#r"] = self.layout.revision
            if revision == FOREIGN_REVISION:
                names["#k"] = self.layout.key
                values[":number"] = {"S": "N"}
                text = "attribute_exists(#k) AND NOT attribute_type(#r, :number)"
            else:
                values[":r"] = {"N": str(revision)}
                text = "#r = :r"
            text += "" if now is None else " AND (attribute_not_exists(#e) OR #e > :now)"
        asked: dict[str, Any] = {"ConditionExpression": text, "ExpressionAttributeNames": names}
        return asked | {"ExpressionAttributeValues": values} if values else asked

    def _content(self, value: bytes) -> Item:
        flat = flatten(value, self.layout)
        if flat is not None:
            return flat
        try:
            return {self.layout.value: {"S": value.decode()}}
        except UnicodeDecodeError:
            return {self.layout.value: {"B": value}}


def _revision(attribute: Attribute | None) -> int:
    text = "" if attribute is None else attribute.get("N", "")
    return int(text) if text.isdecimal() else FOREIGN_REVISION


def _expires(attribute: Attribute | None) -> int | None:
    """Return the expiry, rounded down: another program may have written any number."""
    if attribute is None or "N" not in attribute:
        return None
    return int(attribute["N"]) if attribute["N"].isdecimal() else floor(Decimal(attribute["N"]))


def ttl_of(expires: int) -> int:
    """Return the TTL, in seconds, of a row that expires at this millisecond."""
    return -(-expires // 1_000) + TTL_LATE_SECONDS


def is_live(row: Row | None, now: int) -> bool:
    return row is not None and (row.expires is None or row.expires > now)
