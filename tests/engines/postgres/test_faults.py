"""PostgreSQL faults: terminated connections, a killed server, disconnected listeners. No
acknowledged write is lost, watches have no gap, and the engine recovers by itself."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from keyhouse.engine import Add, Batch, Change, Engine, Put, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.engines.postgres.feed import Feed
from keyhouse.errors import EngineError, UnavailableError, UnknownOutcomeError
from keyhouse.testing.conformance.harness import leave, step
from keyhouse.testing.servers.postgres import PostgresServer
from tests.sizes import size
from tests.support.engine_openers import postgres_schema
from tests.support.polling import loop_turns, until, wait_until

ALL = Span()
WRITERS = 16
KILLS = size(5, 20, 200)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A private server, to be killed."""
    found = PostgresServer()
    yield found
    found.close()


class Load:
    """Writers that never stop and record results; an unknown outcome is retried until known."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = False
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.added = 0
        self.errors: list[EngineError] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._write(number) for number in range(WRITERS)))

    def stop(self) -> None:
        self._stopping = True

    def has_unknown(self) -> bool:
        return any(isinstance(error, UnknownOutcomeError) for error in self.errors)

    async def until(self, more: int) -> None:
        """Wait for `more` acknowledged commits."""
        target = len(self.acknowledged) + more
        await until(lambda: len(self.acknowledged) >= target)

    async def _write(self, writer: int) -> None:
        space, number = f"s{writer % 4}", 0
        while not self._stopping:
            key = f"w{writer}/{number:05d}"
            batch = Batch(
                puts=(Put(key, b"1"), Put(f"{key}/index", b"1")), adds=(Add("n", 1),), id=key
            )
            self.acknowledged[space, key] = await self._commit_until_known(space, batch)
            self.added += 1
            number += 1

    async def _commit_until_known(self, space: str, batch: Batch) -> int:
        async def commit() -> int | None:
            try:
                return await self._engine.commit(space, batch)
            except (UnavailableError, UnknownOutcomeError) as error:
                self.errors.append(error)
                return None

        return await until(commit)

    async def check(self, engine: Engine) -> None:
        """Assert that every acknowledged commit is stored completely and was applied once."""
        for space in {space for space, _ in self.acknowledged}:
            page = await engine.scan(space, ALL, limit=1_000_000)
            found = {row.key: row for row in page.rows}
            keys = [key for of, key in self.acknowledged if of == space]
            for key in keys:
                assert (
                    found[key].revision
                    == found[f"{key}/index"].revision
                    == self.acknowledged[space, key]
                )
            assert found["n"].value == b"%d" % len(keys)
            assert len(found) == 2 * len(keys) + 1


async def terminate(url: str, who: str = "keyhouse%") -> int:
    """Terminate an engine's connections on the server, as an operator would."""
    connection = await asyncpg.connect(url)
    gone = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name LIKE $1",
        who,
    )
    await connection.close()
    return int(gone)


@pytest.mark.soak
def test_terminated_connections_under_load_raise_clear_errors_only(
    server: PostgresServer,
) -> None:
    async def scenario() -> None:
        engine = PostgresEngine.open(server.url)
        load = Load(engine)
        running = asyncio.ensure_future(load.run())
        for _ in range(KILLS):
            await load.until(more=40)
            assert await terminate(server.url) > 0
            assert (await engine.read("s0", ["absent"])) == [None]
        await load.until(more=40)
        load.stop()
        await running
        assert load.errors
        await load.check(engine)
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.soak
def test_a_server_killed_under_load_loses_no_acknowledged_write_and_recovers(
    server: PostgresServer,
) -> None:
    async def scenario() -> None:
        engine = PostgresEngine.open(server.url)
        load = Load(engine)
        running = asyncio.ensure_future(load.run())
        watching = asyncio.ensure_future(follow(engine, "s0"))
        await listening(engine)  # a watch that cannot start fails; one that has started resumes
        kills = 0
        while kills < KILLS or not load.has_unknown():  # until one hit a commit
            kills += 1
            await load.until(more=30)
            await asyncio.to_thread(server.kill)
            with pytest.raises((UnavailableError, UnknownOutcomeError)):
                await engine.commit("gone", Batch(puts=(Put("k", b"1"),)))
            with pytest.raises(UnavailableError):
                await engine.read("gone", ["k"])
            await asyncio.to_thread(server.start)
            await load.until(more=1)
        load.stop()
        await running
        await load.check(engine)
        await engine.commit("s0", Batch(puts=(Put("end", b"1"),)))
        seen = await asyncio.wait_for(watching, 30)
        check_watch(seen, [key for space, key in load.acknowledged if space == "s0"])
        await engine.close()

    asyncio.run(scenario())


