"""The part of a transaction that keeps linked records together (`keyhouse.schema.links`).

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

The first attempt of a put reads neither, if this store has seen the other record before: it commits
with the revision seen last and an absent guard as checks. They hold for as long as nobody changes
the other record. If they do not, the race is lost, and the next attempt reads both.

All of it happens in `commit`, so records can be put and deleted in any order before it. A deletion
that one commit cannot hold is a job: see `cascade_delete`.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from keyhouse.engine import Batch, Check, Put, Row, Span
from keyhouse.errors import ConflictError, DataError, KeyhouseError, LimitError, LinkError
from keyhouse.schema import NO_LINKS, BoundLink, JobState, Keys, Record
from keyhouse.store.binding import LinkedRecord
from keyhouse.store.entry import Entry
from keyhouse.store.row_buffer import LinkBuffer, Removal, RowBuffer, revision_of

_GUARD_LEASE_MS = 5_000
_PAGE_ROWS = 500
_ABSENT = {
    True: "The record that this one belongs to does not exist.",
    False: "The record that this one refers to does not exist.",
}


class LinkedRows(RowBuffer):
    """Buffers what must hold for linked records, and makes it hold in `commit`."""

    __slots__ = ()

    @abstractmethod
    async def _delete_alone(self, bound: Record[Any], key: str, keys: Keys) -> bool:
        """Buffer the deletion of a record and its derived rows; return whether it was there."""

    # Noting what a commit must check

    def _note_put(self, bound: Record[Any], before: Entry[Any] | None, after: Entry[Any]) -> None:
        linked = self.binding.links(bound)
        if linked is NO_LINKS:
            return
        noted = self._noted()
        if linked.dependents:
            noted.removed.pop(after.key, None)
            if before is None and linked.is_owner:
                noted.created[after.key] = bound
        if linked.links and not (linked.are_fixed and before is not None):
            owners = linked.owner_keys(after.record, after.values)
            if before is not None:
                was = linked.owner_keys(before.record, before.values)
                needed = noted.needed.get(after.key, {})
                owners = {
                    key: link
                    for key, link in owners.items()
                    if was.get(key) is not link or key in needed
                }
            noted.needed[after.key] = owners

    def _note_add(self, bound: Record[Any], key: str, keys: Keys) -> None:
        linked = self.binding.links(bound)
        if linked.links:
            self._noted().needed[key] = linked.owner_keys(None, keys)

    def _noted(self) -> LinkBuffer:
        if self._links is None:
            self._links = LinkBuffer()
        return self._links

    # Deleting what belongs to a record

    async def _delete_owned(self, bound: Record[Any], key: str, keys: Keys) -> None:
        """Buffer the deletion of all that belongs to a record, which is deleted as well."""
        linked = self.binding.links(bound)
        if not linked.dependents:
            return
        self._noted().removed[key] = Removal(bound, keys)
        for link in linked.dependents:
            if link.owns:
                await self._delete_dependents(link, keys)

    async def _delete_dependents(self, link: BoundLink, keys: Keys) -> None:
        found = [each async for each in self.dependents(link, keys)]
        if link.child.derived:
            await self.prefetch([key for key, _ in found])
        for key, values in found:
            await self.delete_dependent(link.child, key, values)
            if self.pending > self._engine.capabilities.commit_rows_max:
                raise LimitError(
                    "The record owns more rows than one commit holds: delete it by `Store.delete`.",
                    record=link.owner.name,
                    limit=self._engine.capabilities.commit_rows_max,
                )

    async def delete_dependent(self, child: Record[Any], key: str, values: Keys) -> None:
        """Buffer the deletion of a record that belongs to another, with all that it owns itself.

        A row that does not decode is deleted as it is: `verify` finds the rows derived from it.
        """
        try:
            if child.derived or child.legacy is not None:
                await self._delete_alone(child, key, values)
            else:
                self._writes[key] = None
                self._adds.pop(key, None)
        except DataError:
            self._writes[key] = None
        await self._delete_owned(child, key, values)

    async def dependents(self, link: BoundLink, keys: Keys) -> AsyncIterator[tuple[str, Keys]]:
        """Yield key and key values of each record that depends on another, as this transaction sees
        it."""
        seen: set[str] = set()
        for declared, span in link.spans(keys):
            async for rows in self._pages(span):
                found = [each for row in rows if (each := _dependent(link, declared, row))]
                if link.by:
                    await self.prefetch([key for key, _ in found])
                for key, values in found:
                    if key not in seen and (
                        not link.by or await self._is_linked(link, key, values, keys)
                    ):
                        seen.add(key)
                        yield key, values

    async def _pages(self, span: Span) -> AsyncIterator[list[Row]]:
        """Yield the rows of a span as this transaction sees them: buffered, then stored ones."""
        yield [
            *[
                Row(put.key, put.value, 0)
                for put in self._writes.values()
                if put and put.key in span
            ],
            *[Row(key, b"", 0) for key in self._adds if key in span],
        ]
        rest: Span | None = span
        while rest is not None:
            page = await self._engine.scan(self._space, rest, limit=_PAGE_ROWS)
            yield [row for row in page.rows if row.key not in self._writes]
            rest = rest.after(page.rows[-1].key) if page.more else None

    async def _is_linked(self, link: BoundLink, key: str, values: Keys, owner: Keys) -> bool:
        """Return whether a record that an index row leads to has the link. One that does not decode
        is taken to have it."""
        written = await self.row(key)
        if written is None:
            return False
        try:
            linked = link.owner_keys(link.child.decode(written[0], key), values)
            return link.owner.template.join(owner) in linked
        except DataError:
            return True

    # Committing

    async def check_links(self) -> None:
        """Read and check what a commit would check of linked records, without committing: `batch`
        and `changes` then have it too.

        Raises LinkError as `commit` would, and ConflictError if one of them is being deleted.
        """
        if (noted := self._links) is None:
            return
        if not await self._read_links(noted):
            raise ConflictError("A record that this one is linked to is being deleted: try again.")
        await self._reject_references(await self._unguarded(noted, {}))

    async def _commit_linked(self, noted: LinkBuffer, batch_id: str | None) -> int | None:
        self._links = None
        if not await self._read_links(noted):
            return None
        self._links = noted
        guards: dict[str, int] = {}
        try:
            while removals := await self._unguarded(noted, guards):
                if not await self._guard(removals, guards):
                    await self._release(guards)
                    return None
            revision = None
            if not self._is_contradicted():
                revision = await self._engine.commit(self._space, self.batch(batch_id))
        except Exception:
            await self._release(guards)
            raise
        if revision is None:
            await self._release(guards)
        return revision

    async def _unguarded(self, noted: LinkBuffer, guards: dict[str, int]) -> dict[str, Removal]:
        """Return the stored records with dependents that are deleted here and not yet guarded.

        One that was put before it was deleted may not have been read.
        """
        await self.prefetch([key for key in noted.removed if self._writes.get(key, "") is None])
        return {
            key: removal
            for key, removal in noted.removed.items()
            if key in self._writes
            and self._writes[key] is None
            and self._rows.get(key) is not None
            and self.binding.guard_key(removal.record, key) not in guards
        }

    def _assume_links(self, noted: LinkBuffer) -> bool:
        """Check what is linked to without reading it: that each record is at the revision seen
        last, and none is being deleted.

        Return False if one was not seen yet, or this is not a first attempt.
        """
        if not self._is_first_attempt or noted.removed:
            return False
        rows, writes, linked = self._rows, self._writes, self.binding.linked
        checks: dict[str, Check] = {} if self._assumed is None else self._assumed.copy()
        for key, bound in noted.created.items():
            if key not in rows:
                return False
            guard = self.binding.guard_key(bound, key)
            checks[guard] = Check(guard, None)
        for owners in noted.needed.values():
            for owner in owners:
                if (seen := linked.get(owner)) is None:
                    return False
                if owner not in rows and owner not in writes:
                    if checks.setdefault(owner, seen.record) != seen.record:
                        return False
                elif writes.get(owner, rows.get(owner)) is None:
                    return False
                checks[seen.guard.key] = seen.guard
        self._assumed = checks
        return True

    def _remember_linked(self, revision: int | None) -> None:
        """Keep what is known of linked records up to date after a commit, or a lost race."""
        linked = self.binding.linked
        if revision is None:
            for key in self._assumed or ():
                linked.pop(key, None)
        elif not linked.keys().isdisjoint(self._writes):
            for key in linked.keys() & self._writes.keys():
                if self._writes[key] is None:
                    del linked[key]
                else:
                    linked[key] = linked[key]._replace(record=Check(key, revision))

    async def _read_links(self, noted: LinkBuffer) -> bool:
        """Check that all records which are linked to exist, and that no new record has the key of
        one whose deletion has not ended. Return False if one of them is being deleted."""
        created = {
            key: self.binding.guard_key(bound, key)
            for key, bound in noted.created.items()
            if self._writes.get(key) is not None
        }
        needed = {
            owner: (link, key, self.binding.guard_key(link.owner, owner))
            for key, owners in noted.needed.items()
            if self._writes.get(key) is not None or key in self._adds
            for owner, link in owners.items()
        }
        guards = [guard for _, _, guard in needed.values()]
        await self.prefetch([*created, *created.values(), *needed, *guards])
        for key, guard in created.items():
            if self._rows[key] is None and await self.row(guard) is not None:
                raise ConflictError(
                    "What belonged to the deleted record of this key is still being deleted.",
                    key=key,
                )
        for owner, (link, key, guard) in needed.items():
            if await self.row(owner) is None:
                raise LinkError(
                    _ABSENT[link.owns],
                    key=key,
                    missing=owner,
                    record=link.owner.name,
                    fields=link.owner.template.parse(owner),
                )
            if not self._pass_guard(guard):
                return False
            if (row := self._rows[owner]) is not None:
                seen = LinkedRecord(Check(owner, row.revision), Check(guard, None))
                self.binding.saw_linked(owner, seen)
        return True

    def _pass_guard(self, guard: str) -> bool:
        """Return False if a deletion is under way; remove the guard of one that has died."""
        row = self._rows[guard]
        if row is None or guard in self._writes:
            return True
        if self._job_record().decode(row.value, guard).lease_until > self._now:
            return False
        self._writes[guard] = None
        return True

    async def _guard(self, removals: dict[str, Removal], guards: dict[str, int]) -> bool:
        """Commit guards for records that are deleted here, then look for dependents once more.

        Returns False if the race is lost.
        """
        await self._reject_references(removals)
        keys = {key: self.binding.guard_key(each.record, key) for key, each in removals.items()}
        await self.prefetch(list(keys.values()))
        if not all(self._pass_guard(guard) for guard in keys.values()):
            return False
        puts = [Put(guard, self._guard_value(key)) for key, guard in keys.items()]
        checks = [
            Check(each, revision_of(self._rows[each])) for pair in keys.items() for each in pair
        ]
        revision = await self._engine.commit(self._space, Batch(tuple(checks), tuple(puts)))
        if revision is None:
            return False
        for put in puts:
            guards[put.key] = revision
            self._rows[put.key] = Row(put.key, put.value, revision)
            self._writes[put.key] = None
        for key, removal in removals.items():
            if removal.job is not None:
                self._writes[keys[key]] = Put(keys[key], self._job_record().encode(removal.job))
            else:
                await self._delete_owned(removal.record, key, removal.values)
        await self._reject_references(removals)
        return True

    async def _reject_references(self, removals: dict[str, Removal]) -> None:
        for key, removal in removals.items():
            for link in self.binding.links(removal.record).dependents:
                if link.owns:
                    continue
                async for found, _ in self.dependents(link, removal.values):
                    raise LinkError(
                        "The record is still referred to:"
                        " change or delete what refers to it first.",
                        key=key,
                        example=found,
                        record=link.child.name,
                    )

    async def _release(self, guards: dict[str, int]) -> None:
        """Delete the guards of a deletion that was not committed."""
        if guards:
            checks = tuple(Check(key, revision) for key, revision in guards.items())
            with suppress(KeyhouseError):  # else their lease expires
                await self._engine.commit(self._space, Batch(checks, deletes=tuple(guards)))

    def _job_record(self) -> Record[JobState]:
        meta = self.binding.schema.meta
        assert meta is not None  # a schema with links has one
        return self.binding.record(meta.job)

    def _guard_value(self, key: str) -> bytes:
        lease = self._now + _GUARD_LEASE_MS
        return self._job_record().encode(
            JobState(owner="", lease_until=lease, started_at=self._now, cursor=key)
        )


def _dependent(link: BoundLink, declared: Any, row: Row) -> tuple[str, Keys] | None:
    """Return key and key values of the record that a row leads to; None for a row of another
    template."""
    values = declared.template.split(row.key)
    if values is None:
        return None
    if declared is link.child:
        return row.key, values
    values, key = declared.owner_at(row.key, row.value)
    return key, values
