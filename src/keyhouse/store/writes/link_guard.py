"""Link guards: they keep linked records together (`keyhouse.schema.links`).

Theory of operation. A record is linked to its owners, and to the records that it refers to. Two
things must hold after every commit: a linked record has the record that it is linked to, and a
deleted record has no dependents left. Rows that appear in a span while a transaction runs are not
seen by its checks, so a deletion announces itself first:

    the put of a dependent                      the deletion of the other record
    1. reads the other record: it is there      1. commits a guard row (the row of a deletion job)
    2. reads the guard row: it is absent        2. scans for dependents: deletes what it owns,
    3. commits, with both checked                  fails if anything refers to it
                                                3. deletes record, dependents and guard row in one
                                                   commit, with the guard checked

A put that commits before the guard is seen by the scan. One that comes later finds the guard, which
is a lost race, or finds no record, which is an error. If the deletion dies after its first step,
the guard's lease expires, and the next put or deletion removes the guard in its own commit; then
the deletion cannot commit any more, whatever the clocks say.

The first attempt of a put reads neither, if this store has seen the other record before: it assumes
(`assumptions`) that the record is at the revision seen last, and that it has no guard.

A transaction notes what it puts and deletes (`LinkNotes`), and asks the guard once, in `commit`. So
records can be put and deleted in any order before it. A deletion that one commit cannot hold is a
job: see `cascade_delete`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from keyhouse.engine import Batch, Check, Put, Row, Span
from keyhouse.errors import ConflictError, DataError, KeyhouseError, LimitError, LinkError
from keyhouse.schema import NO_LINKS, BoundLink, BoundRecord, BoundSchema, JobState, KeyValues
from keyhouse.store.entry import Entry
from keyhouse.store.reads.long_read import pages
from keyhouse.store.stored_keys import delete_stored_row
from keyhouse.store.writes.assumptions import assume
from keyhouse.store.writes.row_buffer import RowBuffer, revision_of

_GUARD_LEASE_MS = 5_000
_OWNERS_CACHED = 1_000
_ABSENT = {
    True: "The record that this one belongs to does not exist.",
    False: "The record that this one refers to does not exist.",
}


DeleteRecord = Callable[[BoundRecord[Any], str, KeyValues], Awaitable[bool]]
"""Buffers the deletion of a bound record and its derived rows; returns whether it was there."""


class Removal(NamedTuple):
    """A record that is deleted, and whose dependents must be dealt with. `job`: they are deleted
    later, by this job."""

    record: BoundRecord[Any]
    values: KeyValues
    job: JobState | None = None


class SeenOwner(NamedTuple):
    """A record that others are linked to, as it was seen last, and its absent guard row."""

    record: Check
    guard: Check


SeenOwners = dict[str, SeenOwner]
"""Some of the records that others are linked to, by key: a store remembers them, since many are
linked to the same few."""


class LinkNotes(msgspec.Struct, eq=False):
    """Conditions of a commit on linked records, by key.

    owners     the records that a written one is linked to, by its key
    created    new records that others may depend on
    removed    deleted records that others may depend on
    """

    owners: dict[str, dict[str, BoundLink]] = {}
    created: dict[str, BoundRecord[Any]] = {}
    removed: dict[str, Removal] = {}

    def copy(self) -> "LinkNotes":
        return LinkNotes(self.owners.copy(), self.created.copy(), self.removed.copy())


class LinkGuard(msgspec.Struct, eq=False):
    """Notes what a transaction does to linked records, and makes their links hold in `commit`.

    `notes` is None while nothing was noted. `seen_owners` are those of the store.
    """

    rows: RowBuffer
    binding: BoundSchema
    now: int
    seen_owners: SeenOwners
    notes: LinkNotes | None = None

    # Noting what a commit must check

    def note_put(
        self, bound: BoundRecord[Any], before: Entry[Any] | None, after: Entry[Any]
    ) -> None:
        """Note that a record is put in the place of another one, or of none."""
        linked = self.binding.links(bound)
        if linked is NO_LINKS:
            return
        notes = self._started_notes()
        if linked.dependents:
            notes.removed.pop(after.key, None)
            if before is None and linked.is_owner:
                notes.created[after.key] = bound
        if linked.links and not (linked.are_fixed and before is not None):
            owners = linked.owner_keys(after.record, after.values)
            if before is not None:
                was = linked.owner_keys(before.record, before.values)
                noted = notes.owners.get(after.key, {})
                owners = {
                    key: link
                    for key, link in owners.items()
                    if was.get(key) is not link or key in noted
                }
            notes.owners[after.key] = owners

    def note_replaced(
        self,
        former: BoundRecord[Any],
        stored: Entry[Any] | None,
        bound: BoundRecord[Any],
        after: Entry[Any],
    ) -> None:
        """Note that a record replaces one of an older declaration, whose links were checked."""
        self.note_put(bound, None, after)
        if stored is None or (notes := self.notes) is None:
            return
        notes.created.pop(after.key, None)
        if noted := notes.owners.get(after.key):
            for key in self.binding.former_owner_keys(former, stored.record, stored.values):
                noted.pop(key, None)

    def note_add(self, bound: BoundRecord[Any], key: str, values: KeyValues) -> None:
        """Note that a counter is added to."""
        linked = self.binding.links(bound)
        if linked.links:
            self._started_notes().owners[key] = linked.owner_keys(None, values)

    def note_removal(
        self, bound: BoundRecord[Any], key: str, values: KeyValues, job: JobState
    ) -> None:
        """Note that a record is deleted, and that a job deletes all that belongs to it."""
        self._started_notes().removed[key] = Removal(bound, values, job)

    def _started_notes(self) -> LinkNotes:
        if self.notes is None:
            self.notes = LinkNotes()
        return self.notes

    # Deleting what belongs to a record

    async def delete_owned(
        self, bound: BoundRecord[Any], key: str, values: KeyValues, delete: DeleteRecord
    ) -> None:
        """Buffer the deletion of all that belongs to a record, which is deleted as well."""
        linked = self.binding.links(bound)
        if not linked.dependents:
            return
        self._started_notes().removed[key] = Removal(bound, values)
        for link in linked.dependents:
            if link.owns:
                await self._delete_dependents(link, values, delete)

    async def _delete_dependents(
        self, link: BoundLink, owner: KeyValues, delete: DeleteRecord
    ) -> None:
        rows, rows_max = self.rows, self.rows.engine.capabilities.commit_rows_max
        dependents = [each async for each in self.dependents(link, owner)]
        if link.child.derived:
            await rows.read([key for key, _ in dependents])
        for key, values in dependents:
            await self.delete_dependent(link.child, key, values, delete)
            if rows.pending > rows_max:
                raise LimitError(
                    "The record owns more rows than one commit holds: delete it by `Store.delete`.",
                    record=link.owner.name,
                    limit=rows_max,
                )

    async def delete_dependent(
        self, child: BoundRecord[Any], key: str, values: KeyValues, delete: DeleteRecord
    ) -> None:
        """Buffer the deletion of a record that belongs to another, with all that it owns itself.

        A row that does not decode is deleted as it is: `verify` finds the rows derived from it.
        """
        try:
            if child.derived:
                await delete(child, key, values)
            else:
                await delete_stored_row(self.rows, child, key)
        except DataError:
            self.rows.writes[key] = None
        await self.delete_owned(child, key, values, delete)

    async def dependents(
        self, link: BoundLink, owner: KeyValues
    ) -> AsyncIterator[tuple[str, KeyValues]]:
        """Yield key and key values of each record that depends on another, as this transaction sees
        it."""
        seen: set[str] = set()
        for declared, span in link.spans(owner):
            async for rows in self._pages(span):
                dependents = [each for row in rows if (each := _dependent(link, declared, row))]
                if link.by:
                    await self.rows.read([key for key, _ in dependents])
                for key, values in dependents:
                    if key not in seen and (
                        not link.by or await self._is_linked(link, key, values, owner)
                    ):
                        seen.add(key)
                        yield key, values

    async def _pages(self, span: Span) -> AsyncIterator[list[Row]]:
        """Yield the rows of a span as this transaction sees them: buffered, then stored ones."""
        yield [
            *[
                Row(put.key, put.value, 0)
                for put in self.rows.writes.values()
                if put and put.key in span
            ],
            *[Row(key, b"", 0) for key in self.rows.adds if key in span],
        ]
        async for page in pages(self.rows.engine, self.rows.space, span):
            yield [row for row in page.rows if row.key not in self.rows.writes]

    async def _is_linked(
        self, link: BoundLink, key: str, values: KeyValues, owner: KeyValues
    ) -> bool:
        """Return whether a record that an index row leads to has the link. One that does not decode
        is taken to have it."""
        row = await self.rows.row(key)
        if row is None:
            return False
        try:
            linked = link.owner_keys(link.child.decode(row.value, key), values)
            return link.owner.template.join(owner) in linked
        except DataError:
            return True

    # Committing

    async def check(self) -> None:
        """Read and check what a commit would check of linked records, without committing: `batch`
        and `changes` then have it too.

        Raises LinkError as `commit` would, and ConflictError if one of them is being deleted.
        """
        if (notes := self.notes) is None:
            return
        if not await self._read_links(notes):
            raise ConflictError("A record that this one is linked to is being deleted: try again.")
        await self._reject_references(await self._unguarded(notes, {}))

    async def commit(self, batch_id: str | None, delete: DeleteRecord) -> int | None:
        """Commit the rows if the links of all records then hold; None if the race is lost."""
        if (notes := self.notes) is None:
            return await self.rows.commit(batch_id)
        if self._assume_links(notes):
            revision = await self.rows.commit(batch_id)
        else:
            revision = await self._commit_checked(notes, batch_id, delete)
        self._remember_owners(revision)
        return revision

    async def _commit_checked(
        self, notes: LinkNotes, batch_id: str | None, delete: DeleteRecord
    ) -> int | None:
        if not await self._read_links(notes):
            return None
        guards: dict[str, int] = {}
        try:
            while removals := await self._unguarded(notes, guards):
                if not await self._guard(removals, guards, delete):
                    await self._release(guards)
                    return None
            revision = await self.rows.commit(batch_id)
        except Exception:
            await self._release(guards)
            raise
        if revision is None:
            await self._release(guards)
        return revision

    async def _unguarded(self, notes: LinkNotes, guards: dict[str, int]) -> dict[str, Removal]:
        """Return the stored records with dependents that are deleted here and not yet guarded.

        One that was put before it was deleted may not have been read.
        """
        await self.rows.read(
            [key for key in notes.removed if self.rows.writes.get(key, "") is None]
        )
        return {
            key: removal
            for key, removal in notes.removed.items()
            if key in self.rows.writes
            and self.rows.writes[key] is None
            and self.rows.stored.get(key) is not None
            and self.binding.guard_key(removal.record, key) not in guards
        }

    def _assume_links(self, notes: LinkNotes) -> bool:
        """Check what is linked to without reading it: that each record is at the revision seen
        last, and none is being deleted.

        Return False if one was not seen yet, or this is not a first attempt.
        """
        if not self.rows.may_assume or notes.removed:
            return False
        stored, writes, seen_owners = self.rows.stored, self.rows.writes, self.seen_owners
        checks: dict[str, Check] = {}
        for key, bound in notes.created.items():
            if key not in stored:
                return False
            guard = self.binding.guard_key(bound, key)
            checks[guard] = Check(guard, None)
        for owners in notes.owners.values():
            for owner in owners:
                if (seen := seen_owners.get(owner)) is None:
                    return False
                if owner not in stored and owner not in writes:
                    checks[owner] = seen.record
                elif writes.get(owner, stored.get(owner)) is None:
                    return False
                checks[seen.guard.key] = seen.guard
        return assume(self.rows, checks)

    def _remember_owners(self, revision: int | None) -> None:
        """Keep what is known of owners up to date after a commit, or a lost race."""
        owners, writes = self.seen_owners, self.rows.writes
        if revision is None:
            for key in self.rows.assumed or ():
                owners.pop(key, None)
        elif not owners.keys().isdisjoint(writes):
            for key in owners.keys() & writes.keys():
                if writes[key] is None:
                    del owners[key]
                else:
                    owners[key] = owners[key]._replace(record=Check(key, revision))

    async def _read_links(self, notes: LinkNotes) -> bool:
        """Check that all records which are linked to exist, and that no new record has the key of
        one whose deletion has not ended. Return False if one of them is being deleted."""
        created = {
            key: self.binding.guard_key(bound, key)
            for key, bound in notes.created.items()
            if self.rows.writes.get(key) is not None
        }
        linked = {
            owner: (link, key, self.binding.guard_key(link.owner, owner))
            for key, owners in notes.owners.items()
            if self.rows.writes.get(key) is not None or key in self.rows.adds
            for owner, link in owners.items()
        }
        guards = [guard for _, _, guard in linked.values()]
        await self.rows.read([*created, *created.values(), *linked, *guards])
        for key, guard in created.items():
            if self.rows.stored[key] is None and await self.rows.row(guard) is not None:
                raise ConflictError(
                    "What belonged to the deleted record of this key is still being deleted.",
                    key=key,
                )
        for owner, (link, key, guard) in linked.items():
            if await self.rows.row(owner) is None:
                raise LinkError(
                    _ABSENT[link.owns],
                    key=key,
                    missing=owner,
                    record=link.owner.name,
                    fields=link.owner.template.parse(owner),
                )
            if not self._pass_guard(guard):
                return False
            if (row := self.rows.stored[owner]) is not None:
                if len(self.seen_owners) >= _OWNERS_CACHED:
                    self.seen_owners.clear()
                self.seen_owners[owner] = SeenOwner(Check(owner, row.revision), Check(guard, None))
        return True

    def _pass_guard(self, guard: str) -> bool:
        """Return False if a deletion is under way; remove the guard of one that has died."""
        row = self.rows.stored[guard]
        if row is None or guard in self.rows.writes:
            return True
        if self._job_record().decode(row.value, guard).lease_until > self.now:
            return False
        self.rows.writes[guard] = None
        return True

    async def _guard(
        self, removals: dict[str, Removal], guards: dict[str, int], delete: DeleteRecord
    ) -> bool:
        """Commit guards for records that are deleted here, then look for dependents once more.

        Returns False if the race is lost.
        """
        await self._reject_references(removals)
        keys = {key: self.binding.guard_key(each.record, key) for key, each in removals.items()}
        await self.rows.read(list(keys.values()))
        if not all(self._pass_guard(guard) for guard in keys.values()):
            return False
        puts = [Put(guard, self._guard_value(key)) for key, guard in keys.items()]
        checks = [
            Check(each, revision_of(self.rows.stored[each]))
            for pair in keys.items()
            for each in pair
        ]
        revision = await self.rows.engine.commit(self.rows.space, Batch(tuple(checks), tuple(puts)))
        if revision is None:
            return False
        for put in puts:
            guards[put.key] = revision
            self.rows.stored[put.key] = Row(put.key, put.value, revision)
            self.rows.writes[put.key] = None
        for key, removal in removals.items():
            if removal.job is not None:
                self.rows.writes[keys[key]] = Put(
                    keys[key], self._job_record().json.encode(removal.job)
                )
            else:
                await self.delete_owned(removal.record, key, removal.values, delete)
        await self._reject_references(removals)
        return True

    async def _reject_references(self, removals: dict[str, Removal]) -> None:
        for key, removal in removals.items():
            for link in self.binding.links(removal.record).dependents:
                if link.owns:
                    continue
                async for dependent, _ in self.dependents(link, removal.values):
                    raise LinkError(
                        "The record is still referred to:"
                        " change or delete what refers to it first.",
                        key=key,
                        example=dependent,
                        record=link.child.name,
                    )

    async def _release(self, guards: dict[str, int]) -> None:
        """Delete the guards of a deletion that was not committed."""
        if guards:
            checks = tuple(Check(key, revision) for key, revision in guards.items())
            with suppress(KeyhouseError):  # else their lease expires
                await self.rows.engine.commit(self.rows.space, Batch(checks, deletes=tuple(guards)))

    def _job_record(self) -> BoundRecord[JobState]:
        meta = self.binding.schema.meta
        assert meta is not None  # a schema with links has one
        return self.binding.record(meta.job)

    def _guard_value(self, key: str) -> bytes:
        lease = self.now + _GUARD_LEASE_MS
        return self._job_record().json.encode(
            JobState(owner="", lease_until=lease, started_at=self.now, cursor=key)
        )


def _dependent(link: BoundLink, declared: Any, row: Row) -> tuple[str, KeyValues] | None:
    """Return key and key values of the record that a row leads to; None for a row of another
    template."""
    values = declared.template.split(row.key)
    if values is None:
        return None
    if declared is link.child:
        return row.key, values
    values, key = declared.owner_at(row.key, row.value)
    return key, values