def test_the_engine_reconnects_after_a_clean_server_restart(
    server: PostgresServer,
) -> None:
    async def scenario() -> None:
        engine = PostgresEngine.open(server.url)
        await engine.commit("s", Batch(puts=(Put("a", b"1"),)))
        await asyncio.to_thread(server.stop)
        await until(  # a commit that is sent has an unknown outcome
            lambda: all(connection.is_closed() for connection in engine.writes.shared.idle)
        )
        for call in (
            engine.commit("s", Batch(puts=(Put("b", b"1"),))),
            engine.read("s", ["a"]),
            engine.sweep(limit=1),
        ):
            with pytest.raises(UnavailableError):
                await call
        with pytest.raises(UnavailableError):
            await anext(engine.watch("s", ALL, since=0))
        await asyncio.to_thread(server.start)
        assert await engine.commit("s", Batch(puts=(Put("b", b"1"),))) == 2
        assert [row.key for row in (await engine.scan("s", ALL, limit=9)).rows] == ["a", "b"]
        await engine.close()

    asyncio.run(scenario())


async def follow(engine: Engine, space: str, since: int = 0) -> list[Change]:
    """Return all changes up to that of the key `end`."""
    watch = engine.watch(space, ALL, since=since)
    found = [await anext(watch)]
    while found[-1].key != "end":
        found.append(await anext(watch))
    await leave(watch)
    return found


def check_watch(changes: list[Change], keys: list[str]) -> None:
    """Assert that each key came once, in revision order."""
    revisions = [change.revision for change in changes]
    assert revisions == sorted(revisions)
    puts = [change.key for change in changes if change.key != "n"]
    assert len(puts) == len(set(puts))
    assert set(keys) <= set(puts)


@pytest.mark.soak
def test_a_repeatedly_disconnected_listener_leaves_no_gap_in_a_watch() -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        writer, watcher = PostgresEngine.open(url), PostgresEngine.open(url)
        await writer.commit("s", Batch(puts=(Put("first", b"1"),)))
        watching = asyncio.ensure_future(follow(watcher, "s", since=1))
        keys = list[str]()
        for number in range(size(60, 200, 200)):
            keys.append(f"k{number:03d}")
            await writer.commit("s", Batch(puts=(Put(keys[-1], b"1"),)))
            if number % 20 == 10:
                async with asyncio.timeout(60):  # the server may end the last one late
                    await listening(watcher)
                    while not await terminate(url, "keyhouse watch"):
                        await listening(watcher)
        await writer.commit("s", Batch(puts=(Put("end", b"1"),)))
        check_watch(await asyncio.wait_for(watching, 30), keys)
        await writer.close()
        await watcher.close()

    asyncio.run(scenario())


