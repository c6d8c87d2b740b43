"""The metrics and the readiness of all workers of a host, from any of them.

Each worker listens on a private Unix socket in the folder `workers` of the data folder. It answers
with its readiness, or it writes its figures to its file beside the socket, and answers that it has.
The worker that is scraped asks all, then reads the files and merges them:

| figure | of all workers |
|---|---|
| counter, histogram | the sum, with those of processes that have ended: it never falls |
| gauge of what one process does (`_SUMMED`) | the sum |
| any other gauge, such as keys stored | the largest: each worker sees the same store |
| readiness | ready if all are |

A file outlives its process, so a count that was once shown is never lost: the parent adds it to the
file of ended processes (`retain_counters`). A worker that stops first removes its socket, so that
nobody waits for it, and last writes its figures once more.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from keyhouse.serve.health import CHECK_SECONDS, Health, Readiness, SystemHealth
from keyhouse.serve.metrics import Metrics

__all__ = ["FOLDER", "Peers", "retain_counters"]

FOLDER: Final = "workers"
"""The folder of sockets and figures, in the data folder."""

ANSWER_SECONDS: Final = CHECK_SECONDS + 1.0
"""Timeout of a peer, whose own checks have theirs."""

_SUMMED: Final = (
    "_blocking_calls",
    "_event_streams",
    "_in_flight",
    "_memory_bytes",
    "_open_fds",
    "_operations_running",
    "_watches",
)
"""Ends of the names of gauges that are summed."""

_READINESS: Final = b"r"
_FIGURES: Final = b"f"
_SOCKET: Final = ".socket"
_FILE: Final = ".figures"
_ENDED: Final = "ended"

_log = structlog.get_logger("keyhouse.serve")


class Sample(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric with all its samples."""

    name: str
    kind: str
    about: str
    samples: list[Sample]


class StoredMetrics(msgspec.Struct, frozen=True, array_like=True):
    """The metrics of one process, or the counters of those that have `ended`."""

    families: list[Family]
    ended: list[str] = []


