"""Data access for `get`, `put`, `delete`, `list`, `scan`, `count` and `watch`: a store or a running
service.

The service is `--service URL`, else KEYHOUSE_SERVICE, with `--token`, else KEYHOUSE_TOKEN.
"""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from keyhouse import Store
from keyhouse.cli.options import Location, Query, Selection
from keyhouse.cli.rows import RowView, key_filter, prefix_span, view_change, view_remote, view_row
from keyhouse.cli.target import (
    SERVICE,
    STORE,
    Preflight,
    Target,
    engine_at,
    load_system,
    serve_settings,
    served_name,
    space_name,
    store_url,
    target_of_key,
    target_of_space,
)
from keyhouse.engine import Row, check_since
from keyhouse.engines.url import public_url
from keyhouse.errors import AccessError, DocumentError, EngineError, TokenError, UsageError
from keyhouse.keys import Span
from keyhouse.schema import MILLISECONDS, KeyMatch, Log, Record, Schema
from keyhouse.schema.description import kind_of, member_name
from keyhouse.schema.explanation import explain
from keyhouse.service.remote import Remote
from keyhouse.store import ANY, Entry, Transaction, Unset, version
from keyhouse.systems.registry import remote_of


class PutResult(msgspec.Struct, frozen=True):
    """A written record. Members that a service does not return are unset."""

    space: str
    key: str
    record: str
    revision: int | msgspec.UnsetType
    expires: str | msgspec.UnsetType | None
    value: Any
    derived: list[dict[str, str]]


