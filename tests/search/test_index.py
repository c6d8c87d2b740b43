"""The search index of a store: fed by its changes, on every engine, and after kills."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import DeclarationError, LimitError, UnavailableError, UsageError
from keyhouse.schema import Record, Schema, Space
from keyhouse.search import SearchIndex, SearchSchema, SearchSource
from keyhouse.store import Store
from keyhouse.testing.faults import FaultyEngine, Killed, die
from tests.search.support.library import (
    NOTE,
    SEARCH,
    VOLUME,
    WRITER,
    Volume,
    Writer,
    found,
    index_on,
    naive,
    store_on,
)
from tests.serve.support.serve_process import environment
from tests.support.engine_openers import OPENERS

Scenario = Callable[[Engine, Path], Coroutine[Any, Any, None]]


def run(scenario: Scenario, folder: Path, engine: Engine | None = None) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario(engine or MemoryEngine(), folder)

    asyncio.run(limited())


def volume(id: str, title: str, *tags: str, **named: Any) -> Volume:
    return Volume(id=id, title=title, tags=list(tags), **named)


def only_file(folder: Path) -> Path:
    [path] = folder.glob("*.db")
    return path


@pytest.mark.parametrize("name", OPENERS)
def test_writes_are_found_and_deletions_are_not_on_every_engine(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = await OPENERS[name](tmp_path)(SystemClock())
        store = store_on(engine)
        await store.put(VOLUME, volume("early", "Early birds"))
        index = index_on(engine, tmp_path / "search")
        assert await found(index, "bird", timeout_seconds=20) == ["early"]
        entry = await store.put(VOLUME, volume("late", "Late Birds", "birding"))
        assert await found(index, "BIRDS", after=entry.revision) == ["early", "late"]
        entry = await store.put(VOLUME, volume("early", "Early fish"))
        assert await found(index, "birds", after=entry.revision) == ["late"]
        assert await found(index, "fish") == ["early"]
        with pytest.raises(UsageError, match="no such revision"):
            await index.search("fish", after=entry.revision + 1)
        await store.delete(VOLUME, id="late")
        writer = await store.put(WRITER, Writer(id="w", name="Bird, Ann"))
        page = await index.search("bird", after=writer.revision)
        assert [(hit.record, hit.key, hit.fields) for hit in page.hits] == [
            ("writer", "writer:w", {"id": "w"})
        ]
        await index.close()
        entry = await store.put(VOLUME, volume("more", "More birds"))  # while it is closed
        index = index_on(engine, tmp_path / "search")
        assert await found(index, "bird", after=entry.revision) == ["more", "w"]
        assert not index._followers[""].rebuilds
        await index.close()
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", OPENERS)
def test_an_index_that_fell_behind_is_built_again_on_every_engine(
    name: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        engine = await OPENERS[name](tmp_path)(SystemClock(), changes_kept=20)
        store = store_on(engine)
        await store.put(VOLUME, volume("a", "Alpha"))
        index = index_on(engine, tmp_path / "search")
        assert await found(index, "alpha", timeout_seconds=20) == ["a"]
        await index.close()
        await store.delete(VOLUME, id="a")
        for number in range(60):
            entry = await store.put(VOLUME, volume("b", f"Beta {number}"))
        await engine.sweep(limit=1_000)
        index = index_on(engine, tmp_path / "search")
        assert await found(index, "beta 59", after=entry.revision, timeout_seconds=20) == ["b"]
        assert await found(index, "alpha") == []
        await index.close()
        await engine.close()

    asyncio.run(scenario())


def test_results_are_ranked_by_weight_then_by_their_sort_text(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        for each in (
            volume("about", "Other", about="dragon"),
            volume("tag", "Other", "dragon"),
            volume("z", "Dragon"),
            volume("y", "Dragon"),
        ):
            entry = await store.put(VOLUME, each)
        index = index_on(engine, folder)
        page = await index.search("dragon", after=entry.revision, count=True)
        assert [hit.fields["id"] for hit in page.hits] == ["y", "z", "tag", "about"]
        assert page.hits[0].score > page.hits[2].score > page.hits[3].score > 0
        assert (page.total, page.revision) == (4, entry.revision)
        second = await index.search("dragon", limit=2, offset=2, count=True)
        assert [hit.fields["id"] for hit in second.hits] == ["tag", "about"]
        assert second.total == 4
        assert await found(index, "dragon", fields=["about"]) == ["about"]
        assert await found(index, "dragon", records=[WRITER]) == []
        assert await found(index, "drag", prefix=False) == []
        await index.close()

    run(scenario, tmp_path)


def test_filters_require_exact_values(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("1", "One", "Sci Fi", "old"))
        await store.put(VOLUME, volume("2", "Two", "Sci Fi"))
        entry = await store.put(VOLUME, volume("3", "Three", "old"))
        index = index_on(engine, folder)
        assert await found(index, "", filters={"tag": "Sci Fi"}, after=entry.revision) == ["1", "2"]
        assert await found(index, "", filters={"tag": ["Sci Fi", "old"]}) == ["1"]
        assert await found(index, "t", filters={"tag": "Sci Fi"}) == ["2"]
        assert await found(index, "!?", filters={"tag": "Sci Fi"}) == []
        assert await found(index, "", filters={"tag": "sci"}) == []
        assert await found(index, "") == []
        await index.close()

    run(scenario, tmp_path)


def test_the_files_are_readable_by_their_user_only(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        await store_on(engine).put(VOLUME, volume("1", "One"))
        index = index_on(engine, folder / "search")
        await found(index, "one")
        entry = await store_on(engine).put(VOLUME, volume("2", "One"))
        await found(index, "one", after=entry.revision)
        modes = {path.name[-4:]: path.stat().st_mode for path in (folder / "search").iterdir()}
        assert len(modes) == 3  # with the write-ahead log
        assert all(stat.S_IMODE(mode) == 0o600 for mode in modes.values())
        assert stat.S_IMODE((folder / "search").stat().st_mode) == 0o700
        await index.close()

    os.umask(0o022)
    run(scenario, tmp_path)


def test_spaces_have_separate_files_and_the_least_used_are_closed(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        index = SearchIndex(SEARCH, folder, lambda space: store_on(engine, space), spaces_max=2)
        spaces = ["a", "A", "ä/..", "b", "c"]
        for space in spaces:
            await store_on(engine, space).put(VOLUME, volume(f"of {space}", "Secret plans"))
        for _ in range(2):
            for space in spaces:
                assert await found(index, "secret", space=space) == [f"of {space}"]
        assert len(index._followers) == 2 and len(list(folder.glob("*.db"))) == 5
        await index.forget("b")
        assert len(list(folder.glob("*.db"))) == 4
        assert await found(index, "secret", space="b") == ["of b"]
        await index.close()

    run(scenario, tmp_path)


def test_an_expired_record_is_not_found_before_it_is_swept(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        entry = await store.put(NOTE, Writer(id="n", name="n"))
        await engine.commit(
            "main", Batch(puts=(Put("volume:x", b'{"id":"x","title":"Brief"}', clock.now() + 5),))
        )
        index = index_on(engine, folder)
        assert await found(index, "brief", after=entry.revision) == ["x"]
        clock.advance(milliseconds=5)
        assert await found(index, "brief") == []
        await index.close()

    clock = ManualClock()
    run(scenario, tmp_path, MemoryEngine(clock))


def test_hidden_unreadable_and_other_records_are_left_out(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("1", "Plans"))
        await store.put(VOLUME, volume("2", "Plans", hidden=True))
        await store.put(NOTE, Writer(id="3", name="Plans"))
        await engine.commit("main", Batch(puts=(Put("volume:4", b'{"title":"Plans"}'),)))
        await engine.commit("main", Batch(puts=(Put("elsewhere", b"Plans"),)))
        index = index_on(engine, folder)
        assert await found(index, "plans") == ["1"]
        entry = await store.put(VOLUME, volume("1", "Plans", hidden=True))
        assert await found(index, "plans", after=entry.revision) == []
        revision = await engine.commit("main", Batch(puts=(Put("volume:4", b"[]"),)))
        assert revision is not None
        entry = await store.put(VOLUME, volume("5", "Plans"))
        assert await found(index, "plans", after=entry.revision) == ["5"]
        await index.close()

    with capture_logs() as logs:
        run(scenario, tmp_path)
    assert [line["key"] for line in logs if line["event"] == "record not searchable"] == [
        "volume:4",
        "volume:4",
    ]


def test_a_record_whose_texts_fail_stops_no_other(tmp_path: Path) -> None:
    def texts(found: Volume) -> Any:
        return {"title": found.title} if found.title != "Bad" else {"title": [found.tags]}

    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("0", "Bad"))
        await store.put(VOLUME, volume("1", "Good"))
        schema = SearchSchema(
            "library", SearchSource(record=VOLUME, texts=texts), fields={"title": 1.0}
        )
        index = SearchIndex(schema, folder, store)
        assert await found(index, "good") == ["1"]
        await store.put(VOLUME, volume("2", "Bad"))
        entry = await store.put(VOLUME, volume("3", "Good"))
        assert await found(index, "good", after=entry.revision) == ["1", "3"]
        await index.close()

    with capture_logs() as logs:
        run(scenario, tmp_path)
    failed = [line["key"] for line in logs if line["event"] == "record not searchable"]
    assert failed == ["volume:0", "volume:2"]


def test_hits_of_a_space_in_the_key_have_the_fields_that_the_store_takes(tmp_path: Path) -> None:
    tenant_volume = Record(Volume, "tenant:{tenant}:volume:{id}", name="volume")
    schema = Schema("tenants", tenant_volume, space=Space("a tenant", field="tenant"))
    searched = SearchSchema(
        "tenants",
        SearchSource(record=tenant_volume, texts=lambda each: {"title": each.title}),
        fields={"title": 1.0},
    )

    async def scenario(engine: Engine, folder: Path) -> None:
        def store(space: str) -> Store:
            return Store(schema, engine, space)

        index = SearchIndex(searched, folder, store)
        for space in ("ann", "bob"):
            await store(space).put(tenant_volume, volume("1", f"Plans of {space}"))
        for space in ("ann", "bob"):
            [hit] = (await index.search("plans", space=space)).hits
            [value] = await store(space).get_many(tenant_volume, [hit.fields])
            assert value is not None and value.title == f"Plans of {space}"
        await index.close()

    run(scenario, tmp_path)


def test_changes_of_other_records_advance_the_revision(tmp_path: Path) -> None:
    """Otherwise a space in which only they change would be built again after each restart."""

    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("1", "One"))
        index = index_on(engine, folder)
        await found(index, "one")
        for number in range(100):
            entry = await store.put(NOTE, Writer(id=str(number), name="x"))
        assert await found(index, "one", after=entry.revision) == ["1"]
        await index.close()
        await engine.sweep(limit=1_000)
        index = index_on(engine, folder)
        assert (await index.search("one")).revision == entry.revision
        assert index._followers[""].rebuilds == 0
        await index.close()

    run(scenario, tmp_path, MemoryEngine(changes_kept=20))


# Rebuilding


def test_a_missing_a_damaged_and_an_outdated_file_are_built_again(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        await store_on(engine).put(VOLUME, volume("1", "One"))

        async def rebuilt(schema: SearchSchema = SEARCH) -> int:
            index = SearchIndex(schema, folder, store_on(engine))
            assert await found(index, "one") == ["1"]
            rebuilds = index._followers[""].rebuilds
            await index.close()
            return rebuilds

        assert await rebuilt() == 1
        assert await rebuilt() == 0
        path = only_file(folder)
        path.unlink()
        assert await rebuilt() == 1
        path.write_bytes(b"not a database" * 1_000)
        assert await rebuilt() == 1
        path.write_bytes(b"")
        assert await rebuilt() == 1
        (folder / f"{path.stem}.new").write_bytes(b"left by a kill")
        path.unlink()
        assert await rebuilt() == 1
        newer = SearchSchema("library", *SEARCH.sources, fields=SEARCH.fields, version=2)
        assert [await rebuilt(newer), await rebuilt(newer), await rebuilt()] == [1, 0, 1]

    run(scenario, tmp_path)


def test_a_file_damaged_while_it_is_open_is_built_again(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        for number in range(500):
            await store.put(VOLUME, volume(str(number), f"Title {number} " + "word " * 20))
        index = index_on(engine, folder)
        assert len(await found(index, "title")) == 500
        await index.close()
        path = only_file(folder)
        data = bytearray(path.read_bytes())
        data[3 * 4_096 :] = os.urandom(len(data) - 3 * 4_096)
        path.write_bytes(data)
        index = index_on(engine, folder)
        for _ in range(20):
            try:
                if len(await found(index, "title")) == 500:
                    break
            except UnavailableError:
                await asyncio.sleep(0.2)
        else:
            raise AssertionError("not repaired")
        await index.close()

    run(scenario, tmp_path)


def test_a_file_of_another_store_with_the_same_revisions_is_not_used(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        for number in range(5):
            await store.put(VOLUME, volume(str(number), "Old"))
        index = index_on(engine, folder)
        assert len(await found(index, "old")) == 5
        await index.close()
        other = MemoryEngine()  # such as one restored from a backup
        for number in reversed(range(10)):
            entry = await store_on(other).put(VOLUME, volume(str(number), "New"))
        index = index_on(other, folder)
        assert len(await found(index, "new", after=entry.revision)) == 10
        assert await found(index, "old") == []
        await index.close()

    run(scenario, tmp_path)


def test_a_revision_that_does_not_come_is_reported(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        index = index_on(engine, folder)
        assert await found(index, "x") == []
        with pytest.raises(UnavailableError, match="has not reached this revision"):
            await index.search("x", after=99, timeout_seconds=0.05)
        await index.close()

    run(scenario, tmp_path)


def test_wrong_arguments_are_rejected(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        index = index_on(engine, folder)
        for named, error in (
            ({"fields": ["colour"]}, UsageError),
            ({"records": [NOTE]}, UsageError),
            ({"limit": 0}, LimitError),
            ({"limit": 1_001}, LimitError),
            ({"offset": -1}, UsageError),
        ):
            with pytest.raises(error):
                await index.search("x", **named)
        await index.close()

    run(scenario, tmp_path)
    with pytest.raises(DeclarationError, match="at least one"):
        SearchSchema("x", fields={"a": 1.0})
    with pytest.raises(DeclarationError, match="lower case"):
        SearchSchema("x", *SEARCH.sources, fields={"a) --": 1.0})
    with pytest.raises(DeclarationError, match="same record"):
        SearchSchema("x", SEARCH.sources[0], SEARCH.sources[0], fields={"a": 1.0})


def test_searches_run_beside_writes_and_can_be_cancelled(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        store = store_on(engine)
        await store.put(VOLUME, volume("0", "Title"))
        index = index_on(engine, folder)
        await found(index, "title")

        async def write() -> None:
            for number in range(300):
                await store.put(VOLUME, volume(str(number), f"Title {number}"))
                await asyncio.sleep(0)

        async def search() -> None:
            for _ in range(60):
                task = asyncio.create_task(found(index, "title"))
                await asyncio.sleep(random.uniform(0, 0.002))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert await found(index, "title")

        await asyncio.gather(write(), *(search() for _ in range(4)))
        revision = await store.revision()
        assert len(await found(index, "title", after=revision)) == 300
        await index.close()

    run(scenario, tmp_path)


def test_searches_are_measured(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        index, registry = index_on(engine, folder), CollectorRegistry()
        registry.register(index)
        await found(index, "x")
        page = generate_latest(registry).decode()
        assert "library_search_seconds_count 1.0" in page
        assert "library_search_rebuilds_total 1.0" in page
        assert "library_search_spaces 1.0" in page
        await index.close()

    run(scenario, tmp_path)


# Kills


def test_an_index_whose_engine_dies_at_every_step_is_right_afterwards(tmp_path: Path) -> None:
    async def one(step: int) -> bool:
        folder = tmp_path / str(step)
        engine = MemoryEngine()
        store = store_on(engine)
        volumes = {str(n): volume(str(n), f"Title {n % 3}") for n in range(4)}
        for each in volumes.values():
            await store.put(VOLUME, each)
        dying = FaultyEngine(engine, die(step))
        index = index_on(dying, folder)
        died = False
        try:
            await index.search("title", timeout_seconds=0.05)
            volumes["0"] = volume("0", "Changed")
            entry = await store.put(VOLUME, volumes["0"])
            await index.search("changed", after=entry.revision, timeout_seconds=0.2)
        except (Killed, UnavailableError):
            died = True
        for follower in index._followers.values():
            follower._task.cancel()
            died = died or not (await asyncio.gather(follower._task, return_exceptions=True))
        volumes["1"] = volume("1", "Changed")
        entry = await store.put(VOLUME, volumes["1"])
        again = index_on(engine, folder)
        for query in ("title", "changed", "title 0"):
            wanted = naive(volumes.values(), query)
            assert await found(again, query, after=entry.revision) == wanted
        await again.close()
        await index.close()
        return died

    async def every_step(_: Engine, __: Path) -> None:
        steps = 1
        while await one(steps):
            steps += 1
        assert steps > 2

    run(every_step, tmp_path)


@pytest.mark.long
def test_an_index_whose_process_is_killed_again_and_again_is_right(tmp_path: Path) -> None:
    """The process writes and follows; it is killed while it builds and while it applies changes."""
    chance = random.Random(11)
    command = [sys.executable, "-m", "tests.search.support.indexing_process", str(tmp_path)]
    for kill in range(8):
        if kill == 4:
            for path in (tmp_path / "search").iterdir():
                path.unlink()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        time.sleep(chance.uniform(0.02, 0.4))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()

    async def check() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        store = store_on(engine)
        volumes = [entry.record async for entry in store.scan(VOLUME)]
        assert len(volumes) >= 50
        index = index_on(engine, tmp_path / "search")
        revision = await store.revision()
        for query in ("title", "title 1", "round", "7"):
            wanted = naive(volumes, query)
            assert await found(index, query, after=revision, timeout_seconds=20) == wanted
        await index.close()
        file = apsw.Connection(str(only_file(tmp_path / "search")))
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        file.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        file.close()
        await engine.close()

    asyncio.run(check())
