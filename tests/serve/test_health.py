"""Readiness by system, metrics of each engine, restarts of background tasks, and logging."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
import time
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
from prometheus_client import CollectorRegistry

from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import UnavailableError
from keyhouse.http.metrics import HttpMetrics
from keyhouse.scheduling.timing import Timing
from keyhouse.serve import health, server
from keyhouse.serve.health import Health, Readiness, SystemHealth, health_routes
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.process import set_up_logs
from keyhouse.serve.server import BackgroundTasks
from keyhouse.service import metrics
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.testing.faults import FaultyEngine, fail
from keyhouse_rosey import service as rosey
from keyhouse_streamkit import service as streamkit
from tests.support.polling import until


async def fine() -> None:
    pass


async def unreachable() -> None:
    raise UnavailableError("The server does not answer.", server="secret")


async def broken() -> None:
    raise ZeroDivisionError


async def slow() -> None:
    await asyncio.Event().wait()


def test_readiness_names_the_systems_that_are_not_ready_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.05)

    async def main() -> None:
        metrics = Metrics("1")
        asked = Health(metrics)
        asked.add("one", fine, fine)
        assert await asked.readiness() == Readiness(True, {"one": SystemHealth(True)})
        asked = Health(metrics)
        for name, check in (("one", fine), ("two", unreachable), ("three", broken), ("four", slow)):
            asked.add(name, fine, check)
        found = await asked.readiness()
        assert not found.ready
        assert found.systems["one"] == SystemHealth(True)
        assert found.systems["two"] == SystemHealth(
            False, "DATABASE_ERROR", "The server does not answer."
        )
        assert found.systems["three"].code == "INTERNAL_ERROR"
        assert found.systems["four"] == SystemHealth(False, "TIMEOUT", "The check timed out.")
        assert b'keyhouse_system_ready{system="one"} 1.0' in metrics.page()
        assert b'keyhouse_system_ready{system="two"} 0.0' in metrics.page()

    asyncio.run(main())


def test_the_reason_of_a_lost_connection_is_not_hidden_by_a_slow_engine_on_it() -> None:
    """An engine on NATS waited, so the answer was a timeout although the connection was known to be
    rejected."""

    async def main() -> None:
        asked = Health(Metrics("1"))
        asked.add("playlist", slow)
        asked.add("playlist", unreachable, first=True)
        found = await asked.readiness()
        assert found.systems["playlist"].why == "The server does not answer."

    asyncio.run(main())


def test_a_system_whose_callers_all_have_tokens_is_not_ready_without_a_key(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Health(Metrics("1"))
        keys = {"jwt_algorithm": "RS256", "jwks": str(tmp_path / "none.json")}
        for system, settings in ((streamkit, keys), (rosey, {})):
            context = ServiceContext(
                engine=MemoryEngine(), data=tmp_path, metrics=CollectorRegistry(), settings=settings
            )
            part: Any = system.SERVICE(context)
            asked.add(part.name, fine, *([part.ready] if part.ready else []))
        found = await asked.readiness()
        assert found.systems["rosey"] == SystemHealth(True)
        said = "The key set cannot be read, so no token is accepted; see the log."
        assert found.systems["streamkit"] == SystemHealth(False, "DATABASE_ERROR", said)

    asyncio.run(main())


def test_readiness_is_cached_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CACHE_SECONDS", 60)

    async def main() -> None:
        asked = Health(Metrics("1"))
        calls = 0

        async def count() -> None:
            nonlocal calls
            calls += 1

        asked.add("one", count)
        assert all([(await asked.readiness()).ready for _ in range(100)])
        assert calls == 1

    asyncio.run(main())


def test_a_scrape_checks_whether_systems_are_ready() -> None:
    """`keyhouse_system_ready` was the result of the last probe of /ready, and missing without
    one."""

    async def main() -> None:
        metrics = Metrics("1")
        asked = Health(metrics)
        asked.add("one", fine)
        asked.add("two", unreachable)
        scrape = health_routes(asked, metrics)[2]
        assert scrape.path == "/metrics"
        page = (await scrape.handler()).body.decode()
        assert 'keyhouse_system_ready{system="one"} 1.0' in page
        assert 'keyhouse_system_ready{system="two"} 0.0' in page

    asyncio.run(main())


def test_metrics_are_rendered_in_a_thread_and_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: with a thousand plugins the page has 15 MB, and each scrape blocked the event
    loop for 2.7 s.
    """
    metrics, writing, most = Metrics("1"), 0, 0

    def page() -> bytes:
        nonlocal writing, most
        assert threading.current_thread() is not threading.main_thread()
        writing += 1
        most = max(most, writing)
        for _ in range(1_000):
            time.sleep(0)  # lets another thread run
        writing -= 1
        return b"page"

    async def main() -> None:
        [route] = [
            route for route in health_routes(Health(metrics), metrics) if route.path == "/metrics"
        ]
        replies = await asyncio.gather(*(route.handler() for _ in range(5)))
        assert [reply.body for reply in replies] == [b"page"] * 5

    monkeypatch.setattr(metrics, "page", page)
    asyncio.run(main())
    assert most == 1