class Access(Protocol):
    """The rows of one space. `location` is the URL to show."""

    location: str

    async def get(self, key: str) -> RowView | None: ...

    def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[RowView]: ...

    async def count(self, selection: Selection) -> int: ...

    def watch(
        self, selection: Selection, since: int | None, on_start: Callable[[int], None]
    ) -> AsyncGenerator[RowView, None]: ...

    async def put(
        self, key: str, match: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> PutResult: ...

    async def delete(self, key: str, match: KeyMatch, expect: int | Unset | None) -> bool: ...


# Every command resolves the system first, then the store, then the space: so do its errors.


class ServiceAddress(msgspec.Struct, frozen=True):
    """A running service, and the token for it."""

    url: str
    token: str | None


def service_of(location: Location) -> ServiceAddress | None:
    """Return the service that the options or the environment name, or None if they name a store."""
    named = [location.store is not None, location.data is not None, location.service is not None]
    if named.count(True) > 1:
        raise UsageError("Give only one of --store, --data and --service.")
    token = location.token or os.environ.get("KEYHOUSE_TOKEN") or None
    if location.service is not None:
        return ServiceAddress(location.service, token)
    if location.token is not None:
        raise UsageError("--token needs --service.")
    if any(named) or (url := os.environ.get(SERVICE)) is None:
        return None
    if os.environ.get(STORE):
        raise UsageError(
            "Both KEYHOUSE_STORE and KEYHOUSE_SERVICE are set: choose with --store or --service."
        )
    return ServiceAddress(url, token)


def select_space(selection: Selection) -> Target:
    """Return the space of a selection; without `--space`, the one that the token belongs to."""
    system = load_system(selection.system)
    _check_store(selection.system, selection)
    return target_of_space(
        system, space_name(selection.space) or _space_of_token(selection.system, selection)
    )


def select_key(system: str, key: str, location: Location) -> tuple[Target, KeyMatch]:
    """Return the space of a key, and the declaration that the key matches."""
    loaded = load_system(system)
    _check_store(system, location)
    space = location.space
    if loaded.schemas[0].space.field is None and len(loaded.schemas) == 1:  # else the key names it
        space = space_name(space) or _space_of_token(system, location)
    return target_of_key(loaded, key, space)


def _space_of_token(system: str, location: Location) -> str | None:
    """Return the space that the token names; UsageError if the service needs one and none is given.

    None for a store, and for a service whose tokens name no space.
    """
    service = service_of(location)
    if service is None:
        return None
    space_of: Callable[[str], str] | None = getattr(
        remote_of(load_system(system)), "space_of", None
    )
    if space_of is None:
        return None
    if service.token is None:
        raise UsageError(
            "The service requires a token, which names the space: --token, or KEYHOUSE_TOKEN."
            f" `{token_command(system, None)}` makes one."
        )
    return space_of(service.token)


def token_command(system: str, space: str | None) -> str:
    """Return the command that makes a token for a system's service, for development."""
    if ":" in system:
        return f"keyhouse token {system} --space {space or 'NAME'}"
    return f"keyhouse token {system} --customer {space or 'ID'}"


def _check_store(system: str, location: Location) -> None:
    if service_of(location) is None:
        store_url(system, location.store, location.data)


@asynccontextmanager
async def open_access(
    system: str, target: Target, location: Location, *, preflight: Preflight | None = None
) -> AsyncIterator[Access]:
    """Open the store or the service that the options or the environment name.

    A store must exist, unless there is a `preflight`: see `engine_at`.
    """
    service = service_of(location)
    if service is None:
        url = store_url(system, location.store, location.data)
        async with engine_at(url, existing=preflight is None, preflight=preflight) as engine:
            yield StoreAccess(target, target.store(engine), public_url(url))
        return
    try:
        remote: Remote = await remote_of(load_system(system)).connect(
            _with_user(service.url, system), target.space, service.token
        )
        try:
            yield ServiceAccess(target, remote, public_url(service.url))
        finally:
            await remote.close()
    except TokenError as error:
        if hasattr(remote_of(load_system(system)), "space_of"):  # `keyhouse token` makes its tokens
            error.fields["new_token"] = token_command(system, target.space)
        raise
    except EngineError as error:
        error.fields["service"] = public_url(service.url)
        raise


def _with_user(url: str, system: str) -> str:
    """Return the URL with the password of the embedded NATS server, if it is that of the data
    folder in the settings of `keyhouse serve` here."""
    if not url.startswith("nats://") or "@" in url:
        return url
    from keyhouse.nats.embedded_users import with_embedded_user

    return with_embedded_user(url, Path(serve_settings(served_name(system)).settings.data))


class StoreAccess:
    def __init__(self, target: Target, store: Store, location: str) -> None:
        self.location = location
        self._target = target
        self._schema = target.schema
        self._space = target.space
        self._store = store

    async def get(self, key: str) -> RowView | None:
        row = await self._store.row(key)
        return None if row is None else view_row(self._schema, self._space, row)

    async def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[RowView]:
        """Iterate over the rows of a query. `resolve` replaces a derived row by its records."""
        accepts, count = key_filter(self._schema, query.type), 0
        scan = self._store.row_scan(_span(query), reverse=query.reverse, keys_only=keys_only)
        async with aclosing(scan) as rows:
            async for row in rows:
                if not accepts(row.key):
                    continue
                for each in await self._records(row) if resolve else [row]:
                    yield view_row(self._schema, self._space, each, keys_only=keys_only)
                    count += 1
                    if count == query.limit:
                        return

    async def _records(self, row: Row) -> list[Row]:
        """Return the existing records of a derived row; any other row itself."""
        match = self._schema.find(row.key)
        if match is None or isinstance(match.declared, Record):
            return [row]
        record: Record[Any] = match.record
        keys = [
            record.template.join(values)
            for owners in match.declared.owners(row.key, row.value)
            for values in owners
        ]
        rows = await self._store.rows(keys) if keys else []
        return [each for each in rows if each is not None]

    async def count(self, selection: Selection) -> int:
        accepts = key_filter(self._schema, selection.type)
        rows = self._store.row_scan(prefix_span(selection.prefix), keys_only=True)
        return sum([1 async for row in rows if accepts(row.key)])

    async def watch(
        self, selection: Selection, since: int | None, on_start: Callable[[int], None]
    ) -> AsyncGenerator[RowView, None]:
        accepts = key_filter(self._schema, selection.type)
        span = prefix_span(selection.prefix)
        newest = await self._store.revision()
        check_since(since, newest)  # before on_start
        start = since if since is not None else newest
        on_start(start)
        async with aclosing(self._store.row_watch(span, since=start)) as changes:
            async for change in changes:
                if accepts(change.key):
                    yield view_change(self._schema, self._space, change)

    async def put(
        self, key: str, match: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> PutResult:
        return await put_value(self._target, self._store, match, key, content, ttl, expect)

    async def delete(self, key: str, match: KeyMatch, expect: int | Unset | None) -> bool:
        await reject_newer(self._store)
        bound = self._store.find(key)
        assert bound is not None, "the target was chosen by this key"
        return await self._store.delete(match.record, expect=expect, **bound.fields)


class ServiceAccess:
    """A running service. The schema is known here, so that rows look as in a store."""

    def __init__(self, target: Target, remote: Remote, location: str) -> None:
        self.location = location
        self._target = target
        self._schema = target.schema
        self._space = target.space
        self._remote = remote

    async def get(self, key: str) -> RowView | None:
        row = await self._remote.get(key)
        return None if row is None else view_remote(self._schema, self._space, row)

    async def rows(
        self, query: Query, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[RowView]:
        """Iterate over the rows of a query. A service has no derived rows, so none are resolved."""
        await self._check_open(query)
        accepts, span, count = key_filter(self._schema, query.type), _span(query), 0
        async for row in self._remote.rows(
            query.prefix, reverse=query.reverse, keys_only=keys_only
        ):
            if not (accepts(row.key) and row.key in span):
                continue
            yield view_remote(self._schema, self._space, row, keys_only=keys_only)
            count += 1
            if count == query.limit:
                return

    async def count(self, selection: Selection) -> int:
        accepts = key_filter(self._schema, selection.type)
        await self._check_open(selection)
        if selection.type is None:
            return await self._remote.count(selection.prefix)
        rows = self._remote.rows(selection.prefix, reverse=False, keys_only=True)
        return sum([accepts(row.key) async for row in rows])

    async def watch(
        self, selection: Selection, since: int | None, on_start: Callable[[int], None]
    ) -> AsyncGenerator[RowView, None]:
        accepts = key_filter(self._schema, selection.type)
        await self._check_open(selection)
        async with aclosing(self._remote.watch(selection.prefix, since, on_start)) as changes:
            async for row in changes:
                if accepts(row.key):
                    yield view_remote(self._schema, self._space, row, watched=True)

    async def _check_open(self, selection: Selection) -> None:
        """Raise UsageError if only derived rows are asked for, and AccessError if the service
        closes the record that is; if it closes others of the selection, report it."""
        if selection.type == "derived" or _is_derived(self._schema, selection.prefix):
            raise UsageError(
                "A service lists records, and no derived rows: read them from the store, with"
                " --store or --data.",
                prefix=selection.prefix,
            )
        closed_of = getattr(self._remote, "closed", None)
        if closed_of is None:
            return
        closed = sorted(await closed_of(selection.prefix))
        if selection.type in closed:
            raise AccessError(
                "The settings of the service close this record to its callers: read it from the"
                " store, with --store or --data.",
                record=selection.type,
            )
        if closed and selection.type in (None, "records"):
            names = ", ".join(closed)
            print(f"Left out, since the service closes it to its callers: {names}", file=sys.stderr)

    async def put(
        self, key: str, match: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> PutResult:
        check_writable(self._target, match, key)
        value = complete(match.record, match, None, content)
        match.record.parse_document(value)
        row = await self._remote.put(key, value, ttl=ttl, expect=expect)
        view = view_remote(self._schema, self._space, row)
        return PutResult(
            view.space, key, match.record.name, view.revision, view.expires, view.value, []
        )

    async def delete(self, key: str, match: KeyMatch, expect: int | Unset | None) -> bool:
        check_writable(self._target, match, key)
        return await self._remote.delete(key, expect=expect)


def _is_derived(schema: Schema, prefix: str) -> bool:
    """Return whether keys of derived rows can start so, and those of records cannot."""
    heads = [(each.template.head, isinstance(each, Record)) for _, each in schema.declared()]
    found = [
        is_record for head, is_record in heads if head.startswith(prefix) or prefix.startswith(head)
    ]
    return bool(found) and not any(found)


def _span(query: Query) -> Span:
    span = prefix_span(query.prefix)
    if query.after is None:
        return span
    return span.before(query.after) if query.reverse else span.after(query.after)


# Writes


async def put_value(
    target: Target,
    store: Store,
    match: KeyMatch,
    key: str,
    content: bytes,
    ttl: int | None,
    expect: int | Unset | None,
) -> PutResult:
    """Write a JSON document as the record of its key."""
    check_writable(target, match, key)
    await reject_newer(store)
    if isinstance(match.declared, Log):
        raise UsageError(
            "The events of a log are appended by its system, which also folds them.",
            log=match.record.name,
        )
    record: Record[Any] = match.record
    bound = store.find(key)
    assert bound is not None, "the target was chosen by this key"
    before: Entry[Any] | None = None
    if record.private or record.keeps_unknown:  # a put must not lose what `get` does not print
        before = await store.entry(record, **bound.fields)
        expect = (None if before is None else before.revision) if expect is ANY else expect
    value, document = record.parse_document(complete(record, match, before, content))
    entry = await _put(store, record, value, document, before, ttl, expect, bound.fields)
    rows = [
        {"kind": kind_of(derived), "key": row}
        for derived in bound.record.derived
        for row in derived.rows(entry.record, entry.values)
    ]
    expires = None if entry.expires is None else MILLISECONDS.format(entry.expires)
    shown = record.shown(entry.record, entry.stored)
    return PutResult(target.space, key, record.name, entry.revision, expires, shown, rows)


async def _put(
    store: Store,
    record: Record[Any],
    value: Any,
    document: Any,
    before: Entry[Any] | None,
    ttl: int | None,
    expect: int | Unset | None,
    fields: Mapping[str, Any],
) -> Entry[Any]:
    """Write a value with the unknown members that its record keeps."""
    if not record.keeps_unknown:
        return await store.put(record, value, ttl=ttl, expect=expect, **fields)
    document = record.merge_from_row(document, None if before is None else before.stored)

    async def work(tx: Transaction) -> tuple[Entry[Any], Transaction]:
        given = {"ttl": ttl, "expect": expect, **fields}
        return await tx.put_document(record, value, document, **given), tx

    entry, tx = await store.transact(work)
    return msgspec.structs.replace(entry, revision=tx.revision)


def check_writable(target: Target, match: KeyMatch, key: str) -> None:
    """Reject derived rows, and the rows that the store maintains."""
    if not isinstance(match.declared, Record):
        explanation = explain(target.schema, key)
        raise UsageError(
            "This is a derived row: write or delete its record instead.",
            key=key,
            kind=kind_of(match.declared),
            record=None if explanation is None else explanation.record_key,
        )
    if target.schema.meta is not None and match.record in target.schema.meta.records:
        raise UsageError("The store maintains this row: see `keyhouse migrate`.", key=key)


async def reject_newer(store: Store) -> None:
    """Raise NewerError if newer code has migrated the space: this code writes the old format."""
    await version(store)


def complete(
    record: Record[Any], match: KeyMatch, before: Entry[Any] | None, content: bytes
) -> bytes:
    """Add the members that the key, the store and the existing record determine."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "The value is not JSON; to store it as text, add --text.", reason=str(error)
        ) from None
    if not isinstance(document, dict) or not record.is_struct:
        return content
    known: dict[str, Any] = {}
    for name, value in match.fields.items():
        source = record.fields.get(name, name)
        if isinstance(source, str) and "." not in source and hasattr(record.type, source):
            known[source] = value
    known |= {
        name: record.times.format(0)
        for name in (record.created, record.updated)
        if name is not None
    }
    known |= {} if record.version is None else {record.version[0]: record.version[1]}
    known |= (
        {} if before is None else {name: getattr(before.record, name) for name in record.private}
    )
    members = {member_name(record.type, name): value for name, value in known.items()}
    missing = {name: value for name, value in members.items() if name not in document}
    return msgspec.json.encode(document | missing) if missing else content
