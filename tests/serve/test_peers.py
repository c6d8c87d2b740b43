"""The metrics and the readiness of workers, merged by one of them."""

import asyncio
import socket
from pathlib import Path

import prometheus_client
import pytest

from keyhouse.errors import UnavailableError
from keyhouse.serve import peers
from keyhouse.serve.health import Health
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.peers import FOLDER, Peers, retain_counters


async def broken() -> None:
    raise UnavailableError("It is broken.")


async def fine() -> None:
    pass


class Worker:
    """The metrics and health of a process, without the process."""

    def __init__(self, data: Path, name: str, *, check: object = fine) -> None:
        self.metrics = Metrics("1")
        self.health = Health(self.metrics)
        self.health.add("jars", check)  # type: ignore[arg-type]  # a check
        registry = self.metrics.registry
        self.made = prometheus_client.Counter("made", "Made.", ["kind"], registry=registry)
        self.stored = prometheus_client.Gauge("stored_keys", "Stored.", registry=registry)
        self.active = prometheus_client.Gauge("jars_watches", "Active.", registry=registry)
        self.peers = Peers(data, name, self.metrics, self.health)

    def count(self, kind: str, made: int, *, stored: int, active: int) -> None:
        self.made.labels(kind).inc(made)
        self.stored.set(stored)
        self.active.set(active)

    async def lines(self) -> set[str]:
        return set((await self.peers.page()).decode().splitlines())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder whose path is longer than the address of a socket may be."""
    data = tmp_path / ("long" * 30)
    (data / FOLDER).mkdir(parents=True)
    return data


def test_counters_are_summed_and_gauges_of_the_store_are_not(data: Path) -> None:
    async def story() -> None:
        one, two = Worker(data, "0-1"), Worker(data, "1-2")
        async with one.peers.listening(), two.peers.listening():
            one.count("jam", 3, stored=10, active=1)
            two.count("jam", 4, stored=12, active=2)
            two.count("honey", 1, stored=12, active=2)
            for each in (one, two):
                lines = await each.lines()
                assert {
                    'made_total{kind="jam"} 7.0',
                    'made_total{kind="honey"} 1.0',
                    "stored_keys 12.0",
                    "jars_watches 3.0",
                    'keyhouse_system_ready{system="jars"} 1.0',
                } <= lines

    asyncio.run(story())


def test_a_sum_that_was_shown_never_falls(data: Path) -> None:
    """Prometheus takes a counter that falls for one that started again, and adds all of it."""

    async def story() -> None:
        one, two, three = (Worker(data, name) for name in ("0-1", "1-2", "1-3"))
        async with one.peers.listening():
            async with two.peers.counted(), two.peers.listening():
                two.count("jam", 4, stored=12, active=2)
                assert 'made_total{kind="jam"} 4.0' in await one.lines()
                two.count("jam", 1, stored=12, active=2)  # not shown, but written when it stops
            assert 'made_total{kind="jam"} 5.0' in await one.lines()
            retain_counters(data / FOLDER, "1-2")
            async with three.peers.listening():
                three.count("jam", 2, stored=9, active=0)
                lines = await three.lines()
                assert {'made_total{kind="jam"} 7.0', "stored_keys 9.0"} <= lines
            retain_counters(data / FOLDER, "1-3")
            retain_counters(data / FOLDER, "1-4")  # it ended before it showed anything
            assert 'made_total{kind="jam"} 7.0' in await one.lines()

    asyncio.run(story())


def test_all_are_ready_or_the_reason_is_of_one_that_is_not(data: Path) -> None:
    async def story() -> None:
        one, two = Worker(data, "0-1"), Worker(data, "1-2", check=broken)
        async with one.peers.listening():
            assert (await one.peers.readiness()).ready
            async with two.peers.listening():
                readiness = await one.peers.readiness()
                assert not readiness.ready
                assert readiness.systems["jars"].why == "It is broken."
                assert 'keyhouse_system_ready{system="jars"} 0.0' in await one.lines()
            assert (await one.peers.readiness()).ready

    asyncio.run(story())


def test_a_worker_that_hangs_is_not_ready_and_one_that_was_killed_does_not_count(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "ANSWER_SECONDS", 0.01)

    async def story() -> None:
        one = Worker(data, "0-1")
        with socket.socket(socket.AF_UNIX) as hung:
            monkeypatch.chdir(data / FOLDER)
            hung.bind("1-2.socket")
            hung.listen()
            readiness = await one.peers.readiness()
            assert readiness.systems["jars"].why == "Worker 1 does not respond: see the log."
            assert "stored_keys 0.0" in await one.lines()
        assert (await one.peers.readiness()).ready

    asyncio.run(story())
