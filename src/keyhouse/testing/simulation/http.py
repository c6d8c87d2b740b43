"""HTTP between a client and ASGI applications of simulated processes, without sockets.

    network = SimulatedHttp(world, lambda: served)
    store = RemoteStore(SCHEMA, "http://service", token, network=network)

A request reaches the process that the function names at that moment, as through a proxy. It is
delayed and lost like a call of the engine, and aborted if its process is killed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any, NamedTuple

import httpx

from keyhouse.testing.simulation.simulation import SimulatedProcess, World

__all__ = ["ServedApp", "SimulatedHttp"]


class ServedApp(NamedTuple):
    """An ASGI application, and the process that it runs in."""

    process: SimulatedProcess
    app: Any


class SimulatedHttp(httpx.AsyncBaseTransport):
    """Implements httpx's transport. `served` returns the process that answers, or None."""

    def __init__(self, world: World, served: Callable[[], ServedApp | None]) -> None:
        self._world = world
        self._served = served
        self._random = Random(world.random.getrandbits(64))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        network, fate = self._world.server.network, self._random.random()
        body = await request.aread()
        await self._delay()
        served = self._served()
        if served is None or not served.process.is_alive:
            raise httpx.ConnectError("no process is up", request=request)
        if (fate := fate - network.lost_request) < 0:
            await asyncio.sleep(network.timeout_seconds)
            raise httpx.ReadTimeout("the request was lost", request=request)
        exchange = _Exchange(served, request, body)
        await exchange.started
        if fate < network.lost_reply:
            await exchange.aclose()
            self._world.note("network", f"loses the reply to {request.method} {request.url.path}")
            raise httpx.ReadTimeout("the reply was lost", request=request)
        await self._delay()
        return httpx.Response(exchange.status, headers=exchange.headers, stream=exchange)

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self._world.server.network.delay_seconds))


class _Exchange(httpx.AsyncByteStream):
    """One request in its process, and the stream of its response."""

    def __init__(self, served: ServedApp, request: httpx.Request, body: bytes) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._body: bytes | None = body
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = asyncio.Event()
        self._is_whole = False
        url = request.url
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": url.path,
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
            "server": ("service", 80),
        }
        task = served.process.spawn(served.app(scope, self._receive, self._send))
        task.add_done_callback(self._ended)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
            if not self.started.done():
                self.started.set_result(None)
        else:
            self._chunks.put_nowait(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                self._is_whole = True
                self._chunks.put_nowait(None)

    def _ended(self, _: object) -> None:
        """The process was killed, or the application has answered."""
        if not self.started.done():
            self.started.set_exception(httpx.ReadError("aborted", request=self._request))
        self._chunks.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        if not self._is_whole:
            raise httpx.ReadError("aborted", request=self._request)

    async def aclose(self) -> None:
        self._closed.set()
