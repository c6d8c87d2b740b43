"""Limits of a tenant hold over the workers of `keyhouse serve --workers`."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.scale.support.workers import workers

QUOTA = 40
BURST = 120
STREAMS = 3
WATCH = {"record": "recipe"}


def test_a_tenant_has_its_limits_once(tmp_path: Path) -> None:
    """Each worker counted by itself: a quota of 100 keys let 300 be stored in three."""

    async def story() -> None:
        limits: dict[str, Any] = {
            "KEYHOUSE_RECIPES_QUOTA_KEYS": f"{QUOTA}",
            "KEYHOUSE_RECIPES_RATE_PER_SECOND": "0.001",
            "KEYHOUSE_RECIPES_RATE_BURST": f"{BURST}",
            "KEYHOUSE_HTTP_TENANT_STREAMS_MAX": f"{STREAMS}",
        }
        with workers(tmp_path, "sqlite", **limits) as running:
            async with running.clients() as clients, running.client() as watcher:
                other = clients[1]
                async with AsyncExitStack() as streams:
                    with running.only(0):
                        for _ in range(STREAMS):
                            opened = watcher.stream("GET", "/watch", params=WATCH)
                            assert (await streams.enter_async_context(opened)).status_code == 200
                    assert (await other.get("/watch", params=WATCH)).status_code == 429
                    await running.kill(0)
                    async with other.stream("GET", "/watch", params=WATCH) as stream:
                        assert stream.status_code == 200, "those of the dead worker are free"
            async with running.clients() as clients:
                codes: list[str] = []

                async def count(worker: int, client: httpx.AsyncClient) -> None:
                    for number in range(QUOTA):
                        address = f"/counters/views/{worker}-{number}"
                        reply = await client.post(address, json={"by": 1})
                        codes.append(reply.json().get("code", "counted"))

                await asyncio.gather(*(count(*each) for each in enumerate(clients)))
                async with running.client() as client:
                    url = "/counters/views/more"
                    rejected = (await client.post(url, json={"by": 1})).json()
                assert rejected["fields"]["used"] == rejected["fields"]["limit"] == QUOTA
                assert codes.count("counted") == QUOTA - 1, "one is the version of the space"
                for _ in range(BURST):
                    codes += [
                        (await client.get("/counters/views/0-0")).json().get("code", "read")
                        for client in clients
                    ]
                spent = len(codes) - codes.count("RATE_LIMITED")
                assert BURST - 20 <= spent <= BURST, "some requests were those before"

    asyncio.run(story())
