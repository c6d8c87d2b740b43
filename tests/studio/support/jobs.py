"""Running and awaiting jobs of the Studio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.studio.support.library import Library


@asynccontextmanager
async def running_jobs(served: Library) -> AsyncIterator[None]:
    """Run the tasks of the Studio, as the server does."""
    [task] = served.studio.spec().tasks
    started = asyncio.ensure_future(task())
    try:
        yield
    finally:
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)


def job_id(answer: httpx.Response) -> str:
    """Return the id of the job that a form has started."""
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("=")[2]


async def ended(client: httpx.AsyncClient, answer: httpx.Response) -> dict[str, Any]:
    """Return the page of the job that a form has started, once it has ended."""
    id = job_id(answer)
    async with asyncio.timeout(20):
        while True:
            page = (await client.get("/studio/job.json", params={"id": id})).json()
            if not page["is_active"]:
                return dict(page)
            await asyncio.sleep(0.05)
