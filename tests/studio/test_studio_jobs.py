"""Verify, repair and bulk deletion as jobs; durations; export."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from keyhouse import open_engine
from keyhouse.clock import SystemClock, UlidSource
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.service.served_engine import ServedEngine
from tests.studio.support.jobs import cancellation_noticed, ended, job_id, running_jobs
from tests.studio.support.library import BOOK, Library, fill, library, send
from tests.support.polling import until

MAIN = "/studio/library/main"


def run(data: Path, scenario: Callable[[Library], Awaitable[None]], books: int = 3) -> None:
    async def main() -> None:
        async with library(data) as served:
            await fill(served.store, books)
            async with running_jobs(served):
                await scenario(served)

    asyncio.run(main())


def test_a_broken_index_is_found_and_repaired(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        batch = Batch(puts=(Put("by-author:nobody:b9", b"1"),), deletes=("by-author:lem:b000",))
        await served.engine.commit("main", batch)
        async with served.signed_in(unlocked=True) as client:
            page = await ended(
                client, await client.post(f"{MAIN}/verify", data={"action": "verify"})
            )
            text = str(page["lines"])
            assert "missing by-author:lem:b000" in text
            assert "dangling by-author:nobody:b9" in text
            assert "(repaired)" not in text
            await ended(client, await client.post(f"{MAIN}/verify", data={"action": "repair"}))
            page = await ended(
                client, await client.post(f"{MAIN}/verify", data={"action": "verify"})
            )
            assert "0 findings" in str(page["lines"])

    run(tmp_path, scenario)


def test_records_are_deleted_by_prefix_once_their_number_is_typed(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in(unlocked=True) as client:
            page = (await client.get(f"{MAIN}/bulk.json", params={"prefix": "book:b00"})).json()
            assert page["counted"]["count"] == 10
            assert page["can_undo"]
            form = {"prefix": "book:b00", "count": "9"}
            wrong = await send(client, f"{MAIN}/bulk", form)
            assert wrong.status_code == 400
            assert "Type the number of records, 10" in wrong.text
            done = await send(client, f"{MAIN}/bulk", form | {"count": "10"})
            journal = (await client.get("/studio/journal")).text
            assert f'href="/studio/job?id={job_id(done)}">job' in journal
            page = await ended(client, done)
            assert "10 records deleted" in str(page["lines"])
            assert await served.store.count(BOOK) == 2
            keys = (await served.store.row_page()).rows
            assert not [row.key for row in keys if row.key.endswith("b003")]

    run(tmp_path, scenario, books=12)


def test_a_deletion_is_cancelled_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Library) -> None:
        commit, noticed = served.engine.commit, cancellation_noticed(monkeypatch)

        async def slow(space: str, batch: Batch) -> int | None:
            if space == served.store.space and await served.store.count(BOOK) < 2_000:
                await noticed.wait()
            return await commit(space, batch)

        served.engine.commit = slow  # type: ignore[method-assign]
        async with served.signed_in(unlocked=True) as client:
            form = {"prefix": "book:", "count": "2000"}
            answer = await send(client, f"{MAIN}/bulk", form)
            assert answer.status_code == 303
            id = job_id(answer)

            async def has_started() -> bool:
                return await served.store.count(BOOK) < 2_000

            await until(has_started)
            await send(client, "/studio/job", {"id": id, "action": "cancel"})
            page = await ended(client, answer)
            assert page["job"]["error"] == "cancelled"
            lines = (await client.get("/studio/journal.json")).json()["lines"]
            named = {line["action"]: line["job"] for line in lines if line["job"]}
            assert named == {"start delete": id, "cancel job": id}
            assert 0 < await served.store.count(BOOK) < 2_000

    run(tmp_path, scenario, books=2_000)


def test_durations_of_engine_calls_are_shown(tmp_path: Path) -> None:
    async def main() -> None:
        engine = ServedEngine(MemoryEngine(SystemClock()))
        async with library(tmp_path, engine) as served:
            await fill(served.store)
            async with served.signed_in("studio:read") as client:
                page = (await client.get("/studio/slow.json")).json()
                calls = {each["call"]: each for each in page["calls"]}
                assert calls["commit"]["count"] == 4
                assert calls["commit"]["p99_ms"] is not None
                landing = (await client.get("/studio/index.json")).json()
                assert landing["systems"][0]["operations"] > 4

    asyncio.run(main())


def test_a_table_is_exported_as_json_lines_without_private_members(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            params = {"record": "book", "q": "author=lem"}
            answer = await client.get(f"{MAIN}/export", params=params)
            assert answer.headers["content-type"] == "application/jsonl"
            lines = [msgspec.json.decode(line) for line in answer.text.splitlines()]
            assert [line["key"] for line in lines] == ["book:b000", "book:b002"]
            assert "secret friend" not in answer.text

    run(tmp_path, scenario)


def test_a_change_that_is_cancelled_while_it_is_committed_can_be_undone(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path) as served:
            await fill(served.store)
            commit = served.engine.commit
            committing, cancelled = asyncio.Event(), asyncio.Event()

            async def slow(space: str, batch: Batch) -> int | None:
                revision = await commit(space, batch)
                committing.set()
                await cancelled.wait()
                return revision

            served.engine.commit = slow  # type: ignore[method-assign]
            changes = served.studio.changes
            deleting = asyncio.ensure_future(
                changes.delete("ann", "library", "main", "book:b000", "x")
            )
            await committing.wait()
            deleting.cancel()
            cancelled.set()
            await asyncio.gather(deleting, return_exceptions=True)
            assert deleting.cancelled()
            assert await served.store.get(BOOK, id="b000") is None
            async with served.signed_in(unlocked=True) as client:
                [line] = [
                    each
                    for each in (await client.get("/studio/journal.json")).json()["lines"]
                    if each["action"] == "delete"
                ]
                assert line["revision"] is not None
                await served.studio.journal.write("ann", "save", system="library", key="book:x")
                assert "outcome unknown" in (await client.get("/studio/journal")).text
                answer = await client.post("/studio/journal", data={"id": line["id"]})
                assert answer.status_code == 303
            assert await served.store.get(BOOK, id="b000") is not None

    asyncio.run(main())


def test_a_journal_line_without_its_job_is_shown_with_its_text(tmp_path: Path) -> None:
    """Lines had the id of their job in their text only."""

    async def main() -> None:
        own = await open_engine("memory:")
        id = UlidSource(own.clock).new()
        line = {"id": id, "at": 1, "operator": "ann", "action": "verify", "detail": f"job {id}"}
        row = msgspec.json.encode(line)
        await own.commit("studio", Batch(puts=(Put(f"journal:{id}", row),)))
        async with library(tmp_path, own=own) as served, served.signed_in() as client:
            lines = (await client.get("/studio/journal.json")).json()["lines"]
            assert [each["job"] for each in lines if each["id"] == id] == [""]
            journal = (await client.get("/studio/journal")).text
            assert f"job {id}" in journal
            assert f"/studio/job?id={id}" not in journal

    asyncio.run(main())
