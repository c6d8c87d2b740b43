"""A service over HTTP against a baseline on the same server, and against a peer.

The baseline is the same work by hand where there is such a server, beside which a constant shows
what HTTP alone costs; else the constant.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import uvloop

from benchmarks.services.child import Child, child
from benchmarks.services.cpu_affinity import separate_cores
from benchmarks.services.http_client import RequestRun
from keyhouse.bench.comparison import Measurement, Workload, compare

CONNECTIONS = 64
BY_HAND = "the same work by a raw ASGI application and `apsw`, on the same server"

_CONSTANT = "benchmarks.services.constant_server"


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
    hand: then it is the baseline, and the constant is measured as `constant`."""

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
            modules = {"ours": self.module, "baseline": self.by_hand or _CONSTANT}
            if self.by_hand is not None:
                modules["constant"] = _CONSTANT
            servers: dict[str, Child] = {}
            for name, module in modules.items():
                data = folder / name
                data.mkdir(parents=True, exist_ok=True)
                servers[name] = await stack.enter_async_context(
                    child(module, str(data), log=folder / f"{name}.log")
                )
            started = {name: msgspec.json.decode(each.line) for name, each in servers.items()}
            peer = None
            if self.start_peer is not None:
                peer = await stack.enter_async_context(self.start_peer(folder))
            move_to_client_core()
            requests = self.requests(started["ours"])
            cpu: dict[str, list[float]] = {name: [] for name in servers}

            async def run(name: str) -> int:
                end = b"}" if modules[name] is _CONSTANT else self.end
                before = servers[name].cpu_seconds()
                await RequestRun(requests, end, size).over(started[name]["port"], CONNECTIONS)
                cpu[name].append((servers[name].cpu_seconds() - before) / size * 1e6)
                return size

            workloads: dict[str, Workload] = {name: partial(run, name) for name in servers}
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
