"""Running and awaiting jobs of the Studio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from keyhouse.service.background_task import OperationTask
from tests.studio.support.library import Library
from tests.support.polling import until


@asynccontextmanager
async def running_jobs(served: Library) -> AsyncIterator[None]:
    """Run the tasks of the Studio, as the server does."""
    started = asyncio.gather(*(task() for task in served.studio.spec().tasks))
    try:
        yield
    finally:
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)


def cancellation_noticed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when a job notices that it was cancelled."""
    noticed, commit = asyncio.Event(), OperationTask.commit

    async def noticing(task: OperationTask, *arguments: Any, **options: Any) -> Any:
        try:
            return await commit(task, *arguments, **options)
        except BaseException:
            noticed.set()
            raise

    monkeypatch.setattr(OperationTask, "commit", noticing)
    return noticed


def job_id(answer: httpx.Response) -> str:
    """Return the id of the job that a form has started."""
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("=")[2]


async def ended(client: httpx.AsyncClient, answer: httpx.Response) -> dict[str, Any]:
    """Return the page of the job that a form has started, once it has ended."""
    id = job_id(answer)

    async def page() -> dict[str, Any] | None:
        page = dict((await client.get("/studio/job.json", params={"id": id})).json())
        return None if page["is_active"] else page

    return await until(page)
