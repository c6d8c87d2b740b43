"""The NATS subjects of a served schema: `keyhouse.<schema>.<space>.<operation>`.

The space is taken from the subject, never from the payload: permissions of the server decide who
may publish there (`keyhouse acl`). A request has the members of a batch operation, and the answers
are those of HTTP, with `success`.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.errors import (
    AccessError,
    KeyFieldError,
    LimitError,
    MissingFieldError,
    NotFoundError,
    RateError,
    RevisionError,
)
from keyhouse.http.limits import RATE_DELAY_SECONDS
from keyhouse.nats.endpoint import Body, Endpoint, Request, may_receive_reply
from keyhouse.service.errors import SubjectError
from keyhouse.service.nats_watches import Watches
from keyhouse.service.operation_log import error_code
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.schema_service.answers import (
    ClearedRecords,
    FoundItems,
    ListedKeys,
    ServedPage,
    item_of,
    unreadable_item,
)
from keyhouse.service.schema_service.batch import run_batch
from keyhouse.service.schema_service.catalog import Catalog, D, Kind, ServedDerived, ServedRecord
from keyhouse.service.schema_service.operations import (
    PAGE_ITEMS,
    OnUnreadableItem,
    SpaceOperations,
)
from keyhouse.service.schema_service.own_operations import call_operation, operation_names
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.watch_peers import WatchPeers
from keyhouse.store import Event, UnreadableRow

__all__ = ["SchemaSubjects", "changes_prefix", "subject_prefix"]

_READS: Final = frozenset(
    {"get", "get_many", "list", "lookup", "keys", "record_count", "members", "sum_of_days"}
)
_SPACE: Final = re.compile("[A-Za-z0-9_-]{1,64}")
_BODY_BYTES_PER_REQUEST: Final = 32 * 1_024
_REPLY_BYTES_MAX: Final = 1_000_000
"""Size of the largest reply; the default limit of NATS is 1 MiB."""

_PAGE_BYTES_MAX: Final = 512 * 1_024
"""Size at which a page ends: with the step that reaches it, or a record, it fits in a reply."""

_HEARTBEAT_SECONDS: Final = 5.0

_encode = msgspec.json.Encoder().encode


class SchemaRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request. `fields` is the address, or the filters of a list.

    `expect` is the revision that a record must be at to be written; null: it must not exist.
    """

    record: str | UnsetType = UNSET
    counter: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    fields: dict[str, Any] = {}
    value: Any = UNSET
    by: int | str | UnsetType = UNSET
    order: Literal["asc", "desc"] = "asc"
    limit: int = PAGE_ITEMS
    days: int | UnsetType = UNSET
    addresses: list[dict[str, Any]] | UnsetType = UNSET
    unreadable: OnUnreadableItem = "raise"
    cursor: str | None = None
    expect: int | UnsetType | None = UNSET
    ttl: float | None = None
    idempotency_key: str | None = None
    operations: list[msgspec.Raw] | UnsetType = UNSET
    since: int | None = None
    subject: str | UnsetType = UNSET
    stop: bool = False


def subject_prefix(schema: str) -> str:
    return f"keyhouse.{schema}"


def changes_prefix(schema: str) -> str:
    """Return the prefix of the subjects to which a watch may publish, before the space."""
    return f"keyhouse.changes.{schema}"


