"""The length of the log: `changes_kept=` and `changes_seconds=`, alike on every engine."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.registry import open_engine
from keyhouse.engines.retention import ChangesKept, Retention
from keyhouse.errors import UsageError, WatchExpiredError
from keyhouse.settings.engine_urls import url_of
from keyhouse.testing.conformance.harness import leave
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server
from tests.support.engine_openers import OPENERS, postgres_schema
from tests.support.nats_servers import name_of, nats_server


async def _memory(folder: Path) -> str:
    return "memory:?"


async def _sqlite(folder: Path) -> str:
    return f"sqlite:{folder}/rows.db?"


async def _rocksdb(folder: Path) -> str:
    return f"rocksdb:{folder}/rows?"


async def _jetstream(folder: Path) -> str:
    return f"{nats_server().url}/?bucket={name_of(folder)}&"


async def _postgres(folder: Path) -> str:
    return f"{await postgres_schema()}&"


async def _dynamodb(folder: Path) -> str:
    name = f"t{secrets.token_hex(8)}"
    return f"dynamodb://{name}?region={REGION}&endpoint={dynamodb_server().endpoint}&"


URLS: dict[str, Callable[[Path], Awaitable[str]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "rocksdb": _rocksdb,
    "jetstream": _jetstream,
    "postgres": _postgres,
    "dynamodb": _dynamodb,
}


async def _has_changes_after(engine: Engine, revision: int) -> bool:
    watch = engine.watch("s", Span(), since=revision)
    try:
        await anext(watch)
    except WatchExpiredError:
        return False
    finally:
        await leave(watch)
    return True


@pytest.mark.parametrize("name", [name for name in URLS if name in OPENERS])
def test_changes_of_the_last_minutes_are_kept_however_many_there_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 10,000 writes a second, 100,000 changes were 10 seconds: every follower started over."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS_KEY)

    async def scenario() -> None:
        clock = ManualClock()
        url = f"{await URLS[name](tmp_path)}changes_kept=2&changes_seconds=600"
        async with open_engine(url, clock=clock) as engine:
            for minute in range(9):
                for number in range(5):
                    put = Put(f"k{minute}-{number}", b"1")
                    await engine.commit("s", Batch(puts=(put,)))
                await engine.sweep(limit=10)
                clock.advance(minutes=1)
            assert await _has_changes_after(engine, 1)
            for _ in range(4):
                clock.advance(minutes=11)
                await engine.commit("s", Batch(puts=(Put("later", b"1"),)))
                await engine.sweep(limit=10)
            assert not await _has_changes_after(engine, 1)

    asyncio.run(scenario())


def test_a_change_is_pruned_when_it_is_beyond_the_number_and_older_than_the_time() -> None:
    clock = ManualClock()
    by_number = Retention(5, clock)
    assert by_number.prunable(4) < 0 and by_number.prunable(20) == 15
    both = Retention(ChangesKept(5, 60), clock)
    assert both.prunable(100) == 0
    clock.advance(seconds=30)
    assert both.prunable(200) == 0
    clock.advance(seconds=30)
    assert both.prunable(201) == 100
    assert both.prunable(102) == 97
    clock.advance(seconds=3_600)
    assert both.prunable(1_000) == 201


@pytest.mark.parametrize("text", ["changes_kept=", "changes_seconds=-1", "changes_kept=1.5"])
def test_an_invalid_number_of_changes_is_rejected(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"write changes_(kept|seconds)=NUMBER"):
        asyncio.run(open_engine(f"sqlite:{tmp_path}/rows.db?{text}").__aenter__())


def test_the_parameters_stay_with_the_url_of_each_system() -> None:
    assert url_of("bot", "rocksdb:data?changes_kept=5", alone=False) == (
        "rocksdb:data/bot?changes_kept=5"
    )