def test_a_started_watch_waits_for_the_server_and_a_new_one_raises(
    server: PostgresServer,
) -> None:
    async def scenario() -> None:
        engine = PostgresEngine.open(server.url)
        start = await engine.commit("s", Batch(puts=(Put("start", b"1"),)))
        watch = engine.watch("s", ALL, since=start)
        await engine.commit("s", Batch(puts=(Put("before", b"1"),)))
        assert (await step(watch)).key == "before"
        waiting = asyncio.ensure_future(step(watch))
        server.stop()
        with pytest.raises(UnavailableError):
            await step(engine.watch("s", ALL))
        assert not waiting.done()
        server.start()
        revision = await engine.commit("s", Batch(puts=(Put("after", b"1"),)))
        assert (await waiting).revision == revision
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_a_waiting_watch_is_notified_of_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling would find the commits too late."""
    monkeypatch.setattr("keyhouse.engines.postgres.listener.POLL_SECONDS", 3_600)

    async def scenario() -> None:
        url = await postgres_schema()
        writer, watcher = PostgresEngine.open(url), PostgresEngine.open(url)
        watch = watcher.watch("s", ALL, since=0)
        await writer.commit("s", Batch(puts=(Put("first", b"1"),)))
        await step(watch)
        await listening(watcher)
        for number in range(10):
            waiting = asyncio.ensure_future(step(watch))
            await loop_turns(20)
            await writer.commit("s", Batch(puts=(Put(f"k{number}", b"1"),)))
            assert (await waiting).key == f"k{number}"
        await leave(watch)
        await writer.close()
        await watcher.close()

    asyncio.run(scenario())


async def listening(engine: PostgresEngine) -> None:
    """Wait until the engine listens."""
    await until(lambda: engine.feed.listening)


def test_polling_finds_commits_of_a_process_that_died_before_notifying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        url = await postgres_schema()
        writer, watcher = PostgresEngine.open(url), PostgresEngine.open(url)
        await writer.commit("s", Batch(puts=(Put("first", b"1"),)))
        watch = watcher.watch("s", ALL, since=1)
        waiting = asyncio.ensure_future(step(watch))
        await listening(watcher)
        await writer.commit("s", Batch(puts=(Put("silent", b"1"),)))
        assert (await waiting).key == "silent"
        await leave(watch)
        await writer.close()
        await watcher.close()

    async def skip_notify(self: Feed, spaces: list[str]) -> None:
        pass

    monkeypatch.setattr(Feed, "notify", skip_notify)
    monkeypatch.setattr("keyhouse.engines.postgres.listener.POLL_SECONDS", 0.1)
    asyncio.run(scenario())


def test_a_connection_lost_after_the_last_snapshot_read_raises_nothing() -> None:
    """Everything was read; leaving the snapshot raised the driver's error."""

    async def scenario() -> None:
        url = await postgres_schema()
        engine = PostgresEngine.open(url)
        await engine.commit("s", Batch(puts=(Put("a", b"1"),)))
        async with engine.snapshot() as view:
            assert [row.key for row in (await view.scan("s", ALL, limit=5)).rows] == ["a"]
            connection = await asyncpg.connect(url)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE state = 'idle in transaction'"
            )
            await connection.close()
        async with engine.snapshot() as view:
            assert [space async for space in view.spaces()] == ["s"]
        await engine.close()

    asyncio.run(scenario())


def test_a_watch_that_is_far_behind_reads_the_log_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        engine = PostgresEngine.open(await postgres_schema())
        keys = [f"k{number:03d}" for number in range(60)]
        for key in keys:
            await engine.commit(
                "s", Batch(puts=(Put(key, b'"' + b"v" * 1_000 + b'"'), Put(f"{key}/2", b"1")))
            )
        await engine.commit("s", Batch(puts=(Put("end", b"1"),)))
        changes = await follow(engine, "s")
        assert [change.key for change in changes] == [
            *(name for key in keys for name in (key, f"{key}/2")),
            "end",
        ]
        await engine.close()

    monkeypatch.setattr("keyhouse.engines.postgres.feed.PAGE_COMMITS", 7)
    monkeypatch.setattr("keyhouse.engines.postgres.feed.PAGE_BYTES", 3_000)
    asyncio.run(scenario())


def test_watches_of_one_space_share_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    async def scenario() -> None:
        engine = PostgresEngine.open(await postgres_schema())
        await engine.commit("s", Batch(puts=(Put("first", b"1"),)))
        watching = [asyncio.ensure_future(follow(engine, "s", since=1)) for _ in range(50)]
        await until(lambda: reads >= 1)
        for number in range(20):
            await engine.commit("s", Batch(puts=(Put(f"k{number}", b"1"),)))
        await engine.commit("s", Batch(puts=(Put("end", b"1"),)))
        for changes in await asyncio.gather(*watching):
            check_watch(changes, [f"k{number}" for number in range(20)])
        await engine.close()

    read = Feed.read_page

    async def counted(self: Feed, space: str, position: int) -> Any:
        nonlocal reads
        reads += 1
        return await read(self, space, position)

    monkeypatch.setattr(Feed, "read_page", counted)
    asyncio.run(scenario())
    assert reads < 150


def test_the_server_stops_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also if that process is killed: an aborted test run leaves nothing behind."""
    program = (
        "import time\nfrom keyhouse.testing.servers.postgres import PostgresServer\n"
        "server = PostgresServer()\nprint(server.folder, server.pid, flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, pid = process.stdout.readline().split()
    assert Path(folder).is_dir()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not Path(folder).exists() and not running(int(pid)))


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
