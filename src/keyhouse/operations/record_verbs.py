"""The verbs of records, counters and logs: one entry each."""

from typing import Final

from keyhouse.errors import (
    AccessError,
    ConflictError,
    ContentionError,
    CounterError,
    KeyhouseError,
    LimitError,
    LinkError,
    NotFoundError,
    PreparingError,
    QuotaError,
    RecordError,
    UniqueError,
    UnknownOutcomeError,
)
from keyhouse.operations import reads, writes
from keyhouse.operations.catalog import ServedRecord
from keyhouse.operations.replies import (
    CounterValue,
    DeletedRecord,
    FoundItems,
    ListedKeys,
    ServedItem,
    ServedPage,
    SummaryMembers,
)
from keyhouse.operations.requests import (
    DAYS,
    KEY_PAGING,
    PAGING,
    TTL,
    Increment,
    RecordAddresses,
)
from keyhouse.operations.verb import VALUE, Verb
from keyhouse.schema import Counter, Index, RecordCount, Summary, Unique

__all__ = ["RECORD_VERBS", "WRITE_PROBLEMS"]

WRITE_PROBLEMS: Final[tuple[type[KeyhouseError], ...]] = (
    QuotaError,
    RecordError,
    LimitError,
    UniqueError,
    LinkError,
    ContentionError,
    UnknownOutcomeError,
    PreparingError,
)

MERGE_PATCH: Final = ("application/merge-patch+json", "application/json")


def _has_address(served: ServedRecord) -> bool:
    return bool(served.fields)


def _is_listed(served: ServedRecord) -> bool:
    """Return whether a list has a separate path: that of a counter without key fields reads it."""
    return bool(served.fields) or served.kind != "counter"


def _has_days(served: ServedRecord) -> bool:
    return isinstance(served.record, Counter) and served.record.day_field is not None


def _without_day(served: ServedRecord) -> tuple[str, ...]:
    day = getattr(served.record, "day_field", None)
    return tuple([name for name in served.fields if name != day])


def _given(served: ServedRecord) -> tuple[str, ...]:
    return served.given


