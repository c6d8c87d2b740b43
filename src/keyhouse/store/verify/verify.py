"""Verify a space online: every derived row matches its record, and every record has its rows.

The space is read once, page by page, while others write. A row that seems wrong is read again in a
transaction together with its record. That computes what is wrong, and writes only to repair it: so
only what is wrong at one moment is reported, and it is repaired in that same commit. Records are
read again to recount wrong counts, and by `repair` to complete truncated lists, a bounded number of
them at a time. Memory grows only with the number of RecordCount rows.

    finding       meaning                                                       repaired
    missing       a record's derived row does not exist                         yes
    wrong         it exists, but its value or expiry differs; or a record       yes
                  that expired by its own field is in a row that does not;
                  or a truncated list has room again (only with repair)
    dangling      no record has this derived row                                yes
    miscounted    a count differs from the number of records                    yes
    unfolded      events of a log that its state does not include               yes
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
from keyhouse.store.verify.counts import check_counts
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
    verifier = Verifier(store, repair and unmigrated is None, on_progress)
    async for finding in verifier.findings():
        if unmigrated is not None:
            yield unmigrated
            return
        if delete_unreadable and finding.kind in ("unreadable", "unknown") and not finding.repaired:
            finding = await verifier.delete_unreadable(finding)
        yield finding


async def _newer_space(store: Store) -> Finding | None:
    """Return a finding if newer code has migrated the space, or is migrating it."""
    try:
        await store.check_state()
    except NewerError as error:
        return Finding("newer", next(iter(store.version_keys().values())), "version", str(error))
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


class Verifier:
    """Verifies one space, and repairs it if that is asked for.

    Methods that take a transaction are checks to be `confirmed`: they read what they decide by,
    return a finding or None, and write nothing unless they repair.
    """

    def __init__(
        self, store: Store, repair: bool, on_progress: Callable[[int], None] | None
    ) -> None:
        self._store = store
        self._repair = repair
        self._on_progress = on_progress
        self._rows_read = 0
        self._counts: set[str] = set()
        self._counted: Multiset[str] = Multiset()
        self._truncated = TruncatedLists()

    async def findings(self) -> AsyncIterator[Finding]:
        store, repair = self._store, self._repair
        for part in (
            check_deletions(store, repair=repair),
            self._check_rows(),
            check_counts(store, self._counts, self._counted, repair=repair),
            check_streams(store, repair=repair),
            refill_lists(store, self._truncated, self._progress),
        ):
            async for finding in part:
                yield finding

    async def delete_unreadable(self, finding: Finding) -> Finding:
        """Delete the row of a finding if it is still unreadable: its owner may have written it
        again."""
        key, match = finding.key, self._store.find(finding.key)

        async def delete(tx: Transaction) -> None:
            written = await tx.row(key)
            error = (
                None if match is None or written is None else _unreadable(match, key, written[0])
            )
            if written is not None and (match is None or (error and _kind(error) == "unreadable")):
                tx.write(key, None)

        await self._store.transact(delete)
        return msgspec.structs.replace(finding, repaired=True)

    def _progress(self, rows: int) -> None:
        self._rows_read += rows
        if self._on_progress is not None:
            self._on_progress(self._rows_read)

    async def _check_rows(self) -> AsyncIterator[Finding]:
        span: Span | None = Span()
        while span is not None:
            page = await self._store.engine.scan(self._store.space, span, limit=_PAGE_ROWS)
            for row in page.rows:
                async for finding in self._check_row(row):
                    yield finding
            self._progress(len(page.rows))
            span = span.after(page.rows[-1].key) if page.more else None

    async def _check_row(self, row: Row) -> AsyncIterator[Finding]:
        match = self._store.find(row.key)
        if match is None:
            if not self._is_of_other_settings(row.key):
                yield Finding("unknown", row.key, "", "no template builds this key")
            return
        if row.revision == FOREIGN_REVISION and (
            finding := await confirmed(self._store, self._foreign, match, row.key)
        ):
            yield finding
        if isinstance(match.declared, RecordCount):
            self._counts.add(row.key)
            return
        is_record = isinstance(match.declared, Record)
        async for finding in (self._check_record if is_record else self._check_derived)(match, row):
            yield finding
        if self._repair and not is_record:
            self._truncated.add(match, row)

    def _is_of_other_settings(self, key: str) -> bool:
        """Return whether the row belongs to a store of this space with other settings."""
        schema, space = self._store.schema, self._store.space
        match = schema.find(key) if schema.fixed else None
        return match is not None and all(
            match.fields.get(name) == value for name, value in schema.space.bound(space).items()
        )

    async def _foreign(self, tx: Transaction, match: KeyMatch, key: str) -> Finding | None:
        """Report a readable row that another program wrote; write it again as it is, so that it has
        a revision."""
        written = await tx.row(key)
        if written is None or _unreadable(match, key, written[0]) is not None:
            return None
        if self._repair:
            tx.write(key, written)
        return Finding("foreign", key, match.record.name, "another program wrote it", self._repair)

    # Records

    async def _check_record(self, match: KeyMatch, row: Row) -> AsyncIterator[Finding]:
        store, record = self._store, match.record
        current = record.current_key(row.key)
        if current != row.key and await store.row(current) is not None:
            if finding := await confirmed(store, self._legacy_copy, record, row.key):
                yield finding
            return  # derived rows are those of the record at its current key
        try:
            value = record.decode(row.value, row.key)
            is_live = record.is_live(value, row.key, store.engine.clock.now())
            rows = [(derived, derived.rows(value, match.values)) for derived in record.derived]
        except (DataError, KeyFieldError) as error:
            yield Finding(_kind(error), row.key, record.name, str(error))
            return
        if record.timestamps is not None and (members := record.timestamps.invalid(value)):
            yield Finding("wrong", row.key, record.name, f"not a time: {', '.join(members)}")
        if not is_live:
            if finding := await confirmed(store, self._expired, match, row.key):
                yield finding
            return
        expected: dict[str, tuple[Derived, Any]] = {}
        for derived, contributions in rows:
            if derived.strategy == "add":
                self._counted.update(contributions.keys())
            else:
                expected |= {key: (derived, each) for key, each in contributions.items()}
        stored = await store.engine.read(store.space, list(expected)) if expected else []
        for (key, (derived, contribution)), there in zip(expected.items(), stored, strict=True):
            if not _agrees(derived, there, contribution, row.expires) and (
                finding := await confirmed(store, self._missing, match, row.key, derived, key)
            ):
                yield finding
        if record.links:
            async for finding in check_links(
                store, record, row.key, value, match.values, repair=self._repair
            ):
                yield finding

    async def _expired(self, tx: Transaction, match: KeyMatch, key: str) -> Finding | None:
        """Report a record that has expired by its own field in a row that does not expire."""
        record: Record[Any] = match.record
        written = await tx.row(key)
        if written is None or record.is_live(record.decode(written[0], key), key, tx.now):
            return None
        if self._repair:
            fields: dict[str, Any] = dict(zip(record.template.fields, match.values, strict=True))
            await tx.delete(self._store.schema.record(record.name), **fields)
        detail = "has expired by its own field, and its row does not expire"
        return Finding("wrong", key, record.name, detail, self._repair)

    async def _legacy_copy(
        self, tx: Transaction, record: Record[Any], legacy_key: str
    ) -> Finding | None:
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

    async def _missing(
        self, tx: Transaction, match: KeyMatch, owner: str, derived: Derived, key: str
    ) -> Finding | None:
        """Report a row at `key` that does not have what the record at `owner` contributes."""
        record: Record[Any] = match.record
        written = await tx.row(await tx.records.stored_key(record, record.current_key(owner)))
        if written is None:
            return None
        rows, expires = derived.rows(record.decode(written[0], owner), match.values), written[1]
        there = await tx.row(key)
        row = None if there is None else Row(key, there[0], 0, there[1])
        if key not in rows or _agrees(derived, row, rows[key], expires):
            return None
        kind: Kind = "missing" if row is None else "wrong"
        detail = f"{owner} should have it"
        try:
            if isinstance(derived, Unique | Summary):
                derived.merge(key, None if row is None else row.value, None, rows[key])
        except UniqueError:
            if await self._is_held(tx, record, derived, key):
                kind, detail = "conflict", f"{owner} claims it, another record holds it"
        except NewerError as error:
            kind, detail = "newer", str(error)
        except DataError as error:
            kind, detail = "unreadable", str(error)
        is_repaired = self._repair and kind not in ("conflict", "newer")
        if is_repaired and not isinstance(derived, Summary):
            tx.write(key, (rows[key], expires))
        elif is_repaired:
            if kind == "unreadable":
                tx.write(key, None)
            await tx.merge(
                SharedRowChange(record, derived, key, match.values, None, rows[key], expires)
            )
        return Finding(kind, key, record.name, detail, is_repaired)

    async def _is_held(
        self, tx: Transaction, record: Record[Any], derived: Derived, key: str
    ) -> bool:
        """Return whether the record that a unique row names has that row."""
        assert isinstance(derived, Unique)
        there = await tx.row(key)
        try:
            values, owner = derived.owner_at(key, b"" if there is None else there[0])
        except DataError:
            return False
        return await self._is_derived(tx, record, derived, key, values, owner)

    # Derived rows

    async def _check_derived(self, match: KeyMatch, row: Row) -> AsyncIterator[Finding]:
        store, record = self._store, match.record
        if (reason := _unreadable(match, row.key, row.value)) is not None:
            now = await store.row(row.key)
            if now is not None and now.revision == row.revision:
                yield Finding(_kind(reason), row.key, record.name, str(reason))
            return  # else it has been written again, by its owner or by the repair of a record
        owners = match.declared.owners(row.key, row.value)
        keys = [record.template.join(values) for candidates in owners for values in candidates]
        rows = iter(await read_records(store.engine, store.space, record, keys))
        for candidates in owners:
            derives = [
                _derives(record, match.declared, row.key, next(rows), values)
                for values in candidates
            ]
            if not any(derives) and (
                finding := await confirmed(store, self._dangling, match, candidates, row)
            ):
                yield finding

    async def _dangling(
        self, tx: Transaction, match: KeyMatch, candidates: list[Keys], seen: Row
    ) -> Finding | None:
        """Report a row, or a member of it, that none of the records has that could have it."""
        record, derived, key = match.record, match.declared, seen.key
        there = await tx.row(key)
        if there is None or (isinstance(derived, Unique) and there[0] != seen.value):
            return None  # it was deleted, or another record has written it
        for values in candidates:
            owner = record.template.join(values)
            if await self._is_derived(tx, record, derived, key, values, owner):
                return None
        detail = f"no record {record.name} has this row"
        removed: Any = there[0]
        if isinstance(derived, Summary):
            member = str(candidates[0][record.template.fields.index(derived.member_field)])
            if member not in derived.members(there[0]):
                return None
            detail = f"no record {record.name} has its member {member}"
            removed = (member, None)
        try:
            if isinstance(derived, Unique | Summary):
                derived.merge(key, there[0], removed, None)
        except NewerError as error:
            return Finding("newer", key, record.name, str(error))
        if self._repair and derived.strategy == "put":
            tx.write(key, None)
        elif self._repair:
            await tx.merge(
                SharedRowChange(record, derived, key, candidates[0], removed, None, there[1])
            )
        return Finding("dangling", key, record.name, detail, self._repair)

    async def _is_derived(
        self,
        tx: Transaction,
        record: Record[Any],
        derived: Derived,
        key: str,
        values: Keys,
        owner: str,
    ) -> bool:
        written = await tx.row(await tx.records.stored_key(record, owner))
        row = None if written is None else Row(owner, written[0], 0)
        return _derives(record, derived, key, row, values)


def _kind(error: KeyhouseError) -> Kind:
    """Return the kind of the finding that a row does not decode."""
    if isinstance(error, NewerError):
        return "newer"
    return "sealed" if isinstance(error, SealedError) else "unreadable"


def _unreadable(match: KeyMatch, key: str, value: bytes) -> KeyhouseError | None:
    """Return the reason why a row does not decode, or None if it does."""
    try:
        if isinstance(match.declared, Record):
            read = match.record.decode(value, key)
            match.record.is_live(read, key, 0)
            for derived in match.record.derived:
                derived.rows(read, match.values)
        else:
            for candidates in match.declared.owners(key, value):
                for values in candidates:
                    match.record.template.join(values)
    except (DataError, DocumentError, KeyFieldError) as error:
        return error
    return None


def _agrees(derived: Derived, row: Row | None, contribution: Any, expires: int | None) -> bool:
    """Return whether a row has the contribution of a record, and its expiry if it is its own."""
    try:
        if not derived.holds(None if row is None else row.value, contribution):
            return False
    except (DataError, DocumentError):
        return False
    own = derived.strategy == "put" or (
        isinstance(derived, Unique) and row is not None and row.value == contribution
    )
    return not own or row is None or row.expires == expires


def _derives(
    record: Record[Any], derived: Derived, key: str, owner: Row | None, values: Keys
) -> bool:
    """Return whether a stored record has the derived row. One that is unreadable is a separate
    finding: it is taken to have it."""
    if owner is None:
        return False
    try:
        return key in derived.rows(record.decode(owner.value, owner.key), values)
    except (DataError, KeyFieldError):
        return True
