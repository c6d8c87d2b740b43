"""Clients that write and read back, each its own record, until their block ends."""

import asyncio
from pathlib import Path

import httpx

from tests.support.polling import until


class Clients:
    """`acknowledged` is the last number that each client was answered for; `failures` are requests
    that were refused, failed, or answered with another number."""

    def __init__(
        self, count: int, token: str, *, socket: Path | None = None, url: str = ""
    ) -> None:
        transport = httpx.AsyncHTTPTransport(uds=str(socket) if socket else None)
        self._client = httpx.AsyncClient(
            base_url=url or "http://data.example.org",
            headers={"Authorization": f"Bearer {token}"},
            transport=transport,
            timeout=60,
        )
        self.acknowledged = dict.fromkeys(range(count), 0)
        self.failures: list[str] = []
        self.requests = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Clients":
        self._tasks = [asyncio.create_task(self._run(number)) for number in self.acknowledged]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await self._client.aclose()

    async def more(self, count: int) -> None:
        """Wait until this many more requests were answered."""
        target = self.requests + count
        await until(lambda: self.requests >= target)

    async def _run(self, client: int) -> None:
        address = f"/notes/records/note/client-{client}"
        number = 0
        while not self._stopping:
            number += 1
            await self._ask("PUT", address, {"number": number}, client, number)
            await self._ask("GET", address, None, client, number)

    async def _ask(self, method: str, address: str, body: object, client: int, number: int) -> None:
        try:
            response = await self._client.request(method, address, json=body)
        except httpx.HTTPError as error:
            self.failures.append(f"{method} {address}: {error!r}")
            return
        self.requests += 1
        if not response.is_success:
            self.failures.append(f"{method} {address}: {response.status_code} {response.text}")
        elif method == "PUT":
            self.acknowledged[client] = number
        elif response.json()["value"]["number"] != self.acknowledged[client]:
            self.failures.append(f"{method} {address}: {response.text}, not {number}")
