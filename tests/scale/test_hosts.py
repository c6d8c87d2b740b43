"""Two hosts behind the proxy of the guide: a restart of each, and a kill, fail no request and lose
no acknowledged write."""

import asyncio
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from keyhouse.auth import JwtSettings, mint
from tests.scale.support.clients import Clients
from tests.scale.support.proxy import proxy
from tests.serve.support.serve_process import Serving, serving
from tests.sizes import size
from tests.support.engine_openers import postgres_schema
from tests.support.polling import until

CLIENTS = size(16, 64, 64)
REQUESTS = size(100, 2_000, 20_000)
"""Between two faults."""

SECRET = "the-same-on-every-host-0123456789abcdef"
SETTINGS = {"KEYHOUSE_NOTES_JWT_SECRET": SECRET, "KEYHOUSE_NOTES_RATE_PER_SECOND": "0"}
HOSTS = ("127.0.71.1", "127.0.71.2")


class Host:
    """A `keyhouse serve` with its own data folder; it comes back at the same address."""

    def __init__(self, folder: Path, address: str, engine: str, stack: ExitStack) -> None:
        folder.mkdir()
        self.address = f"{address}:0"
        self._folder, self._engine, self._stack = folder, engine, stack
        self.running = self.start()
        self.address = self.running.http.removeprefix("http://")

    def start(self) -> Serving:
        options = ("--engine", self._engine, "--http", self.address, "--nats", "off")
        notes = "tests.scale.support.notes:NOTES"
        self.running = self._stack.enter_context(serving(self._folder, notes, *options, **SETTINGS))
        return self.running

    def end(self, how: signal.Signals) -> int:
        return self.running.end(how)

    def has_answered(self) -> bool:
        """Return whether it has answered a client since its start."""
        lines = self.running.get("/metrics").text.splitlines()
        return any(
            line.startswith("keyhouse_http_request_seconds_count") and "/notes/" in line
            for line in lines
        )


@pytest.mark.long
@pytest.mark.soak
def test_restarts_and_a_kill_behind_a_proxy_fail_no_request_and_lose_nothing(
    tmp_path: Path,
) -> None:
    token = mint(JwtSettings(jwt_secret=SECRET), tmp_path, "ann", system="notes")

    async def story(hosts: list[Host], socket: Path) -> dict[int, int]:
        async with Clients(CLIENTS, token, socket=socket) as clients:
            await clients.more(REQUESTS)
            for host in hosts:
                assert await asyncio.to_thread(host.end, signal.SIGTERM) == 0
                await clients.more(REQUESTS)
                await asyncio.to_thread(host.start)
                await until(partial(asyncio.to_thread, host.has_answered))
            await asyncio.to_thread(hosts[0].end, signal.SIGKILL)
            await clients.more(REQUESTS)
        assert clients.failures == []
        return clients.acknowledged

    with ExitStack() as stack:
        engine = asyncio.run(postgres_schema())
        hosts = [Host(tmp_path / address, address, engine, stack) for address in HOSTS]
        socket = stack.enter_context(proxy(tmp_path, [host.address for host in hosts]))
        acknowledged = asyncio.run(story(hosts, socket))
        with httpx.Client(
            base_url=hosts[1].running.http, headers={"Authorization": f"Bearer {token}"}
        ) as client:
            for number, last in acknowledged.items():
                note = client.get(f"/notes/records/note/client-{number}").json()
                assert note["value"]["number"] == last > 0
