"""The NATS subjects of a served schema, made from the table of verbs:
`keyhouse.<schema>.<space>.<operation>`.

A request has the members of a batch operation, and the replies are those of HTTP, with `success`.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.advice.nearest import nearest
from keyhouse.errors import (
    AccessError,
    KeyFieldError,
    LimitError,
    MissingFieldError,
    NotFoundError,
    RecordError,
    UsageError,
)
from keyhouse.http.limits import RATE_DELAY_SECONDS
from keyhouse.nats.endpoint import Body, Endpoint, Request
from keyhouse.operations.catalog import Catalog, Kind, ServedDerived, ServedRecord
from keyhouse.operations.replies import FoundItems, ListedKeys, ServedPage, item_of, unreadable_item
from keyhouse.operations.requests import SchemaRequest
from keyhouse.operations.table import READS, VERBS, WATCH, kinds_of, verb_of
from keyhouse.operations.verb import Verb
from keyhouse.operations.writes import expected
from keyhouse.schema import Derived, RecordCount, Summary, Unique
from keyhouse.service.errors import SubjectError
from keyhouse.service.nats_operations import ResolvedSubject, TenantSubjects
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.schema_service.own_operations import call_operation, operation_names
from keyhouse.service.schema_service.settings import SchemaSettings
from keyhouse.service.schema_service.space import SchemaSpace
from keyhouse.store import Event, UnreadableRow

__all__ = ["SchemaSubjects", "changes_prefix", "subject_prefix"]

_KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    verb.name: tuple(kinds_of(verb.name)) for verb in VERBS if verb is not WATCH
}
"""The kinds that each operation works on; none: the whole space."""

_SPACE: Final = re.compile("[A-Za-z0-9_-]{1,64}")
_BODY_BYTES_PER_REQUEST: Final = 32 * 1_024
_REPLY_BYTES_MAX: Final = 1_000_000
"""Size of the largest reply; the default limit of NATS is 1 MiB."""

_PAGE_BYTES_MAX: Final = 512 * 1_024
"""Size at which a page ends: with the step that reaches it, or a record, it fits in a reply."""

_HEARTBEAT_SECONDS: Final = 5.0

_ROW_NAMES: Final[dict[type[Derived], str]] = {
    Unique: "unique row",
    RecordCount: "count row",
    Summary: "summary row",
}

_DEFAULTS: Final = tuple(msgspec.structs.asdict(SchemaRequest()).items())
_WATCH_MEMBERS: Final = frozenset((*WATCH.kinds, "fields", "subject", "since", "stop"))

_encode = msgspec.json.Encoder().encode


def subject_prefix(schema: str) -> str:
    return f"keyhouse.{schema}"


def changes_prefix(schema: str) -> str:
    """Return the prefix of the subjects to which a watch may publish, before the space."""
    return f"keyhouse.changes.{schema}"


class SchemaSubjects:
    """Answers the messages of all spaces."""

    def __init__(
        self, catalog: Catalog, settings: SchemaSettings, runtime: ServiceRuntime[SchemaSpace]
    ) -> None:
        self._name = catalog.schema.name
        self._catalog = catalog
        self._fixed_space = settings.space
        self._tenants = runtime.tenants
        self._read = Body(SchemaRequest, levels=3).read
        self._operations = operation_names(catalog.schema)
        self._own = {each.name: each for each in catalog.schema.operations}
        own_reads = [each.name for each in self._own.values() if each.access == "read"]
        self._subjects = TenantSubjects(
            runtime,
            self._resolve,
            prefixes=[subject_prefix(self._name)],
            operations=self._operations,
            reads=(READS - {WATCH.name}).union(own_reads),  # a watch publishes elsewhere
            changes_prefix=changes_prefix(self._name),
            heartbeat_seconds=_HEARTBEAT_SECONDS,
            queue=self._name,
            bytes_per_request=_BODY_BYTES_PER_REQUEST,
            rate_delay_seconds=RATE_DELAY_SECONDS,
        )
        self.watches = self._subjects.watches

    def endpoints(self) -> list[Endpoint]:
        return self._subjects.endpoints(name=self._name, problems=True)

    def _resolve(self, name: str, operation: str, subject: str) -> ResolvedSubject:
        space = self._space(name)
        if operation in _KINDS:
            return ResolvedSubject(
                name, operation, self._read, partial(self._run, space, operation)
            )
        if operation == WATCH.name:
            run = partial(self._watch, space)
            return ResolvedSubject(name, operation, self._read, run, takes_request=True)
        own = self._own.get(operation)
        if own is None:
            near = nearest(operation, self._operations)
            raise SubjectError("Unknown operation.", operation=operation, **near)
        read: Callable[[bytes], Any] = _read_nothing
        if own.request is not None:
            read = Body(own.request).read
        return ResolvedSubject(name, operation, read, partial(self._call, space, operation))

    def _space(self, name: str) -> SchemaSpace:
        try:
            if not _SPACE.fullmatch(name):
                raise KeyFieldError("Invalid name.")
            if self._fixed_space is not None and name != self._fixed_space:
                raise AccessError("This service has one space.", space=self._fixed_space)
            return self._tenants.get(name)
        except KeyFieldError as error:
            raise SubjectError(
                "The subject names no space of this schema.", space=name, reason=error.sentence
            ) from None

    async def _run(self, space: SchemaSpace, operation: str, body: SchemaRequest) -> bytes:
        """Run a verb. A reply that is too large for NATS is asked for again, in half."""
        kinds = _KINDS[operation]
        served = self._named(body, operation, *kinds) if kinds else None
        verb = verb_of(operation, None if served is None else served.kind)
        assert verb is not None and verb.run is not None, "it is in the table"
        arguments = _arguments(verb, served, body)
        while True:
            if served is None:
                reply = await verb.run(space, self._catalog, "nats", **arguments)
            else:
                reply = await verb.run(space, served, **arguments)
            data = _encode(reply)
            if len(data) <= _REPLY_BYTES_MAX or not _halve(arguments, reply):
                break
        return _successful(data)

    def _named(self, body: SchemaRequest, operation: str, *kinds: Kind) -> ServedRecord:
        """Return what a request names: exactly one, of these kinds."""
        given = [kind for kind in kinds if getattr(body, kind) is not UNSET]
        if len(given) != 1:
            raise MissingFieldError(f"Missing required field: {' or '.join(kinds)}")
        write = operation not in READS
        return self._catalog.find("nats", getattr(body, given[0]), given[0], write=write)

    async def _watch(self, space: SchemaSpace, body: SchemaRequest, request: Request) -> bytes:
        if isinstance(body.subject, UnsetType):
            raise MissingFieldError("Missing required field: subject")
        if body.stop:
            return await self._subjects.stop_watch(space.name, body.subject)
        _check_members(body, _WATCH_MEMBERS, by=str)
        served = self._named(body, WATCH.name, *WATCH.kinds)
        fields = served.of_json(body.fields)
        store = await space.watched_store()
        store.span(served.record, **fields)  # raises for fields that are not leading ones
        return await self._subjects.start_watch(
            request,
            store,
            served.record,
            body.subject,
            prefix=None,
            since=body.since,
            encode=partial(_message, served),
            fields=fields,
        )

    async def _call(self, space: SchemaSpace, operation: str, body: Any) -> bytes:
        """Run an operation of one's own."""
        reply = await call_operation(space, self._own[operation], body)
        data = _encode(reply or {})
        if len(data) > _REPLY_BYTES_MAX:
            raise LimitError("The reply is too large for NATS.", limit=_REPLY_BYTES_MAX)
        return _successful(data)


