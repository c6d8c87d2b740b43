"""Items of the log table: heads, the log of changes, batch ids and the list of spaces.

| space       | key                | attributes                                                   |
|-------------|--------------------|--------------------------------------------------------------|
| `spaces`    | the space          | `row` or `empty`, if known: see below                        |
| `s:{space}` | `head`             | `revision`: of the newest commit; `pruned`: see below        |
| `s:{space}` | `c{revision:016d}` | `before`, `token`, `changes`: one transaction                |
| `s:{space}` | `b{batch id}`      | `revision`, `at`, `ttl`: an applied batch                    |

A transaction may hold several commits. Its log entry is stored at the revision of the last one;
`before` is the head that it replaced, and `changes` names each key once, at its newest revision.

`row` is a key that was live when spaces were listed, `empty` the head at which none was. They are
hints for the next listing, which checks those of 100 spaces in one request, and looks into a space
only if its hint does not hold any longer. No commit maintains them.

The entries form a chain: each entry's `before` is the `revision` of the previous one, back to the
retention floor `pruned`. A watch at position p reads the entries after p:

| first entry after p       | meaning                                | the watch                   |
|---------------------------|----------------------------------------|-----------------------------|
| none                      | nothing new                            | waits                       |
| `before` <= p             | no gap                                 | yields the changes after p  |
| `before` > p              | the entries in between were pruned     | raises WatchExpiredError    |
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from keyhouse.engines.batch_plan import ids_expired_at
from keyhouse.engines.dynamodb.flattening import Attribute, Item
from keyhouse.engines.dynamodb.items import ttl_of
from keyhouse.engines.watch_loop import ChangedKey, newest_of_keys
from keyhouse.limits import BATCH_ID_KEPT_SECONDS

SPACES: Final = "spaces"
_DIGITS: Final = 16
REVISION_MAX: Final = 10**_DIGITS - 1


class Entry(NamedTuple):
    """One transaction in the log: the commits after `before`, up to `revision`."""

    revision: int
    before: int
    token: str
    changes: list[ChangedKey]


class Head(NamedTuple):
    revision: int
    pruned: int


def table_of(table: str) -> str:
    return table + ".log"


def partition(space: str) -> str:
    return "s:" + space


def head_key(space: str) -> Item:
    return _key(space, "head")


def entry_key(space: str, revision: int) -> Item:
    return _key(space, entry_name(revision))


def entry_name(revision: int) -> str:
    return f"c{revision:0{_DIGITS}d}"


def applied_key(space: str, batch_id: str) -> Item:
    return _key(space, "b" + batch_id)


def space_item(space: str) -> Item:
    return {"space": {"S": SPACES}, "key": {"S": space}}


def hint_update(row: str | None, head: int) -> dict[str, Any]:
    """Return the update of a space's hint, unless the space was erased."""
    name, other = ("row", "empty") if row is not None else ("empty", "row")
    return {
        "UpdateExpression": "SET #hint = :hint REMOVE #other",
        "ConditionExpression": "attribute_exists(#key)",
        "ExpressionAttributeNames": {"#hint": name, "#other": other, "#key": "key"},
        "ExpressionAttributeValues": {":hint": {"N": str(head)} if row is None else {"S": row}},
    }


def entry_item(space: str, entry: Entry) -> Item:
    return {
        **entry_key(space, entry.revision),
        "before": {"N": str(entry.before)},
        "token": {"S": entry.token},
        "changes": {"L": [{"M": _changed_key_item(changed)} for changed in entry.changes]},
    }


def entry_of(item: Mapping[str, Attribute]) -> Entry:
    return Entry(
        int(item["key"]["S"][1:]),
        int(item["before"]["N"]),
        item["token"]["S"],
        [_changed_key_of(change["M"]) for change in item["changes"]["L"]],
    )


def head_of(item: Mapping[str, Attribute] | None) -> Head:
    if item is None:
        return Head(0, 0)
    return Head(int(item["revision"]["N"]), int(item["pruned"]["N"]) if "pruned" in item else 0)


def head_update(space: str, before: int, revision: int) -> dict[str, Any]:
    """Return the update that advances the head, conditional on its old revision."""
    values: Item = {":new": {"N": str(revision)}}
    if before:
        values[":old"] = {"N": str(before)}
    return {
        "Key": head_key(space),
        "UpdateExpression": "SET #r = :new",
        "ConditionExpression": "#r = :old" if before else "attribute_not_exists(#r)",
        "ExpressionAttributeNames": {"#r": "revision"},
        "ExpressionAttributeValues": values,
    }


def applied_put(space: str, batch_id: str, revision: int, now: int) -> dict[str, Any]:
    """Return the put that records an applied batch, conditional on not being recorded yet."""
    item = applied_key(space, batch_id)
    item["revision"] = {"N": str(revision)}
    item["at"] = {"N": str(now)}
    item["ttl"] = {"N": str(ttl_of(now + BATCH_ID_KEPT_SECONDS * 1_000))}
    return {
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#a) OR #a <= :forgotten",
        "ExpressionAttributeNames": {"#a": "at"},
        "ExpressionAttributeValues": {":forgotten": {"N": str(ids_expired_at(now))}},
    }


def applied_of(item: Mapping[str, Attribute] | None, now: int) -> int | None:
    """Return the revision of an applied batch, or None if it is not recorded or too old."""
    if item is None or int(item["at"]["N"]) <= ids_expired_at(now):
        return None
    return int(item["revision"]["N"])


def newest(entries: Sequence[Entry], after: int) -> list[ChangedKey]:
    """Return the newest change of each key after a revision, in revision order."""
    changes = [changed for entry in entries for changed in entry.changes]
    return newest_of_keys([changed for changed in changes if changed.revision > after])


def _key(space: str, key: str) -> Item:
    return {"space": {"S": partition(space)}, "key": {"S": key}}


def _changed_key_item(changed: ChangedKey) -> Item:
    item: Item = {"key": {"S": changed.key}, "revision": {"N": str(changed.revision)}}
    if changed.deleted:
        item["deleted"] = {"BOOL": True}
    if changed.expires is not None:
        item["expires"] = {"N": str(changed.expires)}
    return item


def _changed_key_of(item: Mapping[str, Attribute]) -> ChangedKey:
    return ChangedKey(
        item["key"]["S"],
        int(item["revision"]["N"]),
        "deleted" in item,
        int(item["expires"]["N"]) if "expires" in item else None,
    )
