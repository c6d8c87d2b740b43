"""A profile that is deleted leaves no byte of its assets: files and tables are searched."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.postgres import PostgresEngine
from tests.support import engine_openers
from tests.support.dynamodb_tables import plain_client
from tests.support.engine_openers import postgres_schema
from tests.systems.history.conftest import dynamodb_settings_of
from tests.systems.history.support.service import EXT, Service, serving, viewing

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