def test_metrics_that_grow_while_they_are_collected_are_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = OperationMetrics("kv", ("get",), tenant_label="plugin")

    class Growing(Timing):
        def rising(self) -> list[tuple[str, float]]:
            tenant = f"p{len(figures.timings()['get'])}"
            figures.timing("get", tenant).add(0.001)  # as a request does meanwhile
            figures.failed(f"p{len(figures.errors())}", "CONFLICT")
            return super().rising()

    monkeypatch.setattr(metrics, "Timing", Growing)
    figures.timing("get", "first").add(0.001)
    assert len(list(figures.collect())) > 3


def test_metrics_that_grow_during_a_garbage_collection_are_collected() -> None:
    """Regression: listing the items of a dictionary may run the garbage collector, and other
    threads; the page of metrics then failed, because the dictionary had changed its size.
    """
    figures, http, grown, most = (
        OperationMetrics("kv", ("get",), tenant_label="plugin"),
        HttpMetrics(CollectorRegistry()),
        0,
        100,
    )

    def grow(phase: str, info: dict[str, int]) -> None:
        nonlocal grown
        if grown < most:
            grown += 1
            figures.timing("get", f"p{grown}")
            figures.failed("", f"E{grown}")
            http.count("GET", f"/{grown}", 200, 0.1)
            http.reject(grown)

    while grown < most:
        grow("", {})
    most += 30
    held = [
        (at, at) for at in range(5_000)
    ]  # so many pairs are kept ready by the interpreter, and begin no collection
    before = gc.get_threshold()
    gc.callbacks.append(grow)
    gc.set_threshold(5)
    try:
        for _ in chain(figures.collect(), http.collect()):
            most = grown + 30  # for the next; without an end, there would be none
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(grow)
    assert held and grown > 130


def test_every_engine_call_and_failure_is_counted() -> None:
    async def main() -> None:
        metrics = Metrics("1")
        engine = metrics.served("rosey", FaultyEngine(MemoryEngine(), fail(2, UnavailableError)))
        assert await engine.commit("s", Batch(puts=(Put("k", b"1"),))) == 1
        with pytest.raises(UnavailableError):
            await engine.commit("s", Batch(puts=(Put("k", b"2"),)))
        assert [row and row.value for row in await engine.read("s", ["k", "none"])] == [b"1", None]
        assert len((await engine.scan("s", Span("", None), limit=1)).rows) == 1
        assert [space async for space in engine.spaces()] == ["s"]
        assert await engine.sweep(limit=1) == 0
        page = metrics.page().decode()
        for call, count, failures in (("read", 1, 0), ("scan", 1, 0), ("commit", 1, 1)):
            labels = f'{{call="{call}",system="rosey"}}'
            assert f"keyhouse_engine_seconds_count{labels} {count}.0" in page
            assert f"keyhouse_engine_failures_total{labels} {failures}.0" in page
        assert 'keyhouse_build_info{version="1"} 1.0' in page
        assert "process_resident_memory_bytes" in page
        await engine.close()

    asyncio.run(main())