def _read_nothing(data: bytes) -> None:
    """Take the body of an operation that has no request."""


def _arguments(verb: Verb, served: ServedRecord | None, body: SchemaRequest) -> dict[str, Any]:
    """Return the arguments of a verb, from the members of a request."""
    _check_members(body, verb.members, by=int if "by" in verb.required else str)
    for name in verb.required:
        if getattr(body, name) is UNSET:
            raise MissingFieldError(f"Missing required field: {name}")
    arguments = {name: getattr(body, name) for name in verb.arguments}
    if verb.required == ("value",):
        arguments["value"] = body.value
    if served is not None:
        arguments |= _key(verb, served, body)
    if verb.is_conditional and verb.access == "write":
        expect = body.expect
        arguments["check"] = None if isinstance(expect, UnsetType) else expected(expect)
    if verb.is_idempotent:
        arguments["key"] = body.idempotency_key
    if verb.reply in (ServedPage, FoundItems):
        arguments["bytes_max"] = _PAGE_BYTES_MAX
    return arguments


def _check_members(body: SchemaRequest, taken: frozenset[str], by: type) -> None:
    """Reject a member that the operation does not take, as HTTP does: nobody must rely on a
    precondition, an expiry or an idempotency key that would be ignored."""
    for name, default in _DEFAULTS:
        if name not in taken and getattr(body, name) != default:
            raise UsageError(
                "The operation does not take this member.", member=name, **nearest(name, taken)
            )
    if body.by is not UNSET and not isinstance(body.by, by):
        raise RecordError(
            "Invalid field in the request.", member="by", reason=f"Expected `{by.__name__}`"
        )


def _key(verb: Verb, served: ServedRecord, body: SchemaRequest) -> dict[str, Any]:
    """Return the arguments that name what a verb works on."""
    if verb.key == "filters":
        return {"filters": body.fields, "by": body.by if isinstance(body.by, str) else None}
    if verb.key == "row":
        by = _row(verb, verb.rows(served), body)
        return {"by": by, "fields": by.of_json(body.fields)}
    return {} if verb.key == "none" else {"fields": served.of_json(body.fields)}


def _row(
    verb: Verb, rows: Mapping[str, ServedDerived[Any]], body: SchemaRequest
) -> ServedDerived[Any]:
    if body.by is UNSET:
        raise MissingFieldError("Missing required field: by")
    row = rows.get(str(body.by))
    if row is None:
        name = _ROW_NAMES[verb.row]
        raise NotFoundError(f"There is no such {name}.", by=body.by, **nearest(body.by, rows))
    return row


def _halve(arguments: dict[str, Any], reply: Any) -> bool:
    """Halve what a request asks for, as its reply is too large. Raises LimitError if that is one
    record already; returns False if the request is not for several."""
    if "limit" in arguments:
        size = arguments["limit"]
    elif "addresses" in arguments:
        size = len(arguments["addresses"])
    else:
        return False
    if size == 1:
        raise LimitError("The record is too large for a reply.", limit=_REPLY_BYTES_MAX)
    sent = len(reply.keys if isinstance(reply, ListedKeys) else reply.items)
    half = max(1, min(size, sent) // 2)
    if "limit" in arguments:
        arguments["limit"] = half
    else:
        arguments["addresses"] = arguments["addresses"][:half]
    return True


def _message(served: ServedRecord, event: Event[Any] | UnreadableRow) -> dict[str, Any]:
    if isinstance(event, UnreadableRow):
        return {"event": "unreadable", **msgspec.to_builtins(unreadable_item(event))}
    item = msgspec.to_builtins(item_of(served, event, event.revision))
    return {"event": "gone" if event.gone else "put", **item}


def _successful(reply: bytes) -> bytes:
    """Return an encoded object with `success` as its first member."""
    return b'{"success":true' + (b"," if reply != b"{}" else b"") + reply[1:]
