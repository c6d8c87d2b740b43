"""Case 15: `keyhouse serve --workers 2` against one process, with all cores for both.

Over HTTP, requests per second count. The client runs on the same cores, so the CPU time of the
service per request is shown too. Over NATS a second worker must not make a request dearer, so there
the measure is requests per second of the service's CPU time.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
import nats
import uvloop

from benchmarks.services.child import Child
from benchmarks.services.http_client import RequestRun, get, sent
from benchmarks.services.nats import IN_FLIGHT, PluginClient
from benchmarks.services.service_comparison import CONNECTIONS, StartPeer
from keyhouse import Record, Schema, Space
from keyhouse.auth import JwtSettings, mint
from keyhouse.bench.comparison import Measurement, Workload, compare
from keyhouse.bench.result import Result

KEYS: Final = 64
TENANTS: Final = 16
SECRET: Final = "a secret of a benchmark, 32 bytes"
GET_GOAL, PUT_GOAL, CPU_GOAL = 1.7, 1.4, 1 / 1.1


class WorkerNote(msgspec.Struct):
    id: str
    text: str = "x" * 100


NOTES = Schema("notes", Record(WorkerNote, "note:{id}", name="note"), space=Space("a tenant"))


class Service(NamedTuple):
    """A running `keyhouse serve`, with its workers."""

    processes: list[Child]
    port: int
    nats: str

    def cpu_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in self.processes)


@contextlib.asynccontextmanager
async def service(folder: Path, workers: int) -> AsyncIterator[Service]:
    """Run the notes and rosey on SQLite, with the embedded NATS server."""
    folder.mkdir(parents=True)
    flags = {
        "--workers": str(workers),
        "--data": str(folder),
        "--http": "127.0.0.1:0",
        "--nats-port": "0",
    }
    systems = f"{__name__}:NOTES", "rosey"
    environment = {
        "KEYHOUSE_NOTES_JWT_SECRET": SECRET,
        "KEYHOUSE_NOTES_RATE_PER_SECOND": "0",
        "KEYHOUSE_ROSEY_RATE_PER_SECOND": "0",
        "KEYHOUSE_LOG_LEVEL": "warning",
    }
    with (folder / "log").open("wb") as log:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "keyhouse.cli", "serve", *systems, "--json"),
            *(word for flag in flags.items() for word in flag),
            stdout=PIPE,
            stderr=log,
            env={**os.environ, **environment},
        )
    assert parent.stdout is not None
    try:
        started = json.loads(await parent.stdout.readline())
        processes = [Child(id, "") for id in (parent.pid, *_workers(parent.pid))]
        yield Service(processes, int(started["http"].rpartition(":")[2]), started["nats"])
    finally:
        parent.send_signal(signal.SIGTERM)
        await parent.wait()


def _workers(parent: int) -> Iterator[int]:
    """Yield the children of a process, without its nats-server."""
    for id in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if "nats" not in Path(f"/proc/{id}/comm").read_text():
            yield int(id)


def measure(folder: Path, rounds: int, size: int, *peers: StartPeer) -> list[Result]:
    """`peers` get and create one record. Run on uvloop, so that the client costs little."""
    return uvloop.run(_measure(folder, rounds, size, *peers))


async def _measure(
    folder: Path, rounds: int, size: int, peer_get: StartPeer, peer_create: StartPeer
) -> list[Result]:
    async with contextlib.AsyncExitStack() as stack:
        services = {
            "ours": await stack.enter_async_context(service(folder / "two", 2)),
            "baseline": await stack.enter_async_context(service(folder / "one", 1)),
        }
        puts, gets = [*_puts()], [*_gets()]
        for each in services.values():
            await RequestRun(cycle(puts), b"}}", len(puts), created=True).over(each.port, 1)
        results = []
        for work, requests, count, goal, start_peer, peer_goal in (
            ("GET", gets, size, GET_GOAL, peer_get, 4),
            ("PUT", puts, size // 4, PUT_GOAL, peer_create, 2.5),
        ):
            workloads: dict[str, Workload] = {
                name: partial(_http, each, requests, count) for name, each in services.items()
            }
            async with start_peer(folder / work) as peer:
                if peer is not None:
                    run = partial(RequestRun, peer.requests, peer.end, count // 4)
                    workloads["peer"] = lambda run=run, port=peer.port: run().over(  # type: ignore[misc]
                        port, CONNECTIONS
                    )
                measured = await _compared(services, workloads, rounds)
            results.append(
                Result(
                    case="15",
                    work=f"{work} of one record, 2 workers, {CONNECTIONS} connections",
                    unit="requests/s",
                    measurements=measured,
                    goal=goal,
                    baseline="one process",
                    peer_goal=None if peer is None else peer_goal,
                    note="baseline: one process",
                )
            )
        return [*results, *await _over_nats(services, rounds, size // 4)]


def _puts() -> Iterator[bytes]:
    for token in _tokens():
        for number in range(KEYS):
            body = msgspec.json.encode(WorkerNote(f"n{number}"))
            yield sent("PUT", f"/notes/records/note/n{number}", token, body)


def _gets() -> Iterator[bytes]:
    for token in _tokens():
        for number in range(KEYS):
            yield get(f"/notes/records/note/n{number}", token)


def _tokens() -> list[str]:
    settings = JwtSettings(jwt_secret=SECRET)
    return [mint(settings, Path(), f"tenant{number}") for number in range(TENANTS)]


async def _http(service: Service, requests: list[bytes], count: int) -> int:
    return await RequestRun(cycle(requests), b"}}", count).over(service.port, CONNECTIONS)


async def _compared(
    services: dict[str, Service], workloads: dict[str, Workload], rounds: int
) -> list[Measurement]:
    """Compare, with the CPU time of the services in place of the client's."""
    cpu: dict[str, list[float]] = {name: [] for name in workloads}

    async def run(name: str) -> int:
        each = services.get(name)
        before = 0.0 if each is None else each.cpu_seconds()
        count = await workloads[name]()
        after = 0.0 if each is None else each.cpu_seconds()
        cpu[name].append((after - before) / count * 1e6)
        return count

    for name in workloads:
        await run(name)  # to warm up
    measured = await compare({name: partial(run, name) for name in workloads}, rounds=rounds)
    for name, each in measured.items():
        each.cpu_us = median(cpu[name][1:]) if name in services else None
    return [*measured.values()]


async def _over_nats(services: dict[str, Service], rounds: int, size: int) -> list[Result]:
    clients: dict[str, PluginClient] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, each in services.items():
            connection = await nats.connect(each.nats)
            stack.push_async_callback(connection.close)
            clients[name] = PluginClient(connection, each.processes[0].pid, TENANTS)
            await clients[name].workload(clients[name].set, size)()
        results = []
        for verb in ("get", "set"):
            workloads: dict[str, Any] = {
                name: client.workload(getattr(client, verb), size)
                for name, client in clients.items()
            }
            measured = await _compared(services, workloads, rounds)
            for measurement in measured:
                measurement.median = 1e6 / (measurement.cpu_us or 1)
            results.append(
                Result(
                    case="15",
                    work=f"{verb} of {TENANTS} plugins over NATS, 2 workers, {IN_FLIGHT} in flight",
                    unit=f"{verb}/s of CPU",
                    measurements=measured,
                    goal=CPU_GOAL,
                    baseline="one process",
                    note="baseline: one process; rounds: per second",
                )
            )
        return results
