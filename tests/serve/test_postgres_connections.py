"""A served system on a PostgreSQL server that has no more connections."""

import asyncio
from pathlib import Path

import asyncpg
import httpx
import pytest

from keyhouse.serve import health
from keyhouse.serve.server import Server
from keyhouse.settings.sources import load_settings
from keyhouse.testing.servers.postgres import PostgresServer
from tests.engines.support.postgres_schemas import take
from tests.serve.support import jars
from tests.support.engine_openers import OPENERS


@pytest.mark.skipif("postgres" not in OPENERS, reason="PostgreSQL is not among the chosen engines")
def test_ready_tells_that_the_server_has_no_connection_for_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 200, because reads still had one, while every write was 503."""
    monkeypatch.setattr(health, "CACHE_SECONDS", -1)
    server = PostgresServer(max_connections="8", superuser_reserved_connections="0")
    loaded = load_settings(
        {"data": str(tmp_path), "http": "127.0.0.1:0", "nats": "off", "engine": server.url},
        {},
        None,
        systems=("jars",),
    )

    async def main() -> None:
        async with (
            Server(loaded, {"jars": jars.without_nats}) as place,
            httpx.AsyncClient(base_url=str(place.http), timeout=30) as client,
        ):
            assert (await client.get("/ready")).status_code == 200
            operator = await asyncpg.connect(server.url)
            await operator.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE application_name = 'keyhouse'"
            )
            assert (await client.get("/jars/jars/jam")).is_success  # takes one for reads
            taken = await take(server.url, leave=0)
            ready = await client.get("/ready")
            assert ready.status_code == 503
            assert "out of connections" in ready.json()["systems"]["jars"]["why"]
            for connection in (*taken, operator):
                await connection.close()
            assert (await client.get("/ready")).status_code == 200

    try:
        asyncio.run(main())
    finally:
        server.close()
