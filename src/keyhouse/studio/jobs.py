"""Long work of operators as jobs: verify, repair and delete many records, with progress and cancel.

Jobs are background operations of the Studio: they continue when the page is closed, and are listed with
their progress until they end and after.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.engine import Span
from keyhouse.errors import NotFoundError, UsageError
from keyhouse.http import HtmlPage, Redirect
from keyhouse.schema import Record
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import OperationLogLine, OperationStatus
from keyhouse.service.background_task import OperationTask
from keyhouse.store import BulkDelete, Store, verify
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.journal import Journal
from keyhouse.studio.page_routes import PageRoutes, require_unlocked
from keyhouse.studio.rendering import studio_path
from keyhouse.studio.schema import OPERATIONS
from keyhouse.studio.settings import ADMIN, NAME

VERIFY: Final = "verify"
REPAIR: Final = "repair"
DELETE: Final = "delete"
SAMPLE_ROWS: Final = 20
FINDINGS_LOGGED_MAX: Final = 500
DELETE_MAX: Final = 1_000_000
"""Most records that the page counts for a deletion."""

REPORT_SECONDS: Final = 0.25
"""Interval at which a job writes its progress, and notices that it was cancelled."""


class JobInput(msgspec.Struct):
    """The space that a job works on. `prefix` is that of the keys to delete."""

    system: str
    space: str
    prefix: str = ""


class JobList(msgspec.Struct):
    jobs: list[OperationStatus]
    cursor: str


class JobPage(msgspec.Struct):
    job: OperationStatus
    lines: list[OperationLogLine]
    is_active: bool


class JobsQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str = ""


class CancelForm(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class VerifyPage(msgspec.Struct):
    system: str
    engine: str
    space: str


class VerifyForm(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["verify", "repair"]


class DeleteQuery(msgspec.Struct, forbid_unknown_fields=True):
    prefix: str = ""


class DeleteForm(msgspec.Struct, forbid_unknown_fields=True):
    prefix: str
    count: str = ""


class DeletePage(msgspec.Struct, kw_only=True):
    """`count` records have a key with the prefix; `sample` are the first of them."""

    system: str
    engine: str
    space: str
    prefix: str
    count: int
    sample: list[str]
    error: str = ""


class Jobs:
    def __init__(
        self, store: Store, catalog: SystemCatalog, journal: Journal, pages: PageRoutes
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._journal = journal
        self._pages = pages
        self.operations = BackgroundOperations(
            store,
            OPERATIONS,
            {
                VERIFY: OperationKind(run=self._verify),
                REPAIR: OperationKind(run=self._repair),
                DELETE: OperationKind(run=self._delete),
            },
            name=NAME,
        )

    # Pages

    async def list_page(self, query: JobsQuery, caller: Caller) -> JobList:
        """List the jobs, the newest first."""
        page = await self._store.page(
            OPERATIONS.status, limit=50, cursor=query.cursor or None, reverse=True
        )
        return JobList([entry.record for entry in page.entries], page.cursor or "")

    async def page(self, id: str, caller: Caller) -> JobPage:
        """One job with its log."""
        job = await self._store.get(OPERATIONS.status, id=id)
        if job is None:
            raise NotFoundError("No such job.", id=id)
        lines = await self._store.page(OPERATIONS.log, limit=FINDINGS_LOGGED_MAX, id=id)
        return JobPage(
            job, [entry.record for entry in lines.entries], job.status in ("pending", "running")
        )

    async def cancel(self, form: CancelForm, caller: Caller) -> Redirect:
        """Cancel a job; what it has committed stays."""
        if await self.operations.cancel(form.id):
            await self._journal.write(caller.tenant, "cancel job", detail=form.id)
        return Redirect(studio_path("jobs", form.id))

    async def verify_page(self, system: str, space: str, caller: Caller) -> VerifyPage:
        """Verify a space, and repair what is found."""
        found = self._catalog.system(system)
        self._catalog.stores(found, space)
        return VerifyPage(system, found.engine, space)

    async def start_verify(
        self, system: str, space: str, form: VerifyForm, caller: Caller
    ) -> Redirect:
        """Start to verify or repair."""
        if form.action == REPAIR:
            require_unlocked(caller, ADMIN)
        self._catalog.stores(self._catalog.system(system), space)
        return await self._submit(form.action, JobInput(system, space), caller)

    async def delete_page(
        self, system: str, space: str, query: DeleteQuery, caller: Caller
    ) -> DeletePage:
        """Count what a deletion would delete, with a sample."""
        found = self._catalog.system(system)
        page = DeletePage(
            system=system,
            engine=found.engine,
            space=space,
            prefix=query.prefix,
            count=0,
            sample=[],
        )
        if not query.prefix:
            return page
        for store in self._catalog.stores(found, space):
            async for row in store.row_scan(Span.prefix(query.prefix), keys_only=True):
                match = store.schema.find(row.key)
                if match is None or not isinstance(match.declared, Record):
                    continue
                page.count += 1
                if len(page.sample) < SAMPLE_ROWS:
                    page.sample.append(row.key)
                if page.count >= DELETE_MAX:
                    break
        return page

    async def start_delete(
        self, system: str, space: str, form: DeleteForm, caller: Caller
    ) -> HtmlPage | Redirect:
        """Start to delete records by prefix, once their number was typed."""
        if not form.prefix:
            raise UsageError("Give the prefix of the keys to delete.")
        page = await self.delete_page(system, space, DeleteQuery(form.prefix), caller)
        if form.count.replace(",", "").strip() != str(page.count):
            page.error = f"Type the number of records, {page.count}, to confirm."
            here = studio_path(system, space, "bulk", prefix=form.prefix)
            return self._pages.render("bulk.html", caller, page, here=here, status=400)
        return await self._submit(DELETE, JobInput(system, space, form.prefix), caller)

    async def _submit(self, kind: str, given: JobInput, caller: Caller) -> Redirect:
        id = await self.operations.submit(
            kind, msgspec.to_builtins(given), created_by=caller.tenant
        )
        await self._journal.write(
            caller.tenant, kind, system=given.system, space=given.space, detail=given.prefix
        )
        return Redirect(studio_path("jobs", id))

    # Work

    def _stores(self, task: OperationTask) -> tuple[JobInput, list[Store]]:
        given = msgspec.convert(task.input, JobInput)
        return given, self._catalog.stores(self._catalog.system(given.system), given.space)

    async def _verify(self, task: OperationTask) -> None:
        await self._check(task, repair=False)

    async def _repair(self, task: OperationTask) -> None:
        await self._check(task, repair=True)

    async def _check(self, task: OperationTask, *, repair: bool) -> None:
        _, stores = self._stores(task)
        counts = {"read": 0, "found": 0, "repaired": 0}

        def progress(rows: int) -> None:
            counts["read"] = rows

        async def work() -> None:
            for store in stores:
                async for finding in verify(store, repair=repair, on_progress=progress):
                    counts["found"] += 1
                    counts["repaired"] += finding.repaired
                    if counts["found"] <= FINDINGS_LOGGED_MAX:
                        state = " (repaired)" if finding.repaired else ""
                        task.log(f"{finding.kind} {finding.key} {finding.detail}{state}", "warn")

        running = asyncio.create_task(work())
        await _report(task, running, lambda: counts["read"], running.cancel)
        task.log("{read:,} rows read, {found:,} findings, {repaired:,} repaired.".format(**counts))
        await task.commit(current=counts["read"])

    async def _delete(self, task: OperationTask) -> None:
        given, stores = self._stores(task)
        done = 0

        def progress(records: int) -> None:
            nonlocal done
            done = records

        for store in stores:
            deletion = BulkDelete(store.schema, store.engine, store.space, progress)
            running = asyncio.create_task(deletion.run(Span.prefix(given.prefix)))
            await _report(task, running, lambda: done, deletion.stop)
            result = running.result()
            task.log(f"{result.records:,} records deleted, {result.left:,} unreadable ones left.")
            await task.commit(current=result.records)


async def _report(
    task: OperationTask,
    running: "asyncio.Task[Any]",
    current: Callable[[], int],
    stop: Callable[[], object],
) -> None:
    """Commit the progress of running work until it ends. A cancelled job stops the work first."""
    try:
        while not running.done():
            await asyncio.wait([running], timeout=REPORT_SECONDS)
            await task.commit(current=current())
    except BaseException:
        stop()
        await asyncio.wait([running])
        raise
    running.result()
