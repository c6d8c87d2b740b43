"""A well-behaved tenant: asks at a steady rate and records how long each answer takes.

Runs as a separate process (`python -m tests.abuse.support.neighbor ...`), so that the attacking
client's work is not part of the figures. Prints a line when it has started, and after the end of
its standard input one JSON object: seconds by kind of request.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Self

import httpx
import msgspec
import nats

from tests.abuse.support.server import ServerProcess
from tests.sizes import SOAK
from tests.support.program import STDERR, PipedProcess

PER_SECOND = 25
TIMEOUT_SECONDS = 30 if SOAK else 120
"""Without a response until then, a request has failed."""

NOTE = {"id": "mine", "title": "t", "content": "c"}


class Latencies(msgspec.Struct):
    """Seconds of each answered request, by kind; `errors` counts those that failed."""

    seconds: dict[str, list[float]]
    errors: list[str]

    @property
    def p99(self) -> float:
        """The worst p99 over all kinds."""
        return max(_quantile(values, 0.99) for values in self.seconds.values())

    def summary(self) -> str:
        return ", ".join(
            f"{kind} p50 {_quantile(values, 0.5) * 1e3:.0f} ms p99 "
            f"{_quantile(values, 0.99) * 1e3:.0f} ms ({len(values)})"
            for kind, values in self.seconds.items()
        )


class Neighbor:
    """A measurement that runs in its own process, from the start of the block to `result`."""

    def __init__(self, server: ServerProcess) -> None:
        arguments = (server.http, server.nats, server.token("neighbor"))
        self._process = PipedProcess("tests.abuse.support.neighbor", *arguments, errors=STDERR)

    def __enter__(self) -> Self:
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def result(self) -> Latencies:
        self._process.stdin.close()
        output = self._process.stdout.read()
        assert self._process.wait(60) == 0, "the neighbor has failed"
        return msgspec.json.decode(output, type=Latencies)


def _quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("inf")


async def _measure(http: str, nats_url: str, token: str) -> Latencies:
    result = Latencies({kind: [] for kind in ("http get", "http put", "nats get", "nats set")}, [])
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=f"{http}/streamkit", headers=headers, timeout=TIMEOUT_SECONDS
    ) as client:
        await client.post("/configs/notes", json=NOTE)
        connection = await nats.connect(nats_url)

        async def ask(operation: str, body: dict[str, Any]) -> None:
            answer = await connection.request(
                f"db.kv.neighbor.{operation}", json.dumps(body).encode(), timeout=TIMEOUT_SECONDS
            )
            assert json.loads(answer.data)["success"] is True, answer.data

        async def get() -> None:
            (await client.get("/configs/notes/mine")).raise_for_status()

        async def put() -> None:
            (await client.put("/configs/notes/mine", json=NOTE)).raise_for_status()

        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "http get": get,
            "http put": put,
            "nats get": lambda: ask("get", {"key": "k"}),
            "nats set": lambda: ask("set", {"key": "k", "value": 1}),
        }
        await ask("set", {"key": "k", "value": 1})
        print("started", flush=True)
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))

        async def repeat(kind: str, call: Callable[[], Awaitable[None]]) -> None:
            pending: set[asyncio.Task[None]] = set()

            async def once() -> None:
                start = perf_counter()
                try:
                    await call()
                except Exception as error:
                    result.errors.append(f"{kind}: {error!r}")
                result.seconds[kind].append(perf_counter() - start)

            while not end.done():
                task = asyncio.create_task(once())
                pending.add(task)
                task.add_done_callback(pending.discard)
                await asyncio.sleep(1 / PER_SECOND)
            if pending:
                await asyncio.wait(pending)

        await asyncio.gather(*(repeat(kind, call) for kind, call in kinds.items()))
        await connection.close()
    return result


if __name__ == "__main__":
    measured = asyncio.run(_measure(*sys.argv[1:]))
    sys.stdout.write(msgspec.json.encode(measured).decode())
