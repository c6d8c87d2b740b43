"""Verify a space online: every derived row matches its record, and every record has its rows.

The space is read once, page by page, while others write. A row that seems wrong is read again in a
transaction together with its record. That computes what is wrong, and writes only to repair it: so
only what is wrong at one moment is reported, and it is repaired in that same commit. Records are
read again to recount wrong counts, and by `repair` to complete truncated lists, a bounded number of
them at a time. Memory grows only with the number of counts.

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
                  at two keys                                                   must decide
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

from keyhouse.advice.arguments import checked
from keyhouse.engine import FOREIGN_REVISION, Row
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyFieldError,
    NewerError,
    PreparingError,
    UniqueError,
    UsageError,
)
from keyhouse.schema import BoundDerived, BoundRecord, KeyMatch
from keyhouse.store.jobs.migrate import version
from keyhouse.store.reads.long_read import pages
from keyhouse.store.store import Store
from keyhouse.store.stored_keys import copies
from keyhouse.store.verify.counts import check_counts
from keyhouse.store.verify.derived_rows import (
    check_derived,
    delete_if_unreadable,
    is_derived,
    kind_of,
    unreadable,
)
from keyhouse.store.verify.finding import Finding, Kind, confirmed
from keyhouse.store.verify.links import check_deletions, check_links
from keyhouse.store.verify.lists import TruncatedLists, refill_lists
from keyhouse.store.verify.logs import check_streams
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import SharedRowChange


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
            finding = await delete_if_unreadable(store, finding)
        yield finding


async def _newer_space(store: Store) -> Finding | None:
    """Return a finding if newer code has migrated the space, or is migrating it."""
    try:
        await store.guard.check()
    except NewerError as error:
        return Finding("newer", next(iter(store.guard.newer_keys.values())), "version", str(error))
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

    def _progress(self, rows: int) -> None:
        self._rows_read += rows
        if self._on_progress is not None:
            self._on_progress(self._rows_read)

    async def _check_rows(self) -> AsyncIterator[Finding]:
        async for page in pages(self._store.engine, self._store.space):
            for row in page.rows:
                async for finding in self._check_row(row):
                    yield finding
            self._progress(len(page.rows))

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
        if isinstance(match.declared, BoundRecord):
            async for finding in self._check_record(match, row):
                yield finding
            return
        if match.declared.strategy == "add":
            self._counts.add(row.key)
            return
        async for finding in check_derived(self._store, match, row, repair=self._repair):
            yield finding
        if self._repair:
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
        if written is None or unreadable(match, key, written[0]) is not None:
            return None
        if self._repair:
            tx.write(key, written)
        return Finding("foreign", key, match.record.name, "another program wrote it", self._repair)

    # Records

    async def _check_record(self, match: KeyMatch, row: Row) -> AsyncIterator[Finding]:
        store, record = self._store, match.record
        if await copies(store.engine, store.space, record, [row.key]):
            if finding := await confirmed(store, self._copy, record, row.key):
                yield finding
            return  # derived rows are those of the record at its own key
        try:
            value = record.decode(row.value, row.key)
            is_live = record.is_live(value, row.key, store.engine.clock.now())
            rows = [(derived, derived.rows(value, match.values)) for derived in record.derived]
        except (DataError, KeyFieldError) as error:
            yield Finding(kind_of(error), row.key, record.name, str(error))
            return
        if record.timestamps is not None and (members := record.timestamps.invalid(value)):
            yield Finding("wrong", row.key, record.name, f"not a time: {', '.join(members)}")
        if not is_live:
            if finding := await confirmed(store, self._expired, match, row.key):
                yield finding
            return
        expected: dict[str, tuple[BoundDerived, Any]] = {}
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
        if record.declared.links:
            async for finding in check_links(
                store, record, row.key, value, match.values, repair=self._repair
            ):
                yield finding

    async def _expired(self, tx: Transaction, match: KeyMatch, key: str) -> Finding | None:
        """Report a record that has expired by its own field in a row that does not expire."""
        record: BoundRecord[Any] = match.record
        written = await tx.row(key)
        if written is None or record.is_live(record.decode(written[0], key), key, tx.now):
            return None
        if self._repair:
            fields: dict[str, Any] = dict(zip(record.template.fields, match.values, strict=True))
            await tx.delete(self._store.schema.record(record.name), **fields)
        detail = "has expired by its own field, and its row does not expire"
        return Finding("wrong", key, record.name, detail, self._repair)

    async def _copy(self, tx: Transaction, record: BoundRecord[Any], key: str) -> Finding | None:
        """Report a copy of a record that differs from it. No store writes such a pair."""
        own_key = record.key_of(key)
        copy, own = await tx.row(key), await tx.row(own_key)
        if copy is None or own is None or copy == own:
            return None
        try:
            same = (
                record.decode(copy[0], key) == record.decode(own[0], own_key) and copy[1] == own[1]
            )
        except DataError:
            same = False
        detail = "differs from the record at its current key"
        return None if same else Finding("conflict", key, record.name, detail)

    async def _missing(
        self, tx: Transaction, match: KeyMatch, owner: str, derived: BoundDerived, key: str
    ) -> Finding | None:
        """Report a row at `key` that does not have what the record at `owner` contributes."""
        record: BoundRecord[Any] = match.record
        written = await tx.row(await tx.records.stored_key(record, record.key_of(owner)))
        if written is None:
            return None
        rows, expires = derived.rows(record.decode(written[0], owner), match.values), written[1]
        there = await tx.row(key)
        row = None if there is None else Row(key, there[0], 0, there[1])
        if key not in rows or _agrees(derived, row, rows[key], expires):
            return None
        kind: Kind = "missing" if row is None else "wrong"
        detail, takes_over = f"{owner} should have it", False
        try:
            if derived.strategy == "merge":
                derived.merge(key, None if row is None else row.value, None, rows[key])
        except UniqueError:
            takes_over = not await self._is_held(tx, record, derived, key)
            if not takes_over:
                kind, detail = "conflict", f"{owner} claims it, another record holds it"
        except NewerError as error:
            kind, detail = "newer", str(error)
        except DataError as error:
            kind, detail, takes_over = "unreadable", str(error), True
        is_repaired = self._repair and kind not in ("conflict", "newer")
        if is_repaired and derived.strategy == "put":
            tx.write(key, (rows[key], expires))
        elif is_repaired:
            if takes_over:
                tx.write(key, None)
            await tx.merge(
                SharedRowChange(record, derived, key, match.values, None, rows[key], expires)
            )
        return Finding(kind, key, record.name, detail, is_repaired)

    async def _is_held(
        self, tx: Transaction, record: BoundRecord[Any], derived: BoundDerived, key: str
    ) -> bool:
        """Return whether a record that a row names has that row."""
        there = await tx.row(key)
        try:
            owners = [] if there is None else derived.owners(key, there[0])
            named = [(record.template.join(each), each) for some in owners for each in some]
        except (DataError, KeyFieldError):
            return False
        for owner, values in named:
            if await is_derived(tx, record, derived, key, values, owner):
                return True
        return False


def _agrees(derived: BoundDerived, row: Row | None, contribution: Any, expires: int | None) -> bool:
    """Return whether a row has the contribution of a record, and its expiry if it is its own."""
    try:
        if not derived.holds(None if row is None else row.value, contribution):
            return False
    except (DataError, DocumentError):
        return False
    own = derived.strategy == "put" or (
        derived.is_claimed and row is not None and row.value == contribution
    )
    return not own or row is None or row.expires == expires
