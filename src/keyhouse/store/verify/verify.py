"""Verify a space online: every derived row matches its record, and every record has its rows.

The space is read once, page by page, while others write. A row that seems wrong is read again in a
transaction together with its record: only what is wrong at one moment is reported, and it is
repaired in that same commit. Records are read again to recount a wrong count, and by `repair` to
complete truncated lists, a bounded number of them at a time. Memory grows only with the number of
RecordCount rows.

    finding       meaning                                                       repaired
    missing       a record's derived row does not exist                         yes
    wrong         it exists, but its value or expiry differs; or a record       yes
                  that expired by its own field is in a row that does not;
                  or a truncated list has room again (only with repair)
    dangling      no record has this derived row                                yes
    miscounted    a count differs from the number of records                    yes
    unfolded      events of a log that its state does not include               unless deferred
    foreign       a row that another program wrote past the engine              yes: adopted
    orphan        a record whose owner does not exist                           yes: deleted
    unfinished    a deletion that was interrupted                               yes: finished
    unresolved    a record refers to one that does not exist                    no: a person decides
    conflict      two records claim one unique row, or a record differs         no: a person
                  at its current and legacy keys                                must decide
    newer         a row that newer code wrote; or the version of a space that   no: use the newer
                  newer code has migrated: then its other rows are not read     program
    unmigrated    the version of a space with pending migrations and other       no: migrate it
                  findings, which are not told: its rows may be of an older
                  declaration, and nothing of it is repaired or deleted
    sealed        a row sealed with a key that is not in the key ring           no: use its key ring
    unreadable    a row that does not decode as its record                      no, but deleted with
    unknown       a key that no template builds                                 `delete_unreadable`
"""

from collections import Counter as Multiset
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec

from keyhouse.arguments import checked
from keyhouse.engine import FOREIGN_REVISION, Row, Span
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    NewerError,
    PreparingError,
    SealedError,
    UniqueError,
    UsageError,
)
from keyhouse.schema import Derived, KeyMatch, Keys, Record, RecordCount, Summary, Unique
from keyhouse.store.jobs.migrate import version
from keyhouse.store.reads.record_reader import read_records
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction
from keyhouse.store.verify.counts import check_count
from keyhouse.store.verify.finding import Finding, Kind, confirmed
from keyhouse.store.verify.links import check_deletions, check_links
from keyhouse.store.verify.lists import TruncatedLists, refill_lists
from keyhouse.store.verify.logs import check_streams
from keyhouse.store.write_plan import SharedRowChange

_PAGE_ROWS = 500


