"""Data access for `get`, `put`, `delete`, `list`, `scan`, `count` and `watch`: a store or a running
service, with `--token`, else KEYHOUSE_TOKEN."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from keyhouse import Store
from keyhouse.cli.options import Location, Selection, access_token
from keyhouse.cli.rows import RowView, key_filter, prefix_span, view_change, view_row
from keyhouse.cli.spaces import Target, space_name, target_of_key, target_of_space
from keyhouse.cli.systems import load_system, served_name
from keyhouse.cli.target import Preflight, engine_at, find_service_url, serve_settings, store_url
from keyhouse.engine import Change, Row, check_since
from keyhouse.engines.url import public_url
from keyhouse.errors import AccessError, DocumentError, EngineError, TokenError, UsageError
from keyhouse.keys import Span
from keyhouse.schema import MILLISECONDS, BoundDerived, BoundRecord, KeyMatch, Log, Record, Schema
from keyhouse.schema.description import member_name
from keyhouse.schema.explanation import explain
from keyhouse.service.registry import remote_of
from keyhouse.service.remote import Remote, RemoteRow
from keyhouse.store import ANY, Entry, Transaction, Unset, version


class PutResult(msgspec.Struct, frozen=True):
    """A written record. Members that a service does not return are unset."""

    space: str
    key: str
    record: str
    revision: int | msgspec.UnsetType
    expires: str | msgspec.UnsetType | None
    value: Any
    derived: list[dict[str, str]]


# Every command resolves the system first, then the store, then the space: so do its errors.


class ServiceAddress(msgspec.Struct, frozen=True):
    """A running service, and the token for it."""

    url: str
    token: str | None


def service_of(location: Location) -> ServiceAddress | None:
    """Return the service that `--store` or the environment names, or None if that is a store."""
    url = find_service_url(location.store)
    if url is not None:
        return ServiceAddress(url, access_token(location.token))
    if location.token is not None:
        raise UsageError("--token is for a running service: give its URL as --store.")
    return None


@asynccontextmanager
async def open_space(system: str, location: Location) -> AsyncIterator["Access"]:
    """Open the named space; without `--space`, the one that the token belongs to."""
    loaded = load_system(system)
    service = _check_store(system, location)
    space = space_name(location.space) or _space_of_token(system, service)
    async with open_access(system, target_of_space(loaded, space), location) as access:
        yield access


def select_key(system: str, key: str, location: Location) -> tuple[Target, KeyMatch]:
    """Return the space of a key, and the declaration that the key matches."""
    loaded = load_system(system)
    service = _check_store(system, location)
    space = location.space
    if loaded.schemas[0].space.field is None and len(loaded.schemas) == 1:  # else the key names it
        space = space_name(space) or _space_of_token(system, service)
    return target_of_key(loaded, key, space)


def _check_store(system: str, location: Location) -> ServiceAddress | None:
    """Return the service, or None if there is a store. Raises UsageError if nothing is named."""
    service = service_of(location)
    if service is None:
        store_url(system, location.store)
    return service


def _space_of_token(system: str, service: ServiceAddress | None) -> str | None:
    """Return the space that the token names; UsageError if the service needs one and none is given.

    None for a store, for a service whose tokens name no space, and over NATS, which has none.
    """
    if service is None or not service.url.startswith("http"):
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


@asynccontextmanager
async def open_access(
    system: str, target: Target, location: Location, *, preflight: Preflight | None = None
) -> AsyncIterator["Access"]:
    """Open the store or the service that `--store` or the environment names.

    A store must exist, unless there is a `preflight`: see `engine_at`.
    """
    service = service_of(location)
    if service is None:
        url = store_url(system, location.store)
        async with engine_at(url, existing=preflight is None, preflight=preflight) as engine:
            yield Access(target, target.store(engine), public_url(url))
        return
    try:
        remote: Remote = await remote_of(load_system(system)).connect(
            with_user(service.url, system), target.space, service.token
        )
        try:
            yield Access(target, remote, public_url(service.url))
        finally:
            await remote.close()
    except TokenError as error:
        if hasattr(remote_of(load_system(system)), "space_of"):  # `keyhouse token` makes its tokens
            error.fields["new_token"] = token_command(system, target.space)
        raise
    except EngineError as error:
        error.fields["service"] = public_url(service.url)
        raise


def with_user(url: str, system: str) -> str:
    """Return the URL with the password of the embedded NATS server, if it is that of the data
    folder in the settings of `keyhouse serve` here."""
    if not url.startswith("nats://") or "@" in url:
        return url
    from keyhouse.nats.embedded_users import with_embedded_user

    return with_embedded_user(url, Path(serve_settings(served_name(system)).settings.data))


class Access:
    """The rows of one space, in a store or behind a running service, which may tell less of them.
    `location` is the URL to show."""

    def __init__(self, target: Target, rows: Store | Remote, location: str) -> None:
        self.location = location
        self.space = target.space
        self._target = target
        self._rows = rows

    def _view(self, row: Row | Change | RemoteRow, *, keys_only: bool = False) -> RowView:
        return view_row(self._target.schema, self._target.space, row, keys_only=keys_only)

    async def get(self, key: str) -> RowView | None:
        rows = self._rows
        row = await (rows.row(key) if isinstance(rows, Store) else rows.get(key))
        return None if row is None else self._view(row)

    async def rows(
        self, selection: Selection, *, keys_only: bool = False, resolve: bool = False
    ) -> AsyncIterator[RowView]:
        """Iterate over the rows of a selection. `resolve` replaces a derived row by its records."""
        accepts, span, count = key_filter(self._target.schema, selection.type), _span(selection), 0
        async for row in self._listed(selection, span, keys_only=keys_only):
            if not (accepts(row.key) and row.key in span):
                continue
            for each in await self._records(row) if resolve else [row]:
                yield self._view(each, keys_only=keys_only)
                count += 1
                if count == selection.limit:
                    return

    async def count(self, selection: Selection) -> int:
        accepts, span = key_filter(self._target.schema, selection.type), _span(selection)
        if selection.type is None and not isinstance(self._rows, Store):
            await self._check_open(self._rows, selection)
            return await self._rows.count(selection.prefix)
        listed = self._listed(selection, span, keys_only=True)
        return sum([accepts(row.key) async for row in listed])

    async def watch(
        self, selection: Selection, since: int | None, on_start: Callable[[int], None]
    ) -> AsyncGenerator[RowView, None]:
        accepts = key_filter(self._target.schema, selection.type)
        changes: AsyncGenerator[Change | RemoteRow, None]
        if isinstance(self._rows, Store):
            newest = await self._rows.revision()
            check_since(since, newest)  # before on_start
            start = since if since is not None else newest
            on_start(start)
            changes = self._rows.row_watch(prefix_span(selection.prefix), since=start)
        else:
            await self._check_open(self._rows, selection)
            changes = self._rows.watch(selection.prefix, since, on_start)
        async with aclosing(changes):
            async for change in changes:
                if accepts(change.key):
                    yield view_change(self._view(change), change)

    async def put(
        self, key: str, match: KeyMatch, content: bytes, ttl: int | None, expect: int | Unset | None
    ) -> PutResult:
        if isinstance(self._rows, Store):
            return await put_value(self._target, self._rows, match, key, content, ttl, expect)
        check_writable(self._target, match, key)
        value = complete(match.record.declared, match, None, content)
        match.record.json.parse_document(value)
        view = self._view(await self._rows.put(key, value, ttl=ttl, expect=expect))
        return PutResult(
            view.space, key, match.record.name, view.revision, view.expires, view.value, []
        )

    async def delete(self, key: str, match: KeyMatch, expect: int | Unset | None) -> bool:
        if not isinstance(self._rows, Store):
            check_writable(self._target, match, key)
            return await self._rows.delete(key, expect=expect)
        await reject_newer(self._rows)
        bound = self._rows.find(key)
        assert bound is not None, "the target was chosen by this key"
        return await self._rows.delete(match.record.declared, expect=expect, **bound.fields)

    async def _listed(
        self, selection: Selection, span: Span, *, keys_only: bool
    ) -> AsyncGenerator[Row | RemoteRow, None]:
        """Iterate over the rows of a store in `span`, or of a service with the prefix."""
        reverse = selection.reverse
        if isinstance(self._rows, Store):
            scan = self._rows.row_scan(span, reverse=reverse, keys_only=keys_only)
            async with aclosing(scan) as rows:
                async for row in rows:
                    yield row
        else:
            await self._check_open(self._rows, selection)
            listed = self._rows.rows(selection.prefix, reverse=reverse, keys_only=keys_only)
            async for shown in listed:
                yield shown

    async def _records(self, row: Row | RemoteRow) -> list[Row | RemoteRow]:
        """Return the existing records of a derived row; any other row itself."""
        match = self._target.schema.find(row.key)
        derived = None if match is None else match.declared
        if match is None or not isinstance(derived, BoundDerived) or row.value is UNSET:
            return [row]
        keys = [
            match.record.template.join(values)
            for owners in derived.owners(row.key, row.value)
            for values in owners
        ]
        rows: Sequence[Row | RemoteRow | None]
        if isinstance(self._rows, Store):
            rows = await self._rows.rows(keys) if keys else []
        else:
            rows = [await self._rows.get(key) for key in keys]
        return [each for each in rows if each is not None]

    async def _check_open(self, remote: Remote, selection: Selection) -> None:
        """Raise UsageError if only derived rows are asked for and the service lists none, and
        AccessError if it closes the record that is; if it closes others of the selection, report
        it."""
        only_derived = selection.type == "derived" or _is_derived(
            self._target.schema, selection.prefix
        )
        if only_derived and not remote.lists_derived:
            raise UsageError(
                "A service lists records, and no derived rows: for these, name the engine or the"
                " data folder as --store.",
                prefix=selection.prefix,
            )
        closed = sorted(await remote.closed(selection.prefix))
        if selection.type in closed:
            raise AccessError(
                "The settings of the service close this record to its callers: to read it, name"
                " the engine or the data folder as --store.",
                record=selection.type,
            )
        if closed and selection.type in (None, "records"):
            names = ", ".join(closed)
            print(f"Left out, since the service closes it to its callers: {names}", file=sys.stderr)


def _is_derived(schema: Schema, prefix: str) -> bool:
    """Return whether keys of derived rows can start so, and those of records cannot."""
    heads = [(each.template.head, isinstance(each, BoundRecord)) for _, each in schema.declared()]
    are_records = [
        is_record for head, is_record in heads if head.startswith(prefix) or prefix.startswith(head)
    ]
    return bool(are_records) and not any(are_records)


def _span(selection: Selection) -> Span:
    span, after = prefix_span(selection.prefix), selection.after
    if after is None:
        return span
    return span.before(after) if selection.reverse else span.after(after)


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
    if isinstance(match.record.declared, Log):
        raise UsageError(
            "The events of a log are appended by its system, which also folds them.",
            log=match.record.name,
        )
    record = match.record.declared
    bound = store.find(key)
    assert bound is not None, "the target was chosen by this key"
    before: Entry[Any] | None = None
    if record.private or record.keeps_unknown:  # a put must not lose what `get` does not print
        before = await store.entry(record, **bound.fields)
        expect = (None if before is None else before.revision) if expect is ANY else expect
    value, document = record.json.parse_document(complete(record, match, before, content))
    entry = await _put(store, record, value, document, before, ttl, expect, bound.fields)
    rows = [
        {"kind": derived.declared.kind, "key": row}
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
    document = record.json.merge_from_row(document, None if before is None else before.stored)

    async def work(tx: Transaction) -> tuple[Entry[Any], Transaction]:
        given = {"ttl": ttl, "expect": expect, **fields}
        return await tx.put_document(record, value, document, **given), tx

    entry, tx = await store.transact(work)
    return msgspec.structs.replace(entry, revision=tx.revision)


def check_writable(target: Target, match: KeyMatch, key: str) -> None:
    """Reject derived rows, and the rows that the store maintains."""
    if not match.is_record:
        explanation = explain(target.schema, key)
        raise UsageError(
            "This is a derived row: write or delete its record instead.",
            key=key,
            kind=match.declared.declared.kind,
            record=None if explanation is None else explanation.record_key,
        )
    if target.schema.meta is not None and match.record.declared in target.schema.meta.records:
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
    if not isinstance(document, dict) or not record.json.is_struct:
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
