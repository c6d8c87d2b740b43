"""The search index of a store: fed by its changes, on every engine."""

import asyncio
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DeclarationError, LimitError, UsageError
from keyhouse.schema import Record, Schema, Space
from keyhouse.search import SearchIndex, SearchSchema, SearchSource
from keyhouse.store import Store
from tests.search.support.library import (
    NOTE,
    SEARCH,
    VOLUME,
    WRITER,
    Volume,
    Writer,
    found,
    index_on,
    run,
    store_on,
    volume,
)
from tests.support.engine_openers import OPENERS
from tests.support.polling import loop_turns
from tests.support.seeds import new_seed


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
        page = await index.search("bird", after=writer.revision, timeout_seconds=30)
        assert [(hit.record, hit.key, hit.fields) for hit in page.hits] == [
            ("writer", "writer:w", {"id": "w"})
        ]
        await index.close()
        entry = await store.put(VOLUME, volume("more", "More birds"))  # while it is closed
        index = index_on(engine, tmp_path / "search")
        assert await found(index, "bird", after=entry.revision) == ["more", "w"]
        assert not index.followers[""].rebuilds
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
        page = await index.search("dragon", after=entry.revision, count=True, timeout_seconds=30)
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
        assert len(modes) == 4  # with the write-ahead log, and the lock of the writer
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
        assert len(index.followers) == 2 and len(list(folder.glob("*.db"))) == 5
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
            [hit] = (await index.search("plans", space=space, timeout_seconds=30)).hits
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
        assert (await index.search("one", timeout_seconds=30)).revision == entry.revision
        assert index.followers[""].rebuilds == 0
        await index.close()

    run(scenario, tmp_path, MemoryEngine(changes_kept=20))


def test_a_revision_that_the_store_does_not_have_is_rejected(tmp_path: Path) -> None:
    async def scenario(engine: Engine, folder: Path) -> None:
        index = index_on(engine, folder)
        assert await found(index, "x") == []
        with pytest.raises(UsageError, match="no such revision"):
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

        dice = random.Random(new_seed())

        async def search() -> None:
            for _ in range(60):
                task = asyncio.create_task(found(index, "title"))
                await loop_turns(dice.randrange(30))
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