@checked(UsageError)
async def verify(
    store: Store,
    *,
    repair: bool = False,
    delete_unreadable: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> AsyncIterator[Finding]:
    """Yield every finding as it is made. `repair` corrects what can be corrected.

    `delete_unreadable` deletes unreadable and unknown rows, never those that newer code wrote; rows
    derived from such a record dangle then, and the next run repairs them. `on_progress` is called
    with the number of rows read; rows that are read again for truncated lists count again.
    """
    if (newer := await _newer_space(store)) is not None:
        yield newer
        return
    unmigrated = await _unmigrated_space(store)
    is_repaired = repair and unmigrated is None
    async for finding in _findings(store, repair=is_repaired, on_progress=on_progress):
        if unmigrated is not None:
            yield unmigrated
            return
        if delete_unreadable and finding.kind in ("unreadable", "unknown") and not finding.repaired:
            await store.transact(partial(_delete, store, finding.key))
            finding = msgspec.structs.replace(finding, repaired=True)
        yield finding


async def _delete(store: Store, key: str, tx: Transaction) -> None:
    """Delete the row if it is still unreadable: its owner may have written it again."""
    written, found = await tx.row(key), store.find(key)
    error = None if found is None or written is None else _unreadable(found, key, written[0])
    if written is not None and (found is None or (error and _kind(error) == "unreadable")):
        tx.write(key, None)


async def _newer_space(store: Store) -> Finding | None:
    """Return a finding if newer code has migrated the space, or is migrating it."""
    try:
        await store.check_state()
    except NewerError as error:
        assert store.schema.meta is not None  # it has the version
        version = store.binding.record(store.schema.meta.version)
        return Finding("newer", version.template.build({}), version.name, str(error))
    except PreparingError:
        pass  # it is being erased
    return None


async def _unmigrated_space(store: Store) -> Finding | None:
    """Return the finding of a space with pending migrations."""
    if not store.schema.migrations or store.schema.meta is None:
        return None
    if (at := await version(store)) == store.schema.version:
        return None
    row = store.binding.record(store.schema.meta.version)
    detail = f"it is at version {at} of {store.schema.version}"
    return Finding("unmigrated", row.template.build({}), row.name, detail)


def _kind(error: KeyhouseError) -> Kind:
    """Return the kind of the finding that a row does not decode."""
    if isinstance(error, NewerError):
        return "newer"
    return "sealed" if isinstance(error, SealedError) else "unreadable"


def _unreadable(found: KeyMatch, key: str, value: bytes) -> KeyhouseError | None:
    """Return the reason why a row does not decode, or None if it does."""
    try:
        if isinstance(found.declared, Record):
            read = found.record.decode(value, key)
            found.record.is_live(read, key, 0)
            for derived in found.record.derived:
                derived.rows(read, found.values)
        else:
            for candidates in found.declared.owners(key, value):
                for values in candidates:
                    found.record.template.join(values)
    except (DataError, DocumentError, KeyFieldError) as error:
        return error
    return None


async def _findings(
    store: Store, *, repair: bool, on_progress: Callable[[int], None] | None
) -> AsyncIterator[Finding]:
    counted: Multiset[str] = Multiset()
    stored: set[str] = set()
    truncated = TruncatedLists()
    span: Span | None = Span()
    seen = 0

    def on_rows(count: int) -> None:
        nonlocal seen
        seen += count
        if on_progress is not None:
            on_progress(seen)

    async for finding in check_deletions(store, repair=repair):
        yield finding
    while span is not None:
        page = await store.engine.scan(store.space, span, limit=_PAGE_ROWS)
        for row in page.rows:
            found = store.find(row.key)
            if found is None:
                if not _is_of_other_settings(store, row.key):
                    yield Finding("unknown", row.key, "", "no template builds this key")
                continue
            adopt = partial(_adopt, found, row.key, repair)
            if row.revision == FOREIGN_REVISION and (foreign := await confirmed(store, adopt)):
                yield foreign
            if isinstance(found.declared, Record):
                async for finding in _check_record(store, found, row, counted, repair=repair):
                    yield finding
            elif isinstance(found.declared, RecordCount):
                stored.add(row.key)
            else:
                async for finding in _check_derived(store, found, row, repair=repair):
                    yield finding
                if repair:
                    truncated.add(found, row)
        on_rows(len(page.rows))
        span = span.after(page.rows[-1].key) if page.more else None
    for key in sorted(stored | counted.keys()):
        if (miscount := await check_count(store, key, counted[key], repair=repair)) is not None:
            yield miscount
    async for finding in check_streams(store, repair=repair):
        yield finding
    async for finding in refill_lists(store, truncated, on_rows):
        yield finding


async def _adopt(found: KeyMatch, key: str, repair: bool, tx: Transaction) -> Finding | None:
    """Report a readable row that another program wrote; write it again as it is, so that it has a
    revision."""
    written = await tx.row(key)
    if written is None or _unreadable(found, key, written[0]) is not None:
        return None
    if repair:
        tx.write(key, written)
    return Finding("foreign", key, found.record.name, "another program wrote it", repair)


def _is_of_other_settings(store: Store, key: str) -> bool:
    """Return True if the row belongs to a store of this space with other settings (namespace)."""
    found = store.schema.find(key) if store.schema.fixed else None
    if found is None:
        return False
    return all(
        found.fields.get(name) == value
        for name, value in store.schema.space.bound(store.space).items()
    )


async def _check_record(
    store: Store, found: KeyMatch, row: Row, counted: Multiset[str], *, repair: bool
) -> AsyncIterator[Finding]:
    record: Record[Any] = found.record
    if record.current_key(row.key) != row.key and await _has_current(store, record, row.key):
        work = partial(_compare_copies, record, row.key)
        if (conflict := await confirmed(store, work)) is not None:
            yield conflict
        return  # derived rows are those of the record at its current key
    try:
        value = record.decode(row.value, row.key)
        is_live = record.is_live(value, row.key, store.engine.clock.now())
        contributions = [(derived, derived.rows(value, found.values)) for derived in record.derived]
    except (DataError, KeyFieldError) as error:
        yield Finding(_kind(error), row.key, record.name, str(error))
        return
    if record.timestamps is not None and (members := record.timestamps.invalid(value)):
        detail = f"not a time: {', '.join(members)}"
        yield Finding("wrong", row.key, record.name, detail)
    if not is_live:
        work = partial(_delete_expired, store, found, row.key, repair)
        if (finding := await confirmed(store, work)) is not None:
            yield finding
        return
    expected = {
        key: (derived, rows[key])
        for derived, rows in contributions
        if derived.strategy != "add"
        for key in rows
    }
    counted.update(
        key for derived, rows in contributions if derived.strategy == "add" for key in rows
    )
    stored = await store.engine.read(store.space, list(expected)) if expected else []
    for (key, (derived, contribution)), there in zip(expected.items(), stored, strict=True):
        if not _agrees(derived, there, contribution, row.expires):
            work = partial(_repair_missing, record, derived, row.key, found.values, key, repair)
            if (finding := await confirmed(store, work)) is not None:
                yield finding
    if record.links:
        async for finding in check_links(
            store, record, row.key, value, found.values, repair=repair
        ):
            yield finding


async def _delete_expired(
    store: Store, found: KeyMatch, key: str, repair: bool, tx: Transaction
) -> Finding | None:
    """Report a record that has expired by its own field in a row that does not expire."""
    record: Record[Any] = found.record
    written = await tx.row(key)
    if written is None or record.is_live(record.decode(written[0], key), key, tx.now):
        return None
    if repair:
        fields: dict[str, Any] = dict(zip(record.template.fields, found.values, strict=True))
        await tx.delete(store.schema.record(record.name), **fields)
    detail = "has expired by its own field, and its row does not expire"
    return Finding("wrong", key, record.name, detail, repair)


async def _has_current(store: Store, record: Record[Any], legacy_key: str) -> bool:
    return await store.row(record.current_key(legacy_key)) is not None


async def _compare_copies(record: Record[Any], legacy_key: str, tx: Transaction) -> Finding | None:
    """Report a row at a legacy key that differs from its record at the current key.

    No store writes such a pair.
    """
    legacy, current = await tx.row(legacy_key), await tx.row(record.current_key(legacy_key))
    if legacy is None or current is None or legacy == current:
        return None
    try:
        same = record.decode(legacy[0]) == record.decode(current[0]) and legacy[1] == current[1]
    except DataError:
        same = False
    detail = "differs from the record at its current key"
    return None if same else Finding("conflict", legacy_key, record.name, detail)


async def _repair_missing(
    record: Record[Any],
    derived: Derived,
    owner: str,
    keys: Keys,
    key: str,
    repair: bool,
    tx: Transaction,
) -> Finding | None:
    """Read a record and one of its rows again; report what is wrong, and repair it."""
    written = await tx.row(await tx.records.stored_key(record, record.current_key(owner)))
    if written is None:
        return None
    expected = derived.rows(record.decode(written[0], owner), keys)
    there = await tx.row(key)
    row = None if there is None else Row(key, there[0], 0, there[1])
    if key not in expected or _agrees(derived, row, expected[key], written[1]):
        return None
    kind: Kind = "missing" if row is None else "wrong"
    detail = f"{owner} should have it"
    if repair and derived.strategy == "put":
        tx.write(key, (expected[key], written[1]))
    elif derived.strategy == "merge":
        change = SharedRowChange(record, derived, key, keys, None, expected[key], written[1])
        try:
            await tx.merge(change)
        except UniqueError:
            if await _is_held(record, derived, key, tx):
                return Finding(
                    "conflict", key, record.name, f"{owner} claims it, another record holds it"
                )
            tx.write(key, (expected[key], written[1]))
        except NewerError as error:
            return Finding("newer", key, record.name, str(error))
        except DataError as error:
            kind, detail = "unreadable", str(error)
            tx.write(key, None)
            await tx.merge(change)
        if not repair:
            tx.discard()
    return Finding(kind, key, record.name, detail, repair)


async def _is_held(record: Record[Any], derived: Derived, key: str, tx: Transaction) -> bool:
    """Return True if the record that a unique row names has that row."""
    assert isinstance(derived, Unique)
    there = await tx.row(key)
    try:
        values, owner = derived.owner_at(key, b"" if there is None else there[0])
    except DataError:
        return False
    written = await tx.row(await tx.records.stored_key(record, owner))
    return _derives(
        record, derived, key, None if written is None else Row(owner, written[0], 0), values
    )


def _agrees(derived: Derived, row: Row | None, contribution: Any, expires: int | None) -> bool:
    try:
        if not derived.holds(None if row is None else row.value, contribution):
            return False
    except (DataError, DocumentError):
        return False
    own = derived.strategy == "put" or (
        isinstance(derived, Unique) and row is not None and row.value == contribution
    )
    return not own or row is None or row.expires == expires


async def _check_derived(
    store: Store, found: KeyMatch, row: Row, *, repair: bool
) -> AsyncIterator[Finding]:
    derived: Derived = found.declared
    record: Record[Any] = found.record
    if (reason := _unreadable(found, row.key, row.value)) is not None:
        now = await store.row(row.key)
        if now is not None and now.revision == row.revision:
            yield Finding(_kind(reason), row.key, record.name, str(reason))
        return  # else it has been written again, by its owner or by the repair of a record
    owners = derived.owners(row.key, row.value)
    keys = [[record.template.join(values) for values in candidates] for candidates in owners]
    flat = [key for candidates in keys for key in candidates]
    rows = iter(await read_records(store.engine, store.space, record, flat))
    for candidates, their_keys in zip(owners, keys, strict=True):
        there = [next(rows) for _ in their_keys]
        if not any(
            _derives(record, derived, row.key, r, values)
            for r, values in zip(there, candidates, strict=True)
        ):
            work = partial(
                _repair_dangling, record, derived, candidates, row.key, row.value, repair
            )
            if (finding := await confirmed(store, work)) is not None:
                yield finding


def _derives(
    record: Record[Any], derived: Derived, key: str, owner: Row | None, values: Keys
) -> bool:
    if owner is None:
        return False
    try:
        return key in derived.rows(record.decode(owner.value, owner.key), values)
    except (DataError, KeyFieldError):
        return True  # an unreadable record is a separate finding; its rows are left alone


async def _repair_dangling(
    record: Record[Any],
    derived: Derived,
    candidates: list[Keys],
    key: str,
    seen: bytes,
    repair: bool,
    tx: Transaction,
) -> Finding | None:
    there = await tx.row(key)
    if there is None or (isinstance(derived, Unique) and there[0] != seen):
        return None  # it was deleted, or another record has written it
    for values in candidates:
        owner = record.template.join(values)
        written = await tx.row(await tx.records.stored_key(record, owner))
        if written is not None and _derives(
            record, derived, key, Row(owner, written[0], 0, None), values
        ):
            return None
    detail = f"no record {record.name} has this row"
    if isinstance(derived, Summary):
        member = str(candidates[0][record.template.fields.index(derived.member_field)])
        if member not in derived.members(there[0]):
            return None
        detail = f"no record {record.name} has its member {member}"
        removed: Any = (member, None)
    else:
        removed = there[0]
    if repair and derived.strategy == "put":
        tx.write(key, None)
    elif repair:
        try:
            await tx.merge(
                SharedRowChange(record, derived, key, candidates[0], removed, None, there[1])
            )
        except NewerError as error:
            return Finding("newer", key, record.name, str(error))
    return Finding("dangling", key, record.name, detail, repair)