def test_a_task_that_fails_is_restarted_and_one_that_returns_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "RESTART_SECONDS_MAX", 0.001)
    started: list[str] = []

    async def fails_twice() -> None:
        started.append("failing")
        if len(started) < 2:
            raise ZeroDivisionError
        if len(started) < 3:
            raise UnavailableError("The server does not answer.")
        await asyncio.Event().wait()

    async def main() -> None:
        metrics = Metrics("1")
        part = ServiceSpec(name="rosey", tasks=[fails_twice, fine])
        async with BackgroundTasks([part], metrics, restart_seconds=0.001), asyncio.timeout(30):
            while not started:
                await asyncio.sleep(0)
            assert b'keyhouse_task_failures_total{system="rosey"} ' in metrics.page()
            await until(lambda: len(started) >= 3)
        assert b'keyhouse_task_failures_total{system="rosey"} 2.0' in metrics.page()

    asyncio.run(main())


def test_the_log_is_json_without_variables_of_an_error() -> None:
    program = (
        "import logging, structlog, sys; from keyhouse.serve.process import set_up_logs\n"
        "set_up_logs('info', sys.argv[1])\n"
        "def fail(secret): raise ValueError('no' + chr(27) + '[2J')\n"
        "log = structlog.get_logger()\n"
        "log.debug('unseen'); "
        "log.info('seen', number=1, odd=object, key=chr(27) + ']0;mine' + chr(7))\n"
        "logging.getLogger('library').warning('from a %s', 'library')\n"
        "try: fail('hu' + 'sh')\n"
        "except ValueError: log.exception('failed')\n"
    )
    for form in ("json", "text"):
        ran = subprocess.run(
            [sys.executable, "-c", program, form], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "" and "unseen" not in ran.stderr and "hush" not in ran.stderr
        assert "ValueError: no" in ran.stderr and "from a library" in ran.stderr
        assert "mine" in ran.stderr and not {"\x1b", "\x07"} & set(
            ran.stderr
        )  # a terminal would obey
        if form == "json":
            lines = [json.loads(line) for line in ran.stderr.splitlines()]
            assert [list(line)[:3] for line in lines] == [["time", "level", "event"]] * 3
            assert lines[0]["number"] == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_control_characters_in_log_lines_are_escaped(
    form: Literal["json", "text"],
) -> None:
    """Regression: JSON contained U+0080 to U+009F unescaped: U+009B starts a terminal sequence, as
    ESC [ does.
    """
    odd = (
        "".join(
            map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0xFEFF, 0xE0001])
        )
        + "\ud800é😀"
    )
    to = StringIO()
    before = structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level
    try:
        set_up_logs("info", form, to)
        structlog.get_logger().info("seen", key=odd)
        logging.getLogger("library").warning("%s", odd.replace("\n", ""))
    finally:
        structlog.configure(**before[0])
        logging.getLogger().handlers[:] = before[1]
        logging.getLogger().setLevel(before[2])
    lines = to.getvalue().split("\n")
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert "é😀" in lines[0] or "\\u00e9" in lines[0]
    if form == "json":
        assert json.loads(lines[0])["key"] == odd


def test_a_log_that_cannot_be_written_fails_no_request() -> None:
    """Regression: on a full disk each log line raised an error, in a request that had been done."""
    program = (
        "import logging, structlog; from keyhouse.serve.process import set_up_logs\n"
        "set_up_logs('info', 'json', open('/dev/full', 'w'))\n"
        "for _ in range(100): structlog.get_logger().info('said', text='x' * 1_000)\n"
        "logging.getLogger('library').warning('said')\n"
        "print('continued', flush=True)\n"
        "import os; os._exit(0)  # closing the file would fail too\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("continued\n", "")
