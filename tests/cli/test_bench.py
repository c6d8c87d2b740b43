"""`keyhouse bench` measures against a baseline, and leaves the store unchanged."""

import asyncio
import json
import os
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nats
import pytest

from benchmarks.services.cpu_affinity import separate_cores
from keyhouse.bench import (
    BenchReport,
    Measurement,
    Result,
    Scratch,
    open_scratch,
    parse_cases,
    run_cases,
    svg,
)
from keyhouse.bench.keyspace import SCHEMA, TRACK, rows_by_hand, track
from keyhouse.engine import Batch, Put
from keyhouse.engines.registry import open_engine
from keyhouse.engines.sql import migrate
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.store import Store
from tests.store.support.filled_engines import contents
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import nats_server
from tests.support.program import run
from tests.support.terminal import CTRL_C, on_terminal

ULID = "01HQ3K5V7X9ZB2D4F6G8J0K2M4"


def test_the_baseline_writes_the_same_rows_as_the_store() -> None:
    async def scenario() -> dict[str, bytes]:
        engine = await open_engine("memory:")
        await Store(SCHEMA, engine, "s").put(TRACK, track(ULID, 7, ULID))
        return {key: value for key, (value, _) in (await contents(engine))["s"].items()}

    assert asyncio.run(scenario()) == dict(rows_by_hand(track(ULID, 7, ULID)))


def make_store(folder: Path) -> None:
    async def fill() -> None:
        engine = await open_engine(f"sqlite:{folder}/a.db")
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        await engine.close()

    asyncio.run(fill())


def test_bench_uses_a_separate_file_and_leaves_the_store_unchanged(tmp_path: Path) -> None:
    make_store(tmp_path)
    before = (tmp_path / "a.db").read_bytes()
    named = ("--store", "sqlite:a.db", "--cases", "3,4,5,commit,read,8", "--plot", "b.svg")
    ran = run("bench", "--seconds", "0.01", "--json", *named, cwd=tmp_path)
    report = json.loads(ran.stdout)
    assert report["engine"] == "sqlite" and report["durable"] and report["rounds"] == 5
    assert [result["case"] for result in report["results"]] == [
        "3",
        "4",
        "5",
        "8",
        "commit",
        "read",
    ]
    for result in report["results"]:
        ours, baseline = result["measurements"]
        assert len(ours["rounds"]) == len(baseline["rounds"]) == 5
        assert result["baseline"] == "apsw by hand"
        assert result["ratio"] == pytest.approx(ours["median"] / baseline["median"])
    assert "a file next to it, removed at the end" in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "b.svg"]
    assert (tmp_path / "a.db").read_bytes() == before
    xml.etree.ElementTree.parse(tmp_path / "b.svg")


def test_ctrl_c_removes_the_scratch_area(tmp_path: Path) -> None:
    make_store(tmp_path)
    shown = on_terminal(
        "bench",
        "--store",
        "sqlite:a.db",
        "--cases",
        "3,4",
        cwd=tmp_path,
        typed=[("calibrating", CTRL_C)],
        code=130,
    )
    assert "Stopped. The scratch area was removed." in shown and "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    assert (
        "File not found" in run("bench", "--store", "sqlite:gone.db", cwd=tmp_path, code=1).stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_case_is_rejected_by_name() -> None:
    with pytest.raises(UsageError, match="Unknown case"):
        parse_cases("3,9")
    assert parse_cases("read,3") == ["3", "read"]


def test_on_a_shared_engine_it_uses_separate_spaces_and_empties_them(tmp_path: Path) -> None:
    """As on DynamoDB. A sweep covers all spaces, so it is skipped, with the reason."""
    make_store(tmp_path)
    url = f"sqlite:{tmp_path}/a.db"

    async def scenario() -> tuple[BenchReport, list[str]]:
        scratch = Scratch(
            url, url, "separate spaces", "keyhouse-bench-1", is_exclusive=False, is_shared=True
        )
        report = await run_briefly(scratch, "3", "8")
        engine = await open_engine(url)
        left = [space async for space in engine.spaces()]
        await engine.close()
        return report, left

    report, left = asyncio.run(scenario())
    assert [(each.case, each.baseline) for each in report.results] == [("3", "the engine alone")]
    assert "a sweep covers all spaces" in report.skipped["8"]
    assert left == ["s"]


def test_on_postgresql_it_uses_separate_tables_and_drops_them() -> None:
    async def scenario() -> tuple[BenchReport, str | None]:
        async with open_scratch(await postgres_schema()) as scratch:
            report = await run_briefly(scratch, "3", "8")
            assert await asyncio.to_thread(migrate.current, scratch.url) is not None
        return report, await asyncio.to_thread(migrate.current, scratch.url)

    report, tables = asyncio.run(scenario())
    assert [each.case for each in report.results] == ["3", "8"] and report.results[1].ratio is None
    assert tables is None


@pytest.mark.parametrize("more", ["bucket=mine", "prefix=mine-"])
def test_on_nats_it_uses_separate_buckets_and_removes_them(more: str) -> None:
    """Spaces in the user's bucket left a tombstone for each row, or empty buckets."""

    async def scenario() -> list[str]:
        async with open_scratch(f"{nats_server().url}/?{more}") as scratch:
            await write_to_each_space(scratch)
        client = await nats.connect(nats_server().url)
        names = [info.config.name or "" for info in await client.jetstream().streams_info()]
        await client.close()
        return names

    assert [name for name in asyncio.run(scenario()) if "keyhouse-bench" in name] == []


async def write_to_each_space(scratch: Scratch) -> None:
    async with scratch.open() as engine:
        for space in scratch.spaces:
            await engine.commit(space, Batch(puts=(Put("k", b"1"),), id="once"))


async def run_briefly(scratch: Scratch, *cases: str) -> BenchReport:
    return await run_cases(
        scratch, cases, rounds=5, seconds=0.01, on_progress=ignore, on_result=ignore
    )


def ignore(_: object) -> None:
    pass


def test_the_chart_marks_the_goal() -> None:
    measurements = [Measurement("ours", 50.0, [50.0]), Measurement("baseline", 100.0, [100.0])]
    result = Result(
        case="3",
        work="put <&>",
        unit="records/s",
        measurements=measurements,
        goal=0.6,
        baseline="hand",
    )
    drawn = svg("Title & more", "note", [result])
    assert "put &lt;&amp;&gt;" in drawn and ">0.50<" in drawn and "<line" in drawn
    assert not result.meets_goals


def current_cores() -> set[int]:
    """Return an empty set where the system does not report affinity."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def test_client_and_servers_get_separate_cores_which_are_restored_after_an_error() -> None:
    """On a single core the client has that one."""
    cores = current_cores()

    def in_new_block() -> set[int]:
        with separate_cores() as move_to_client_core:
            move_to_client_core()
            return current_cores()

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(UnavailableError), separate_cores():
            threads.submit(int).result()  # starts the thread on the servers' cores
            raise UnavailableError("The measured process did not start.")
        assert current_cores() == cores
        assert threads.submit(in_new_block).result() == set(sorted(cores)[:1])
        assert threads.submit(current_cores).result() == cores


def test_benchmarks_run_where_pinning_is_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(process: int, cores: list[int]) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", forbidden, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    with separate_cores() as move_to_client_core:
        move_to_client_core()