RECORD_VERBS: Final = (
    Verb(
        name="list",
        access="read",
        http="GET /{kind}s/{name}",
        kinds=("record", "counter", "log"),
        docs={
            "record": "List {name} records, by key or by an index.",
            "counter": "List the counters {name}, by key, with their values.",
            "log": "List events of the log {name}, in their order.",
        },
        key="filters",
        row=Index,
        query=PAGING,
        reply=ServedPage,
        problems=(AccessError,),
        is_served=_is_listed,
        run=reads.page,
    ),
    Verb(
        name="get",
        access="read",
        http="GET /records/{name}/{address}",
        kinds=("record",),
        docs="Read a {name} record.",
        key="address",
        is_conditional=True,
        reply=ServedItem,
        problems=(NotFoundError,),
        is_served=_has_address,
        run=reads.get,
    ),
    Verb(
        name="get",
        access="read",
        http="GET /counters/{name}/{address}",
        kinds=("counter",),
        id="count",
        docs="Read the counter {name}.",
        key="address",
        reply=CounterValue,
        run=reads.count,
    ),
    Verb(name="get", access="read", kinds=("log",), key="address", reply=ServedItem, run=reads.get),
    Verb(
        name="get_many",
        access="read",
        http="POST /get-many/{name}",
        kinds=("record", "counter", "log"),
        docs="Read {name} at several addresses; null where there is none.",
        body=RecordAddresses,
        reply=FoundItems,
        run=reads.get_many,
    ),
    Verb(
        name="lookup",
        access="read",
        http="GET /lookup/{name}",
        kinds=("record",),
        docs="Find the {name} record that a unique row leads to.",
        key="row",
        row=Unique,
        reply=ServedItem,
        problems=(AccessError, NotFoundError),
        run=reads.lookup,
    ),
    Verb(
        name="keys",
        access="read",
        http="GET /keys/{name}",
        kinds=("record", "counter", "log"),
        docs="List keys of {name}, or of a row that is derived from it, without values.",
        key="filters",
        query=KEY_PAGING,
        reply=ListedKeys,
        problems=(AccessError,),
        run=reads.keys,
    ),
    Verb(
        name="record_count",
        access="read",
        http="GET /record-counts/{name}",
        kinds=("record",),
        docs="Read a number of {name} records that a count row holds.",
        key="row",
        row=RecordCount,
        reply=CounterValue,
        problems=(AccessError,),
        run=reads.record_count,
    ),
    Verb(
        name="members",
        access="read",
        http="GET /members/{name}",
        kinds=("record",),
        docs="Read the {name} records that a summary row lists.",
        key="row",
        row=Summary,
        reply=SummaryMembers,
        problems=(AccessError,),
        run=reads.members,
    ),
    Verb(
        name="sum_of_days",
        access="read",
        http="GET /sums/{name}",
        kinds=("counter",),
        docs="Sum the counter {name} over the last days (UTC), with today.",
        key="query",
        named=_without_day,
        query=DAYS,
        reply=CounterValue,
        is_served=_has_days,
        run=reads.sum_of_days,
    ),
    Verb(
        name="create",
        access="write",
        http="POST /records/{name}",
        kinds=("record",),
        docs="Create a {name} record.",
        key="query",
        named=_given,
        body=VALUE,
        reply=ServedItem,
        statuses=(201,),
        locates=True,
        problems=(ConflictError, *WRITE_PROBLEMS),
        run=writes.create,
    ),
    Verb(
        name="put",
        access="write",
        http="PUT /records/{name}/{address}",
        kinds=("record",),
        docs="Write a {name} record. Private members that are left out stay as they are.",
        key="address",
        query=TTL,
        body=VALUE,
        is_conditional=True,
        reply=ServedItem,
        statuses=(200, 201),
        problems=WRITE_PROBLEMS,
        run=writes.put,
        batch=writes.put_step,
        batch_takes_ttl=True,
    ),
    Verb(
        name="patch",
        access="write",
        http="PATCH /records/{name}/{address}",
        kinds=("record",),
        docs="Change some members of a {name} record, by a merge patch (RFC 7396).",
        key="address",
        body=VALUE,
        media_types=MERGE_PATCH,
        is_conditional=True,
        reply=ServedItem,
        problems=(NotFoundError, *WRITE_PROBLEMS),
        run=writes.patch,
        batch=writes.patch_step,
        batch_takes_ttl=True,
    ),
    Verb(
        name="delete",
        access="write",
        http="DELETE /records/{name}/{address}",
        kinds=("record",),
        docs="Delete a {name} record. Succeeds if it does not exist.",
        key="address",
        is_conditional=True,
        reply=DeletedRecord,
        statuses=(204,),
        problems=(LinkError, QuotaError, ContentionError, UnknownOutcomeError),
        run=writes.delete,
        batch=writes.delete_step,
    ),
    Verb(
        name="add",
        access="write",
        http="POST /counters/{name}/{address}",
        kinds=("counter",),
        docs="Add to the counter {name}.",
        key="address",
        body=Increment,
        is_idempotent=True,
        shows_value=True,
        reply=CounterValue,
        problems=(*WRITE_PROBLEMS, CounterError),
        run=writes.add,
        batch=writes.add_step,
    ),
    Verb(
        name="append",
        access="write",
        http="POST /logs/{name}",
        kinds=("log",),
        docs="Append an event to the log {name}.",
        key="query",
        named=_given,
        body=VALUE,
        reply=ServedItem,
        statuses=(201,),
        problems=(ConflictError, *WRITE_PROBLEMS),
        run=writes.append,
        batch=writes.append_step,
    ),
)
"""In the order of the OpenAPI document."""
