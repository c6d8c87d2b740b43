"""Migrations, index builds, sweeps and moves on the pages; slow operations; use of a space."""

import asyncio
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from keyhouse import Store
from keyhouse.clock import SystemClock
from keyhouse.demo.clips import BOARD, CLIP, NEXT_BOARD, Clip
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http.metrics import HttpMetrics
from keyhouse.schema import JobState
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.rates import RateLimiter
from keyhouse.service.usage import Quota
from keyhouse.store import MARK_SPACE, build_indexes
from keyhouse.studio.overview import OperationRates
from tests.studio.support.jobs import ended, running_jobs
from tests.studio.support.library import BOOK, Book, library
from tests.support.polling import until

MAIN = "/studio/library/main"


def test_a_space_is_migrated_and_its_version_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path, schema=NEXT_BOARD) as served, running_jobs(served):
            old = Store(BOARD, served.engine, "main")
            for number in range(30):
                clip = Clip(id=f"{number:04d}", title=f"T{number}", second=1, viewer="A", tags=[])
                await old.put(CLIP, clip)
            async with served.signed_in(unlocked=True) as client:
                state = (await client.get(f"{MAIN}/verify.json")).json()["state"]
                assert (state["version"], state["known"]) == (0, 1)
                assert state["pending"] == ["1: List clips by viewer."]
                form = {"action": "migrate"}
                done = await ended(client, await client.post(f"{MAIN}/verify", data=form))
                assert "30 records" in str(done["lines"]), done
                state = (await client.get(f"{MAIN}/verify.json")).json()["state"]
                assert (state["version"], state["pending"]) == (1, [])
                form = {"action": "index"}
                done = await ended(client, await client.post(f"{MAIN}/verify", data=form))
                assert done["job"]["status"] == "completed"
                state = (await client.get(f"{MAIN}/verify.json")).json()["state"]
                assert state["missing"] == []

    asyncio.run(main())


def test_jobs_of_other_programs_and_moves_are_listed(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path, schema=NEXT_BOARD) as served:
            now = served.engine.clock.now()
            assert NEXT_BOARD.meta is not None
            await build_indexes(served.store, again=True)
            indexes = await served.store.get(NEXT_BOARD.meta.job, name="indexes")
            assert indexes is not None and indexes.finished  # a list, and no work
            for name, lease in (("migrate-1", now + 60_000), ("build-x", 0)):
                state = JobState(owner="a", lease_until=lease, started_at=now, done=7, changed=21)
                await served.store.put(NEXT_BOARD.meta.job, state, name=name)
            mark = msgspec.json.encode({"source": "sqlite:old.db", "started": now})
            await served.engine.commit(MARK_SPACE, Batch(puts=(Put("move", mark),)))
            async with served.signed_in("studio:read") as client:
                page = (await client.get("/studio/jobs.json")).json()
                found = {each["name"]: each for each in page["store_jobs"]}
                assert found.keys() == {"migrate-1", "build-x"}
                assert found["migrate-1"]["is_running"]
                assert found["migrate-1"]["done"] == 7
                assert not found["build-x"]["is_running"]
                assert page["is_complete"]
                assert page["systems"][0]["move_from"] == "sqlite:old.db"
                text = (await client.get("/studio/jobs")).text
                assert "interrupted" in text
                assert "sqlite:old.db" in text
                spaces = (await client.get("/studio/library/index.json")).json()["spaces"]
                assert [each["name"] for each in spaces] == ["main"]

    asyncio.run(main())


def test_expired_rows_are_swept_by_a_job(tmp_path: Path) -> None:
    async def main() -> None:
        async with library(tmp_path) as served, running_jobs(served):
            await served.store.put(BOOK, Book("b1", "T", "lem"), ttl=0.01)

            async def is_expired() -> bool:
                return await served.store.get(BOOK, id="b1") is None

            await until(is_expired)
            async with served.signed_in(unlocked=True) as client:
                form = {"action": "sweep"}
                done = await ended(client, await client.post(f"{MAIN}/verify", data=form))
                assert "expired rows deleted" in str(done["lines"])
                assert done["job"]["current"] >= 1
            async with served.signed_in("studio:admin") as locked:
                answer = await locked.post(f"{MAIN}/verify", data={"action": "sweep"})
                assert answer.status_code == 403

    asyncio.run(main())


def test_operations_per_second_are_those_since_the_last_look() -> None:
    now = 100.0
    rates = OperationRates(lambda: now)
    assert rates.rate("library", 5) == 0.0, "too soon"
    now += 10
    assert rates.rate("library", 50) == 5.0, "since the start"
    now += 0.5
    assert rates.rate("library", 90) == 5.0
    now += 1.5
    assert rates.rate("library", 90) == 20.0
    assert rates.rate("other", 24) == 2.0


def test_slow_operations_and_the_use_of_a_space_are_shown(tmp_path: Path) -> None:
    async def main() -> None:
        metrics = OperationMetrics("test", ["set", "get"], tenant_label="plugin")
        log = OperationLog("test", 0.1)
        rates = RateLimiter(5, burst=10, clock=SystemClock())
        figures = OperatorFigures(metrics, log, Quota(keys=100, bytes=0), rates)
        metrics.timing("set", "main").add(0.004)
        metrics.timing("set", "other").add(0.004)
        metrics.failed("main", "VALIDATION_ERROR")
        log.done("set", "main", 0.25, {"key": "<b>slow</b>"})
        log.done("set", "main", 0.05, {"key": "fast"})
        engine = MemoryEngine(SystemClock())
        async with library(tmp_path, engine, figures=figures) as served:
            await served.store.put(BOOK, Book("b1", "T", "lem"))
            requests = HttpMetrics(CollectorRegistry())
            for status, seconds in ((200, 0.004), (200, 0.3), (503, 0.004)):
                requests.count("GET", "/library/books/{id}", status, seconds)
            requests.count("GET", "/studio/slow", 200, 0.004)
            served.studio.show_requests(requests)
            async with served.signed_in() as client:
                page = (await client.get("/studio/slow.json")).json()
                [route] = page["requests"]
                assert (route["system"], route["call"]) == ("library", "GET /library/books/{id}")
                assert (route["count"], route["failures"], route["slow"]) == (3, 1, 1)
                [slow] = page["slow"]
                assert slow["milliseconds"] == 250
                assert slow["what"] == "key=<b>slow</b>"
                [figure] = page["operations"]
                assert (figure["call"], figure["count"], figure["p99_ms"]) == ("set", 2, 5.0)
                assert "&lt;b&gt;slow" in (await client.get("/studio/slow")).text
                use = (await client.get(f"{MAIN}/index.json")).json()["use"]
                assert use["operations"][0]["count"] == 1
                assert use["errors"] == {"VALIDATION_ERROR": 1}
                assert (use["quota_keys"], use["quota_bytes"]) == (100, None)
                assert use["rate"] == {"per_second": 5, "burst": 10, "left": 10}
                text = (await client.get(f"{MAIN}/")).text
                assert "100 keys" in text
                landing = (await client.get("/studio/index.json")).json()
                assert landing["systems"][0]["size"]["rows"] == 3

    asyncio.run(main())
