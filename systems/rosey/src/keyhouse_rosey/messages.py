"""Requests of each operation: their fields, and which are required."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.limits import TTL_SECONDS_MAX
from keyhouse.nats.endpoint import Body

Ttl = Annotated[int, msgspec.Meta(ge=1, le=TTL_SECONDS_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1)]
Revision = Annotated[int, msgspec.Meta(ge=0)]

LIMIT_DEFAULT = 1_000


class Set(msgspec.Struct, gc=False):
    key: str | UnsetType = UNSET
    value: Any = UNSET
    ttl: Ttl | None = None


class Get(msgspec.Struct, gc=False):
    """With `revision`, the reply has the value's revision too, for a later `cas`."""

    key: str | UnsetType = UNSET
    revision: bool = False


class DeleteRequest(msgspec.Struct, gc=False):
    key: str | UnsetType = UNSET


class List(msgspec.Struct):
    prefix: str = ""
    limit: Limit = LIMIT_DEFAULT
    cursor: str | None = None


class ScanRequest(List):
    pass


class CountRequest(msgspec.Struct):
    prefix: str = ""


class Mget(msgspec.Struct):
    keys: list[str] | UnsetType = UNSET


class Incr(msgspec.Struct):
    """Without `ttl`, an earlier one is kept."""

    key: str | UnsetType = UNSET
    by: int = 1
    ttl: Ttl | None = None


class Cas(msgspec.Struct):
    """`revision`: the key must be at it; `null`: the key must be absent."""

    key: str | UnsetType = UNSET
    value: Any = UNSET
    revision: int | UnsetType | None = UNSET
    ttl: Ttl | None = None


class Touch(msgspec.Struct):
    """`ttl: null`: the key never expires."""

    key: str | UnsetType = UNSET
    ttl: Ttl | UnsetType | None = UNSET


class Watch(msgspec.Struct):
    """`since`: changes after that revision; without it, from now on. `stop` stops the watch of that
    subject."""

    subject: str | UnsetType = UNSET
    prefix: str = ""
    since: Revision | None = None
    stop: bool = False


class BatchedOperation(msgspec.Struct):
    """One operation of a batch: its name in `op`, and its fields."""

    op: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Any = UNSET
    ttl: Ttl | UnsetType | None = UNSET
    by: int = 1
    revision: int | UnsetType | None = UNSET


class PluginBatchRequest(msgspec.Struct):
    ops: list[BatchedOperation] | UnsetType = UNSET


class PluginOperation(msgspec.Struct, frozen=True):
    """An operation: its request, what a request costs in the rate of its plugin beside one and
    what it reads, whether it only reads, and whether a batch may have it, with the same required
    fields."""

    body: Body[Any]
    cost: Callable[[Any], int] | None = None
    is_read: bool = False
    is_batched: bool = False


OPERATIONS: Final[dict[str, PluginOperation]] = {
    "set": PluginOperation(Body(Set, required=("key", "value")), is_batched=True),
    "get": PluginOperation(Body(Get, required=("key",)), is_read=True),
    "delete": PluginOperation(Body(DeleteRequest, required=("key",)), is_batched=True),
    "list": PluginOperation(Body(List), is_read=True),
    "mget": PluginOperation(
        Body(Mget, required=("keys",)), lambda body: max(0, len(body.keys) - 1), is_read=True
    ),
    "incr": PluginOperation(Body(Incr, required=("key",)), is_batched=True),
    "cas": PluginOperation(Body(Cas, required=("key", "value", "revision")), is_batched=True),
    "batch": PluginOperation(
        Body(PluginBatchRequest, required=("ops",), levels=3),
        lambda body: max(0, len(body.ops) - 1),
    ),
    "scan": PluginOperation(Body(ScanRequest), is_read=True),
    "count": PluginOperation(Body(CountRequest), is_read=True),
    "watch": PluginOperation(Body(Watch, required=("subject",)), lambda body: 300),
    "touch": PluginOperation(Body(Touch, required=("key", "ttl")), is_batched=True),
}

READS: Final = frozenset(name for name, each in OPERATIONS.items() if each.is_read)
"""Operations that are skipped if nobody waits for the reply."""

BATCHED: Final = {name: each.body.required for name, each in OPERATIONS.items() if each.is_batched}
"""The operations of a batch, each with its required fields."""


def log_fields(operation: str, body: Any, reply: bytes) -> dict[str, Any]:
    """Return the fields that describe an operation in the log: never a value."""
    fields: dict[str, Any] = {}
    for name in ("key", "ttl", "prefix", "limit"):
        value = getattr(body, name, UNSET)
        if value is not UNSET:
            fields[name] = value
    if operation == "get" and reply:
        fields["hit"] = b'"exists":true' in reply[:40]
    if reply:
        fields["size"] = len(reply)
    return fields
