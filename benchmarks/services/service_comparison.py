"""A service over HTTP against a constant on the same server, and against a peer."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import uvloop

from benchmarks.services.child import child
from benchmarks.services.cpu_affinity import separate_cores
from benchmarks.services.http_client import RequestRun
from keyhouse.bench.comparison import Measurement, Workload, compare
from keyhouse.bench.result import Result

CONNECTIONS = 64
BY_HAND_GOAL = 0.35
"""Of the speed of a service by hand that lacks all but the rows themselves."""

_BASELINE = "benchmarks.services.constant_server"


class Peer(NamedTuple):
    """A running peer, the requests to send, and the last bytes of its responses."""

    port: int
    requests: Iterator[bytes]
    end: bytes


StartPeer = Callable[[Path], contextlib.AbstractAsyncContextManager[Peer | None]]


class Comparison(NamedTuple):
    """`module` is run as `python -m MODULE FOLDER`: it prints `port` and more as JSON, from which
    `requests` makes the requests. Their responses end with `end`. `peer_share` is the part of them
    that the peer gets, which may be slower. `by_hand` is a module that answers the same requests by
    hand."""

    module: str
    requests: Callable[[Any], Iterator[bytes]]
    end: bytes
    start_peer: StartPeer | None = None
    peer_share: int = 4
    by_hand: str | None = None

    def measure(self, folder: Path, rounds: int, size: int) -> dict[str, Measurement]:
        """Run on uvloop, the fastest event loop, so that the client is not what is measured."""
        return uvloop.run(self._measure(folder, rounds, size))

    async def _measure(self, folder: Path, rounds: int, size: int) -> dict[str, Measurement]:
        async with contextlib.AsyncExitStack() as stack:
            move_to_client_core = stack.enter_context(separate_cores())
            for name in ("ours", "baseline", "by hand"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            data, log = folder / "ours", folder / "log"
            ours = await stack.enter_async_context(child(self.module, str(data), log=log))
            started = msgspec.json.decode(ours.line)
            data = folder / "baseline"
            constant = await stack.enter_async_context(
                child(_BASELINE, str(data), log=data / "log")
            )
            constant_port = msgspec.json.decode(constant.line)["port"]
            servers = {"ours": ours, "baseline": constant}
            if self.by_hand is not None:
                data = folder / "by hand"
                servers["by hand"] = await stack.enter_async_context(
                    child(self.by_hand, str(data), log=data / "log")
                )
            peer = None
            if self.start_peer is not None:
                peer = await stack.enter_async_context(self.start_peer(folder))
            move_to_client_core()
            requests = self.requests(started)
            cpu: dict[str, list[float]] = {name: [] for name in servers}

            async def run(name: str, port: int, end: bytes) -> int:
                before = servers[name].cpu_seconds()
                await RequestRun(requests, end, size).over(port, CONNECTIONS)
                cpu[name].append((servers[name].cpu_seconds() - before) / size * 1e6)
                return size

            workloads: dict[str, Workload] = {
                "ours": lambda: run("ours", started["port"], self.end),
                "baseline": lambda: run("baseline", constant_port, b"}"),
            }
            if "by hand" in servers:
                hand_port = msgspec.json.decode(servers["by hand"].line)["port"]
                workloads["by hand"] = lambda: run("by hand", hand_port, self.end)
            if peer is not None:
                workloads["peer"] = lambda: RequestRun(
                    peer.requests, peer.end, size // self.peer_share
                ).over(peer.port, CONNECTIONS)
            for warm_up in workloads.values():
                await warm_up()
            measured = await compare(workloads, rounds=rounds)
        for name, each in measured.items():
            # the server's CPU time replaces the client's
            each.cpu_us = median(cpu[name][1:]) if name in cpu else None
        return measured


def against_hand(result: Result, measured: dict[str, Measurement], goal: float) -> Result:
    """Return the same work against the server by hand."""
    by_hand = msgspec.structs.replace(measured["by hand"], name="baseline")
    return msgspec.structs.replace(
        result,
        case=f"{result.case} by hand",
        measurements=[measured["ours"], by_hand],
        goal=goal,
        peer_goal=None,
        baseline="the same rows by a raw ASGI application and `apsw`, on the same server",
    )
