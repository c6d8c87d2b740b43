"""The work of jobs: verify, repair, migrate, build indexes, sweep, delete many records, undo that.

Jobs are background operations: they report their progress, can be cancelled, and keep what they
have committed until then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from keyhouse.errors import KeyhouseError, LinkError, RevisionError, UsageError
from keyhouse.schema import Derived, Migration, Record
from keyhouse.service.background_operations import OperationKind
from keyhouse.service.background_task import OperationTask
from keyhouse.service.pages.text import counted
from keyhouse.store import BulkDelete, Finding, Store, build_indexes, migrate, sweep, verify
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.change import Changes
from keyhouse.studio.journal import Journal
from keyhouse.studio.private_keys import KeyView
from keyhouse.studio.rendering import hidden_members
from keyhouse.studio.selection import RecordSelection, SelectedRecords

JobKind = Literal["verify", "repair", "migrate", "index", "sweep", "delete", "undo"]

FINDINGS_LOGGED_MAX: Final = 500
UNDO_RECORDS_MAX: Final = 1_000
"""Most records that a job deletes one by one, each with a journal line that can be undone."""

REPORT_SECONDS: Final = 0.25
"""Interval at which a job writes its progress, and notices that it was cancelled."""


class JobInput(msgspec.Struct):
    """The input of a job: a space. `selection` are the records to delete, `total` of them; `about`
    describes it without private members. `of` is the job to undo."""

    system: str
    space: str = ""
    selection: RecordSelection = msgspec.field(default_factory=RecordSelection)
    total: int = 0
    of: str = ""
    about: str = ""

    @property
    def text(self) -> str:
        if self.of:
            return f"What job {self.of} deleted."
        where = f"{self.system} / {self.space}" if self.space else self.system
        return f"{where}: {self.about}" if self.about else where


class JobWork:
    def __init__(self, catalog: SystemCatalog, journal: Journal, changes: Changes) -> None:
        self._catalog = catalog
        self._journal = journal
        self._changes = changes

    def kinds(self) -> Mapping[str, OperationKind]:
        works: dict[JobKind, Callable[[OperationTask, JobInput], Awaitable[None]]] = {
            "verify": self._verify,
            "repair": self._repair,
            "migrate": self._migrate,
            "index": self._index,
            "sweep": self._sweep,
            "delete": self._delete,
            "undo": self._undo,
        }
        return {kind: OperationKind(run=_run(work)) for kind, work in works.items()}

    # Upkeep of a space

    async def _verify(self, task: OperationTask, given: JobInput) -> None:
        await self._check(task, given, repair=False)

    async def _repair(self, task: OperationTask, given: JobInput) -> None:
        await self._check(task, given, repair=True)

    async def _check(self, task: OperationTask, given: JobInput, *, repair: bool) -> None:
        counts = {"read": 0, "found": 0, "repaired": 0}

        def progress(rows: int) -> None:
            counts["read"] = rows

        async def work() -> None:
            for store in self._stores(given):
                view = KeyView([store])
                async for finding in verify(store, repair=repair, on_progress=progress):
                    counts["found"] += 1
                    counts["repaired"] += finding.repaired
                    if counts["found"] <= FINDINGS_LOGGED_MAX:
                        task.log(_finding_text(finding, view), "warn")

        await _report(task, work(), lambda: counts["read"])
        task.log(
            f"{counted(counts['read'], 'row')} read, {counted(counts['found'], 'finding')},"
            f" {counts['repaired']:,} repaired."
        )
        await task.commit(current=counts["read"])

    async def _migrate(self, task: OperationTask, given: JobInput) -> None:
        done = 0

        def progress(migration: Migration, records: int) -> None:
            nonlocal done
            done = records

        for store in self._stores(given):
            if store.schema.meta is None:
                continue
            results = await _report(task, migrate(store, on_progress=progress), lambda: done)
            for each in results:
                task.log(
                    f"Migration {each.migration.id}, {each.migration.description}: "
                    f"{counted(each.records, 'record')}, {counted(each.rows, 'row')} written."
                )
        await task.commit(current=done)

    async def _index(self, task: OperationTask, given: JobInput) -> None:
        done = 0

        def progress(record: Record[Any], derived: Derived, records: int) -> None:
            nonlocal done
            done = records

        for store in self._stores(given):
            if store.schema.meta is None:
                continue
            built = await _report(task, build_indexes(store, on_progress=progress), lambda: done)
            for record, derived, records in built:
                task.log(f"{derived.template.text} of {record.name}: {counted(records, 'record')}.")
        await task.commit(current=done)

    async def _sweep(self, task: OperationTask, given: JobInput) -> None:
        swept = 0

        def progress(rows: int) -> None:
            nonlocal swept
            swept = rows

        for engine in self._catalog.system(given.system).engines:
            rows = await _report(task, sweep(engine, on_progress=progress), lambda: swept)
            task.log(f"{counted(rows, 'expired row')} deleted.")
        await task.commit(current=swept)

    # Many records

    async def _delete(self, task: OperationTask, given: JobInput) -> None:
        selected = SelectedRecords(
            self._catalog,
            self._catalog.system(given.system),
            given.space,
            given.selection,
            to_write=True,
        )
        if given.total <= UNDO_RECORDS_MAX:
            await self._delete_each(task, given, selected)
        else:
            await self._delete_groups(task, given, selected)

    async def _delete_each(
        self, task: OperationTask, given: JobInput, selected: SelectedRecords
    ) -> None:
        """Delete records one by one, so that the journal has each and can put it back."""
        keys = [key async for _, key in selected.records()]
        deleted = 0

        async def work() -> None:
            nonlocal deleted
            for key in keys:
                deleted += await self._deleted(task, given, key)

        await _report(task, work(), lambda: deleted, total=len(keys))
        task.log(f"{counted(deleted, 'record')} deleted. Undo puts back what was deleted.")
        await task.commit(current=deleted)

    async def _deleted(self, task: OperationTask, given: JobInput, key: str) -> bool:
        """Delete one record as it is; try again if somebody writes it meanwhile."""
        while True:
            try:
                return await self._changes.delete(
                    task.created_by, given.system, given.space, key, task.id
                )
            except RevisionError:
                continue
            except LinkError as error:
                shown = KeyView(self._stores(given)).key(key)
                task.log(f"{shown} stays: {error.sentence}", "warn")
                return False

    async def _delete_groups(
        self, task: OperationTask, given: JobInput, selected: SelectedRecords
    ) -> None:
        """Delete records in groups that share a commit."""
        done = before = 0

        def progress(records: int) -> None:
            nonlocal done
            done = before + records

        for store in self._catalog.stores(self._catalog.system(given.system), given.space):
            deletion = BulkDelete(
                store.schema, store.engine, store.space, progress, key_ring=store.key_ring
            )
            result = await _report(
                task,
                deletion.run_keys(_of(store, selected)),
                lambda: done,
                stop=deletion.stop,
                total=given.total,
            )
            before += result.records
            if result.records or result.left:
                task.log(
                    f"{counted(result.records, 'record')} deleted,"
                    f" {counted(result.left, 'unreadable one')} left."
                )
        await task.commit(current=before)

    async def _undo(self, task: OperationTask, given: JobInput) -> None:
        undone = kept = 0

        async def work() -> None:
            nonlocal undone, kept
            async for line in self._journal.of_job(given.of):
                try:
                    await self._changes.undo(task.created_by, line, task.id)
                    undone += 1
                except (RevisionError, LinkError, UsageError) as error:
                    kept += 1
                    shown = self._journal.shown_key(line)
                    task.log(f"{shown}: {error.sentence}", "warn")

        await _report(task, work(), lambda: undone, total=given.total)
        task.log(f"{counted(undone, 'record')} put back, {kept:,} not.")
        await task.commit(current=undone)

    def _stores(self, given: JobInput) -> list[Store]:
        return self._catalog.stores(self._catalog.system(given.system), given.space)


def _finding_text(finding: Finding, view: KeyView) -> str:
    """Return a finding for the log, without private members: its detail may be an error about
    them."""
    key, match = view.key(finding.key), view.find(finding.key)
    is_open = key == finding.key and (
        finding.kind != "unreadable" or match is None or not hidden_members(match.record.declared)
    )
    detail = f" {finding.detail}" if is_open else ""
    return f"{finding.kind} {key}{detail}{' (repaired)' if finding.repaired else ''}"


async def _of(store: Store, selected: SelectedRecords) -> AsyncIterator[str]:
    """Yield the keys of the selected records that are of this store's schema."""
    async for match, key in selected.records():
        if match.schema is store.schema:
            yield key


def _run(
    work: Callable[[OperationTask, JobInput], Awaitable[None]],
) -> Callable[[OperationTask], Awaitable[None]]:
    async def run(task: OperationTask) -> None:
        given = msgspec.convert(task.input, JobInput)
        task.log(given.text)
        await work(task, given)

    return run


async def _report(
    task: OperationTask,
    work: Any,
    current: Callable[[], int],
    *,
    stop: Callable[[], object] | None = None,
    total: int = 0,
) -> Any:
    """Commit the progress of work until it ends, and return its result. A cancelled job ends the
    work first: by `stop`, or between two of its steps."""
    running = asyncio.ensure_future(work)
    try:
        while not running.done():
            await asyncio.wait([running], timeout=REPORT_SECONDS)
            await task.commit(current=current(), total=total)
    except BaseException:
        (stop or running.cancel)()
        await asyncio.wait([running])
        raise
    try:
        return running.result()
    except KeyhouseError as error:
        task.log(f"Failed: {error.sentence}", "error")
        raise
