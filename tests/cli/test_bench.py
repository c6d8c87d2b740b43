"""`keyhouse bench`: it measures, says what it measured against, and leaves the store as it was."""

import asyncio
import json
from pathlib import Path

import pytest

from keyhouse.cli.contests import Item, _batch, _item, measure
from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.registry import open_engine
from tests.cli.running import run
from tests.store.test_transfer import contents


def test_an_item_has_five_derived_rows_and_the_engine_alone_writes_the_same() -> None:
    item = _item(7)
    assert isinstance(item, Item)
    assert len(_batch(item).puts) == 6


def test_it_leaves_every_row_as_it_was(tmp_path: Path) -> None:
    async def fill() -> None:
        engine = await open_engine(f"sqlite:{tmp_path}/a.db")
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        await engine.close()

    asyncio.run(fill())
    done = json.loads(run("bench", "--seconds", "0.02", "--store", "sqlite:a.db", "--json", cwd=tmp_path).stdout)
    assert done["engine"] == "sqlite" and done["durable"] and len(done["contests"]) == 4
    for contest in done["contests"]:
        assert contest["store"]["per_second"] > 0 and contest["engine"]["p99_ms"] >= contest["engine"]["p50_ms"] > 0
    assert run("spaces", "--store", "sqlite:a.db", cwd=tmp_path).stdout == "s\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_without_a_store_it_measures_a_temporary_file(tmp_path: Path) -> None:
    shown = run("bench", "--seconds", "0.02", cwd=tmp_path).stdout
    assert "sqlite, in a temporary file" in shown and "Store / engine alone" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "no such file" in run("bench", "--store", "sqlite:gone.db", cwd=tmp_path, code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_what_it_wrote_goes_also_when_it_is_stopped() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(ManualClock())

        def stop(text: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await measure(engine, "memory:", 0.01, stop)
        assert await contents(engine) == {}

    asyncio.run(scenario())
