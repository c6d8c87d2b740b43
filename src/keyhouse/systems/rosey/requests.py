"""What may be asked, operation by operation: the fields of each, and which of them there must be."""

from typing import Annotated, Any

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
    """With `revision`, the answer has the value's revision too, for a later `cas`."""

    key: str | UnsetType = UNSET
    revision: bool = False


class Delete(msgspec.Struct, gc=False):
    key: str | UnsetType = UNSET


class List(msgspec.Struct):
    prefix: str = ""
    limit: Limit = LIMIT_DEFAULT
    cursor: str | None = None


class Scan(List):
    pass


class Count(msgspec.Struct):
    prefix: str = ""


class Mget(msgspec.Struct):
    keys: list[str] | UnsetType = UNSET


class Incr(msgspec.Struct):
    """Without `ttl`, an earlier one is kept."""

    key: str | UnsetType = UNSET
    by: int = 1
    ttl: Ttl | None = None


class Cas(msgspec.Struct):
    """`revision`: what the key must be at; `null`: it must not be there."""

    key: str | UnsetType = UNSET
    value: Any = UNSET
    revision: int | UnsetType | None = UNSET
    ttl: Ttl | None = None


class Touch(msgspec.Struct):
    """`ttl: null`: it never expires."""

    key: str | UnsetType = UNSET
    ttl: Ttl | UnsetType | None = UNSET


class Watch(msgspec.Struct):
    """`since`: the changes after that revision; without it, from now on. `stop` ends the watch of that subject."""

    subject: str | UnsetType = UNSET
    prefix: str = ""
    since: Revision | None = None
    stop: bool = False


class Operation(msgspec.Struct):
    """One of a batch: the fields of the operation of that name, and that name."""

    op: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Any = UNSET
    ttl: Ttl | UnsetType | None = UNSET
    by: int = 1
    revision: int | UnsetType | None = UNSET


class Batch(msgspec.Struct):
    ops: list[Operation] | UnsetType = UNSET


SET = Body(Set, required=("key", "value"))
GET = Body(Get, required=("key",))
DELETE = Body(Delete, required=("key",))
LIST = Body(List)
SCAN = Body(Scan)
COUNT = Body(Count)
MGET = Body(Mget, required=("keys",))
INCR = Body(Incr, required=("key",))
CAS = Body(Cas, required=("key", "value", "revision"))
TOUCH = Body(Touch, required=("key", "ttl"))
WATCH = Body(Watch, required=("subject",))
BATCH = Body(Batch, required=("ops",), levels=3)

OPERATION_REQUIRED: dict[str, tuple[str, ...]] = {
    "set": ("key", "value"),
    "delete": ("key",),
    "incr": ("key",),
    "cas": ("key", "value", "revision"),
    "touch": ("key", "ttl"),
}
"""What an operation of a batch must have. There are no others."""
