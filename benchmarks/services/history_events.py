"""Case 9: a viewing event over HTTP with a token, durable, against a constant on the same server.

Each of 64 connections is the client of one profile, which reports progress of one of ten assets: a
commit that changes the entry and its place in the order of time.
"""

import contextlib
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import uvloop

from benchmarks.services.child import child
from benchmarks.services.cpu_affinity import separate_cores
from benchmarks.services.history_server import SECRET
from benchmarks.services.http_client import Run
from keyhouse.auth import mint
from keyhouse.bench.comparison import Workload, compare
from keyhouse.bench.result import Result
from keyhouse.schema import MILLISECONDS
from keyhouse.systems.history.settings import HistorySettings

CONNECTIONS = 64
ASSETS = 10
STARTS_AT = 1_768_737_600_000


class EventRun(Run):
    """Sends another event each time."""

    def __init__(self, events: Iterator[bytes], end: bytes, count: int) -> None:
        super().__init__(b"", end, count)
        self._events = events

    def next_request(self) -> bytes:
        return next(self._events)


def events() -> Iterator[bytes]:
    """Events of all profiles in turn, each newer than the one before."""
    settings = HistorySettings(jwt_secret=SECRET)
    tokens = [mint(settings, Path(), f"profile-{n}") for n in range(CONNECTIONS)]
    for number, (profile, token) in zip(count(), cycle(enumerate(tokens)), strict=False):
        asset = number // CONNECTIONS % ASSETS
        body = (
            b'{"assetType":"tv-episode","totalTime":6604,"progress":%d,"updateTime":"%s",'
            b'"ext":{"showCategoryId":"1446","seasonCategoryId":"1450"}}'
        ) % (number % 6_000, MILLISECONDS.format(STARTS_AT + number).encode())
        head = (
            f"PUT /history/profiles/profile-{profile}/assets/{asset} HTTP/1.1\r\n"
            f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


def measure(folder: Path, rounds: int, size: int) -> Result:
    return uvloop.run(_measure(folder, rounds, size))


async def _measure(folder: Path, rounds: int, size: int) -> Result:
    async with contextlib.AsyncExitStack() as stack:
        move_to_client_core = stack.enter_context(separate_cores())
        ports = {}
        for variant in ("ours", "baseline"):
            data = folder / variant
            data.mkdir(parents=True, exist_ok=True)
            module = "benchmarks.services.history_server"
            started = await stack.enter_async_context(
                child(module, variant, str(data), log=data / "log")
            )
            ports[variant] = int(started.line)
        move_to_client_core()
        sent = events()

        def workload(variant: str, end: bytes) -> Workload:
            return lambda: EventRun(sent, end, size).over(ports[variant], CONNECTIONS)

        workloads = {
            "ours": workload("ours", b'"applied":true}'),
            "baseline": workload("baseline", b"}"),
        }
        for warm_up in workloads.values():
            await warm_up()
        measured = await compare(workloads, rounds=rounds)
    return Result(
        case="9",
        work=f"PUT of a viewing event with a token, durable, {CONNECTIONS} connections",
        unit="requests/s",
        measurements=list(measured.values()),
        goal=0.35,
        baseline="a constant on the same server, which reads the body",
        note="SQLite, synchronous; one profile for each connection",
    )
