"""Jobs of operators: long work that continues when the page is closed, with progress and cancel."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import NotFoundError
from keyhouse.http import Redirect
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import OperationLogLine, OperationStatus
from keyhouse.store import Store
from keyhouse.studio.job_work import FINDINGS_LOGGED_MAX, JobInput, JobKind
from keyhouse.studio.journal import Journal
from keyhouse.studio.page_routes import require_unlocked
from keyhouse.studio.rendering import studio_path
from keyhouse.studio.schema import OPERATIONS
from keyhouse.studio.settings import ADMIN, NAME
from keyhouse.studio.store_jobs import StoreJobLine, StoreJobs, SystemUpkeep


class JobList(msgspec.Struct):
    """`jobs` were started here. `store_jobs` are migrations and other work that any program has
    under way in a space; `systems` are the sweeps and moves of each system."""

    jobs: list[OperationStatus]
    cursor: str
    store_jobs: list[StoreJobLine]
    is_complete: bool
    systems: list[SystemUpkeep]


class JobPage(msgspec.Struct):
    """`can_undo`: the journal has what the job deleted."""

    job: OperationStatus
    lines: list[OperationLogLine]
    is_active: bool
    can_undo: bool


class JobsQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str = ""


class JobQuery(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class JobForm(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["cancel", "undo"]


class Jobs:
    def __init__(
        self,
        store: Store,
        journal: Journal,
        store_jobs: StoreJobs,
        kinds: Mapping[str, OperationKind],
    ) -> None:
        self._store = store
        self._journal = journal
        self._store_jobs = store_jobs
        self.operations = BackgroundOperations(store, OPERATIONS, kinds, name=NAME)

    async def list_page(self, query: JobsQuery, caller: Caller) -> JobList:
        """List the jobs, the newest first, and what else is under way in the stores."""
        page = await self._store.page(
            OPERATIONS.status, limit=50, cursor=query.cursor or None, reverse=True
        )
        lines, is_complete = await self._store_jobs.lines()
        return JobList(
            [entry.record for entry in page.entries],
            page.cursor or "",
            lines,
            is_complete,
            await self._store_jobs.systems(),
        )

    async def page(self, query: JobQuery, caller: Caller) -> JobPage:
        """One job with its log."""
        job = await self._job(query.id)
        lines = await self._store.page(OPERATIONS.log, limit=FINDINGS_LOGGED_MAX, id=query.id)
        is_active = job.status in ("pending", "running")
        return JobPage(
            job,
            [entry.record for entry in lines.entries],
            is_active,
            job.type == "delete" and not is_active and await self._has_lines(query.id),
        )

    async def change(self, query: JobQuery, form: JobForm, caller: Caller) -> Redirect:
        """Cancel a job, or undo it in an unlocked session."""
        if form.action == "undo":
            require_unlocked(caller, ADMIN)
            return await self._undo(query.id, caller)
        if await self.operations.cancel(query.id):
            await self._journal.write(caller.tenant, "cancel job", job=query.id)
        return job_page(query.id)

    async def _undo(self, id: str, caller: Caller) -> Redirect:
        """Put back the records that a job deleted, where nobody has written them since."""
        job = await self._job(id)
        if job.type != "delete" or not await self._has_lines(id):
            raise NotFoundError("The journal has nothing that this job deleted.", id=id)
        return await self.submit("undo", JobInput("", of=id, total=job.current), caller)

    async def submit(self, kind: JobKind, given: JobInput, caller: Caller) -> Redirect:
        """Start a job, and lead to its page."""
        id = await self.operations.submit(
            kind, msgspec.to_builtins(given), created_by=caller.tenant
        )
        text = f"of {given.of}" if given.of else given.about
        await self._journal.write(
            caller.tenant,
            f"start {kind}",
            system=given.system,
            space=given.space,
            detail=text,
            job=id,
        )
        return job_page(id)

    async def _job(self, id: str) -> OperationStatus:
        job = await self._store.get(OPERATIONS.status, id=id)
        if job is None:
            raise NotFoundError("No such job.", id=id)
        return job

    async def _has_lines(self, id: str) -> bool:
        async for _ in self._journal.of_job(id):
            return True
        return False


def job_page(id: str) -> Redirect:
    return Redirect(studio_path("job", id=id))