class Peers:
    """The workers of a host, as one of them sees them: `name` is that of this process."""

    def __init__(self, data: Path, name: str, metrics: Metrics, health: Health) -> None:
        self._folder = data / FOLDER
        self._name = name
        self._metrics = metrics
        self._health = health
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Write the figures when the block ends."""
        yield
        await self._write()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer the peers until the block ends."""
        listening = socket.socket(socket.AF_UNIX)
        path = self._folder / f"{self._name}{_SOCKET}"
        with _address(path) as address:
            listening.bind(address)
        async with AsyncExitStack() as stack:
            stack.callback(path.unlink, missing_ok=True)
            server = await asyncio.start_unix_server(self._answer, sock=listening)
            stack.callback(server.close)
            yield

    async def readiness(self) -> Readiness:
        """Return the readiness of all workers: ready if all are, with the reason of one that is
        not."""
        asking = (self._peer_readiness(path) for path in self._sockets())
        peers = await asyncio.gather(*asking)
        systems = dict((await self._health.readiness()).systems)
        for peer in peers:
            for name, health in () if peer is None else peer.systems.items():
                if not health.ready:
                    systems[name] = health
        return Readiness(all(health.ready for health in systems.values()), systems)

    async def page(self) -> bytes:
        """Return the merged metrics of all workers in the text format of Prometheus."""
        await asyncio.gather(
            self._write(), *(self._ask(each, _FIGURES) for each in self._sockets())
        )
        return await asyncio.to_thread(lambda: _page(_read_all(self._folder)))

    def _sockets(self) -> list[Path]:
        own = f"{self._name}{_SOCKET}"
        return [each for each in self._folder.glob(f"*{_SOCKET}") if each.name != own]

    async def _peer_readiness(self, path: Path) -> Readiness | None:
        """Return None if the peer has ended."""
        answer = await self._ask(path, _READINESS)
        if answer is None:
            reason = f"Worker {path.stem.partition('-')[0]} does not respond: see the log."
            hung = SystemHealth(False, "TIMEOUT", reason)
            return Readiness(False, dict.fromkeys(self._health.systems, hung))
        return msgspec.json.decode(answer, type=Readiness) if answer else None

    async def _ask(self, path: Path, question: bytes) -> bytes | None:
        """Return the answer of a peer; nothing if it has ended, None if it does not respond."""
        try:
            with _address(path) as address:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reader, writer = await asyncio.open_unix_connection(address)
                    try:
                        writer.write(question)
                        return await reader.read()
                    finally:
                        writer.close()
        except TimeoutError:
            return None
        except OSError:
            return b""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = await reader.read(1)
            if question == _READINESS:
                writer.write(msgspec.json.encode(await self._health.readiness()))
            elif question == _FIGURES:
                await self._write()
                writer.write(b"done")
            await writer.drain()
        except OSError:
            _log.exception("a worker could not answer another")
        finally:
            writer.close()

    async def _write(self) -> None:
        await self._health.readiness()
        path = self._folder / f"{self._name}{_FILE}"
        collect = self._metrics.registry.collect
        async with self._writing:  # in a thread: 15 MB with a thousand plugins
            await asyncio.to_thread(lambda: _write(path, StoredMetrics(_families(collect()))))


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield the address of a Unix socket, which must be short: on Linux, by its open folder."""
    if sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


# Merging


def retain_counters(folder: Path, name: str) -> None:
    """Add the counters of a process that has ended to those of others. Called by the parent, which
    is the only one that writes that file."""
    path = folder / f"{name}{_FILE}"
    ended = folder / f"{_ENDED}{_FILE}"
    try:
        former = _read(ended)
        counters = [each for each in _read(path).families if _is_counted(each)]
        merged = _merged([*former.families, *counters])
        _write(ended, StoredMetrics(merged, [*former.ended, name]))
        path.unlink(missing_ok=True)
    except OSError as error:  # such as a full disk
        _log.warning("the counters of a worker are lost", reason=error.strerror)
    (folder / f"{name}{_SOCKET}").unlink(missing_ok=True)


def _read_all(folder: Path) -> list[Family]:
    ended = _read(folder / f"{_ENDED}{_FILE}")
    families = [*ended.families]
    for path in folder.glob(f"*{_FILE}"):
        if path.stem not in (_ENDED, *ended.ended):
            families += _read(path).families
    return families


def _read(path: Path) -> StoredMetrics:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=StoredMetrics)
    except FileNotFoundError:
        return StoredMetrics([])


def _write(path: Path, figures: StoredMetrics) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.msgpack.encode(figures))
    new.replace(path)


def _families(metrics: Iterable[Metric]) -> list[Family]:
    return [
        Family(
            each.name,
            each.type,
            each.documentation,
            [Sample(sample.name, sample.labels, sample.value) for sample in each.samples],
        )
        for each in metrics
    ]


def _is_counted(family: Family) -> bool:
    return family.kind in ("counter", "histogram", "summary")


def _merged(families: Sequence[Family]) -> list[Family]:
    merged: dict[str, dict[tuple[Any, ...], Sample]] = {}
    about: dict[str, Family] = {}
    for family in families:
        about.setdefault(family.name, family)
        samples = merged.setdefault(family.name, {})
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            if (other := samples.get(key)) is not None:
                value = _merge(family, sample.name)([other.value, sample.value])
                sample = Sample(sample.name, sample.labels, value)
            samples[key] = sample
    return [
        Family(name, about[name].kind, about[name].about, [*samples.values()])
        for name, samples in merged.items()
    ]


def _merge(family: Family, sample: str) -> Any:
    if sample.endswith("_created") or family.name == "keyhouse_system_ready":
        return min
    return sum if _is_counted(family) or family.name.endswith(_SUMMED) else max


def _page(families: Sequence[Family]) -> bytes:
    return generate_latest(_Collected(_merged(families)))


class _Collected:
    """Merged figures as a registry."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.about, family.kind)
            for sample in family.samples:
                metric.add_sample(sample.name, sample.labels, sample.value)
            yield metric
