"""A profile that is deleted leaves no byte of its assets: files and tables are searched."""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from keyhouse import ManualClock, open_engine
from keyhouse.clock import Clock
from keyhouse.engine import Engine, Span
from keyhouse.engines.postgres import PostgresEngine
from keyhouse.service.usage import Quota
from keyhouse.testing.faults import FaultyEngine, Killed, die
from keyhouse_history.events import store_events
from keyhouse_history.fold import ViewingEvent
from keyhouse_history.profiles import Profile
from systems.history.tests.conftest import dynamodb_settings_of
from systems.history.tests.support.service import EXT, Service, serving, viewing
from tests.abuse.support.server import ServerProcess
from tests.support import engine_openers
from tests.support.dynamodb_tables import plain_client
from tests.support.engine_openers import postgres_schema
from tests.support.polling import wait_until

NEEDLE = "zebra-7f3a91"
PROFILE = "forgotten-42"


def fill_and_forget(service: Service) -> None:
    events = [
        {"assetId": f"{NEEDLE}-{n}", **viewing(n, 100 if n % 2 else 20, ext=EXT)} for n in range(20)
    ]
    forgotten, other = service.viewer(PROFILE), service.viewer("other")
    try:
        other.put("stays", 1)
        forgotten.ask("POST", "/events", json={"events": events})
        forgotten.ask("DELETE", f"/assets/{NEEDLE}-3", status=204)
        forgotten.ask("DELETE", "", status=204)
        assert other.listed("asset/all") == ["stays"]
        assert forgotten.listed("asset/all") == []
    finally:
        forgotten.close()
        other.close()


def test_no_file_of_sqlite_has_an_asset_of_a_deleted_profile(tmp_path: Path) -> None:
    with serving(engine_openers.sqlite(tmp_path), tmp_path) as service:
        fill_and_forget(service)
        for file in tmp_path.rglob("*"):
            if file.is_file():
                assert NEEDLE.encode() not in file.read_bytes(), file.name
                assert PROFILE.encode() not in file.read_bytes(), file.name


def test_no_table_of_postgresql_has_an_asset_of_a_deleted_profile(tmp_path: Path) -> None:

    url = asyncio.run(postgres_schema())

    async def open_postgres(clock: Clock, **options: Any) -> Engine:
        return PostgresEngine.open(url, clock=clock, **options)

    async def search() -> None:
        connection = await asyncpg.connect(url.partition("&search_path")[0])
        try:
            schema = url.rpartition("=")[2]
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1", schema
            )
            assert tables
            for (table,) in tables:
                rows = await connection.fetch(f'SELECT t::text FROM "{schema}"."{table}" t')
                raw = await connection.fetch(f'SELECT * FROM "{schema}"."{table}"')
                text = repr(rows) + repr(raw)
                assert NEEDLE not in text and PROFILE not in text, table
                assert NEEDLE.encode().hex() not in text, table
        finally:
            await connection.close()

    with serving(open_postgres, tmp_path) as service:
        fill_and_forget(service)
        asyncio.run(search())


def test_no_table_of_dynamodb_has_an_asset_of_a_deleted_profile(tmp_path: Path) -> None:
    where, opener = dynamodb_settings_of()

    async def search() -> None:
        async with plain_client() as client:
            for table in (where.table, f"{where.table}.log"):
                found = await client.scan(TableName=table)
                assert "LastEvaluatedKey" not in found
                text = repr(found["Items"])
                assert NEEDLE not in text and PROFILE not in text, table

    with serving(opener, tmp_path) as service:
        fill_and_forget(service)
        asyncio.run(search())


def test_a_service_finishes_the_deletion_of_a_profile_that_a_kill_interrupted(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)

    async def kill_midway() -> None:
        """Delete a profile, an hour ago, up to a step in its middle."""
        clock = ManualClock(int(time.time() * 1_000) - 3_600_000)
        engine = await open_engine(f"sqlite:///{data}/history.db?layout=history", clock=clock)
        make = partial(Profile, quota=Quota(0, 0), entries_max=100)
        for number in range(20):
            await store_events(make(PROFILE, engine), [event(f"{NEEDLE}-{number}")])
        await store_events(make("other", engine), [event("stays")])
        faulty: Any = FaultyEngine(engine, die(9), rows=5)
        with pytest.raises(Killed):
            await make(PROFILE, faulty).forget()
        assert (await engine.scan(PROFILE, Span(), limit=1)).rows
        await engine.close()

    def event(asset: str) -> ViewingEvent:
        return ViewingEvent(
            asset_id=asset,
            asset_type="movie",
            total_time=100,
            progress=50,
            at=1_000,
            state="IN_PROGRESS",
            ext=EXT,
        )

    async def spaces() -> list[str]:
        engine = await open_engine(f"sqlite:///{data}/history.db?layout=history")
        try:
            return [space async for space in engine.spaces()]
        finally:
            await engine.close()

    asyncio.run(kill_midway())
    with ServerProcess(tmp_path, "history") as server:
        wait_until(lambda: "erasure" in server.log.read_text())
        assert asyncio.run(spaces()) == ["other"]
        assert PROFILE not in server.log.read_text()
