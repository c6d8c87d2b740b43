"""The processes that `make bench` measures start with the settings of today.

A renamed setting once stopped every case over NATS, and only a run of `make bench` showed it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks import audio_scans, catalog_searches, searches
from benchmarks.services import history_events, playback_positions, schema_records
from benchmarks.services.http import server_process
from benchmarks.services.http_client import Run, get
from benchmarks.services.media import RANGE_BYTES, RangeRun, Streams, media_server
from benchmarks.services.media_server import FILE
from benchmarks.services.nats import plugin_client


def test_the_plugin_service_of_the_benchmark_sets_and_gets(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with plugin_client(tmp_path) as client:
            await client.workload(client.set, 10)()
            return await client.workload(client.get, 10)()

    assert asyncio.run(scenario()) == 10


def test_the_http_servers_of_the_benchmark_respond(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        async with (
            server_process("ours", tmp_path) as ours,
            server_process("baseline", tmp_path) as baseline,
        ):
            request = get(f"/streamkit/configs/notes/{ours.note}", ours.token)
            return [
                await Run(request, b"}}", 10).over(ours.port, 2),
                await Run(request, b"}", 10).over(baseline.port, 2),
            ]

    assert asyncio.run(scenario()) == [10, 10]


def test_the_search_of_the_benchmark_finds_what_the_one_by_hand_finds(tmp_path: Path) -> None:
    result = asyncio.run(searches.measure(tmp_path, rounds=1, size=200, count=20))
    assert result.ratio is not None and result.ratio > 0


def test_the_catalog_of_the_benchmark_finds_what_the_one_by_hand_finds(tmp_path: Path) -> None:
    result = asyncio.run(catalog_searches.measure(tmp_path, rounds=1, size=200, count=20))
    assert result.ratio is not None and result.ratio > 0


@pytest.mark.extra
def test_the_services_of_the_benchmark_respond(tmp_path: Path) -> None:
    results = [
        *schema_records.measure(tmp_path / "schema", 1, 80, _no_peer, _no_peer),
        history_events.measure(tmp_path / "history", 1, 80, _no_peer),
        playback_positions.measure(tmp_path / "playback", 1, 80),
    ]
    assert [each.case for each in results if each.ratio] == ["6b", "6b list", "9", "10"]


@asynccontextmanager
async def _no_peer(_: Path) -> AsyncIterator[None]:
    yield None


@pytest.mark.extra
def test_the_scans_of_the_benchmark_find_all_files(tmp_path: Path) -> None:
    for result in asyncio.run(audio_scans.measure(tmp_path, rounds=1, count=40)):
        assert result.ratio is not None and result.ratio > 0


@pytest.mark.extra
def test_the_media_servers_of_the_benchmark_deliver_events_and_ranges(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        async with (
            media_server("ours", tmp_path) as ours,
            media_server("baseline", tmp_path) as baseline,
        ):
            streams = Streams(int(ours.line), 3)
            await streams.open()
            assert await streams.change(1) >= 0
            streams.close()
            return [
                await RangeRun(f"/media/{FILE}", 4).over(int(ours.line), 2),
                await RangeRun(f"/{FILE}", 4).over(int(baseline.line), 2),
            ]

    assert asyncio.run(scenario()) == [4 * RANGE_BYTES >> 20] * 2