class SchemaSubjects:
    """Handles the messages of all spaces."""

    def __init__(
        self,
        catalog: Catalog,
        settings: SchemaSettings,
        runtime: ServiceRuntime[SpaceOperations],
    ) -> None:
        self._name = catalog.schema.name
        self._catalog = catalog
        self._fixed_space = settings.space
        self._tenants = runtime.tenants
        self._metrics = runtime.metrics
        self._log = runtime.log
        self._rates = runtime.rates
        self._start = len(subject_prefix(self._name)) + 1
        self._read = Body(SchemaRequest, levels=3).read
        self.watches = Watches(
            changes_prefix(self._name),
            _HEARTBEAT_SECONDS,
            runtime.metrics,
            runtime.log,
            WatchPeers(runtime.bus, self._name, secrets.token_hex(8)),
        )
        self._operations = operation_names(catalog.schema)
        self._own = {each.name: each for each in catalog.schema.operations}
        self._own_bodies = {
            each.name: Body(each.request) for each in self._own.values() if each.request is not None
        }
        self._reads = _READS.union(
            each.name for each in self._own.values() if each.access == "read"
        )
        self._run: Mapping[str, Callable[[SpaceOperations, SchemaRequest], Awaitable[Any]]] = {
            "get": self._get,
            "get_many": self._get_many,
            "list": self._list,
            "lookup": self._lookup,
            "create": self._create,
            "put": self._put,
            "patch": self._patch,
            "delete": self._delete,
            "add": self._add,
            "append": self._append,
            "batch": self._batch,
            "keys": self._keys,
            "record_count": self._record_count,
            "members": self._members,
            "sum_of_days": self._sum_of_days,
            "clear": self._clear,
        }

    def endpoints(self) -> list[Endpoint]:
        prefix = subject_prefix(self._name)
        return [
            Endpoint(
                name=self._name,
                subject=f"{prefix}.*.*",
                handler=self._handle,
                operations={name: f"{prefix}.*.{name}" for name in self._operations},
                rejected=self._rejected,
                tenant=self._space_of,
                partition_by=1,
                public=True,
                problems=True,
            )
        ]

    async def _handle(self, request: Request) -> bytes | None:
        started = perf_counter()
        space, _, operation = request.subject[self._start :].partition(".")
        if not self._is_allowed(space, operation, request.reply):
            return None
        try:
            if self._rates is not None:  # before the body is read: a malformed one counts too
                self._rates.check(space, 1 + len(request.data) // _BODY_BYTES_PER_REQUEST)
            tenant = self._tenant(space)
            run = self._run.get(operation)
            if run is not None:
                reply: Any = await run(tenant, self._read(request.data))
            elif operation == "watch":
                reply = await self._watch(tenant, self._read(request.data), request)
            else:
                reply = await self._call(tenant, operation, request.data)
        except Exception as error:
            known = operation if operation in self._operations else "request"
            self._metrics.failed("", error_code(error))
            self._log.failed(known, space, error, answered=bool(request.reply), fields={})
            if isinstance(error, RateError):
                await asyncio.sleep(RATE_DELAY_SECONDS)
            raise
        data = _encode(reply)
        self._spend_read(space, reply, len(data))
        seconds = perf_counter() - started
        self._metrics.timing(operation, "").add(seconds)
        if seconds >= self._log.logged_from:
            self._log.done(operation, space, seconds, {})
        return _successful(data)

    def _spend_read(self, space: str, reply: Any, size: int) -> None:
        """Count a list towards the rate of its space. Here, and not by the `read_meter`: requests
        of one connection share a context."""
        if self._rates is None:
            return
        if isinstance(reply, ServedPage):
            self._rates.spend_read(space, _rows(reply), size)
        elif isinstance(reply, FoundItems):
            self._rates.spend_read(space, len(reply.items), size)
        elif isinstance(reply, ListedKeys):
            self._rates.spend_read(space, len(reply.keys), size)
        elif isinstance(reply, ClearedRecords):
            self._rates.spend_read(space, reply.deleted, size)

    def _tenant(self, space: str) -> SpaceOperations:
        try:
            if not _SPACE.fullmatch(space):
                raise KeyFieldError("Invalid name.")
            if self._fixed_space is not None and space != self._fixed_space:
                raise AccessError("This service has one space.", space=self._fixed_space)
            return self._tenants.get(space)
        except KeyFieldError as error:
            raise SubjectError(
                "The subject names no space of this schema.", space=space, reason=error.sentence
            ) from None

    def _is_allowed(self, space: str, operation: str, reply: str) -> bool:
        """Return False for a read without a reply subject, and for a reply to a subject that is not
        the space's own: the service must not be made to publish there."""
        if not reply:
            return operation not in self._reads
        return self._may_receive(space, reply)

    def _may_receive(self, space: str, reply: str) -> bool:
        return may_receive_reply(space, reply)

    def _rejected(self, subject: str, reply: str) -> bool:
        """Count a message that was rejected under overload; return whether its sender may be
        told."""
        self._metrics.failed("", "RATE_LIMITED")
        return self._may_receive(self._space_of(subject), reply)

    def _space_of(self, subject: str) -> str:
        return subject[self._start :].partition(".")[0]

    # Operations

    async def _get(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", "counter", "log")
        fields = served.of_json(body.fields)
        if served.kind == "counter":
            return await space.count(served, fields)
        return await space.get(served, fields)

    async def _get_many(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", "counter", "log")
        if isinstance(body.addresses, UnsetType):
            raise MissingFieldError("Missing required field: addresses")
        addresses = body.addresses
        while True:
            found = await space.get_many(
                served, addresses, unreadable=body.unreadable, bytes_max=_PAGE_BYTES_MAX
            )
            if len(_encode(found)) <= _REPLY_BYTES_MAX:
                return found
            if len(addresses) == 1:
                raise LimitError("The record is too large for a reply.", limit=_REPLY_BYTES_MAX)
            addresses = addresses[: max(1, min(len(addresses), len(found.items)) // 2)]

    async def _list(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", "counter", "log")
        by = body.by if isinstance(body.by, str) else None
        limit = body.limit
        while True:
            page = await space.page(
                served,
                body.fields,
                by=by,
                order=body.order,
                limit=limit,
                cursor=body.cursor,
                bytes_max=_PAGE_BYTES_MAX,
            )
            if len(_encode(page)) <= _REPLY_BYTES_MAX:
                return page
            if limit == 1:
                raise LimitError("The record is too large for a reply.", limit=_REPLY_BYTES_MAX)
            limit = max(1, min(limit, _rows(page)) // 2)

    async def _keys(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", "counter", "log")
        by = body.by if isinstance(body.by, str) else None
        limit = body.limit
        while True:
            page = await space.keys(
                served, body.fields, by=by, order=body.order, limit=limit, cursor=body.cursor
            )
            if limit == 1 or len(_encode(page)) <= _REPLY_BYTES_MAX:
                return page
            limit = max(1, limit // 2)

    async def _record_count(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record")
        by = _row(served.counts, body, "count row")
        return await space.record_count(served, by, by.of_json(body.fields))

    async def _members(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record")
        by = _row(served.summaries, body, "summary row")
        return await space.members(served, by, by.of_json(body.fields))

    async def _sum_of_days(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "counter")
        if isinstance(body.days, UnsetType):
            raise MissingFieldError("Missing required field: days")
        return await space.sum_of_days(served, body.days, served.of_json(body.fields))

    async def _clear(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        self._catalog.check_clear("nats")
        return await space.clear()

    async def _lookup(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record")
        by = _row(served.lookups, body, "unique row")
        return await space.lookup(served, by, by.of_json(body.fields))

    async def _create(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", write=True)
        return await space.create(served, _value(body), served.of_json(body.fields))

    async def _put(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served, value = self._named(body, "record", write=True), _value(body)
        fields = served.with_members(served.of_json(body.fields), value, space.store.ids.new)
        item, _ = await space.put(served, value, fields, check=_check(body), ttl=body.ttl)
        return item

    async def _patch(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", write=True)
        return await space.patch(
            served, _value(body), served.of_json(body.fields), check=_check(body)
        )

    async def _delete(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "record", write=True)
        fields = served.of_json(body.fields)
        return {"deleted": await space.delete(served, fields, check=_check(body))}

    async def _add(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "counter", write=True)
        if not isinstance(body.by, int):
            raise MissingFieldError("Missing required field: by")
        fields = served.of_json(body.fields)
        return await space.add(served, body.by, fields, key=body.idempotency_key)

    async def _append(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        served = self._named(body, "log", write=True)
        return await space.append(served, _value(body), served.of_json(body.fields))

    async def _batch(self, space: SpaceOperations, body: SchemaRequest) -> Any:
        if isinstance(body.operations, UnsetType):
            raise MissingFieldError("Missing required field: operations")
        if self._rates is not None:
            self._rates.spend_read(space.name, len(body.operations), 0)
        return await run_batch(
            space, self._catalog, body.operations, protocol="nats", key=body.idempotency_key
        )

    async def _watch(self, space: SpaceOperations, body: SchemaRequest, request: Request) -> Any:
        if isinstance(body.subject, UnsetType):
            raise MissingFieldError("Missing required field: subject")
        if body.stop:
            return {"stopped": await self.watches.stop(space.name, body.subject)}
        served = self._named(body, "record", "counter", "log")
        fields = served.of_json(body.fields)
        store = await space.watched_store()
        store.span(served.record, **fields)  # raises for fields that are not leading ones
        revision = await self.watches.start(
            store,
            served.record,
            body.subject,
            request.publisher,
            prefix=None,
            since=body.since,
            encode=partial(_message, served),
            fields=fields,
        )
        return {"subject": body.subject, "revision": revision}

    async def _call(self, space: SpaceOperations, name: str, data: bytes) -> Any:
        """Run an operation of one's own. Raises SubjectError if there is none of this name."""
        operation = self._own.get(name)
        if operation is None:
            raise SubjectError("Unknown operation.", operation=name, known=list(self._operations))
        body = self._own_bodies[name].read(data) if name in self._own_bodies else None
        reply = await call_operation(space, operation, body)
        if reply is not None and len(_encode(reply)) > _REPLY_BYTES_MAX:
            raise LimitError("The reply is too large for NATS.", limit=_REPLY_BYTES_MAX)
        return reply or {}

    def _named(self, body: SchemaRequest, *kinds: Kind, write: bool = False) -> ServedRecord:
        given = [kind for kind in kinds if getattr(body, kind) is not UNSET]
        if len(given) != 1:
            raise MissingFieldError(f"Missing required field: {' or '.join(kinds)}")
        return self._catalog.find("nats", getattr(body, given[0]), given[0], write=write)


def _message(served: ServedRecord, event: Event[Any] | UnreadableRow) -> dict[str, Any]:
    if isinstance(event, UnreadableRow):
        return {"event": "unreadable", **msgspec.to_builtins(unreadable_item(event))}
    item = msgspec.to_builtins(item_of(served, event, event.revision))
    return {"event": "gone" if event.gone else "put", **item}


def _row(rows: Mapping[str, ServedDerived[D]], body: SchemaRequest, what: str) -> ServedDerived[D]:
    by = rows.get(str(body.by))
    if by is None:
        raise NotFoundError(f"There is no such {what}.", by=body.by, known=[*rows])
    return by


def _rows(page: ServedPage) -> int:
    return len(page.items) + len(page.unreadable or ())


def _value(body: SchemaRequest) -> Any:
    if body.value is UNSET:
        raise MissingFieldError("Missing required field: value")
    return body.value


def _check(body: SchemaRequest) -> Callable[[int | None], None] | None:
    expected = body.expect
    if isinstance(expected, UnsetType):
        return None

    def check(found: int | None) -> None:
        if found != expected:
            raise RevisionError(
                "The record is not at the expected revision.", expected=expected, found=found
            )

    return check


def _successful(reply: bytes) -> bytes:
    """Return an encoded object with `success` as its first member."""
    return b'{"success":true' + (b"," if reply != b"{}" else b"") + reply[1:]
