"""`keyhouse bench`: it measures, says what it measured against, and leaves the store as it was."""

import asyncio
import json
import os
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nats
import pytest

from keyhouse.bench import Benched, Figure, Result, Scratch, measure, scratch, svg
from keyhouse.bench.cores import apart
from keyhouse.bench.library import SCHEMA, TRACK, rows_by_hand, track
from keyhouse.cli.benching import named_rows
from keyhouse.engine import Batch, Put
from keyhouse.engines.registry import open_engine
from keyhouse.engines.sql import migrate
from keyhouse.errors import UnavailableError, UsageError
from keyhouse.store import Store
from tests.cli.running import run
from tests.cli.terminal import CTRL_C, on_terminal
from tests.store.support.filled_engines import contents
from tests.support.engine_openers import postgres_schema
from tests.support.nats_servers import nats_server

ULID = "01HQ3K5V7X9ZB2D4F6G8J0K2M4"
STORED = "3,4,5,commit,read"


def test_the_rows_by_hand_are_those_that_the_store_writes() -> None:
    async def scenario() -> dict[str, bytes]:
        engine = await open_engine("memory:")
        await Store(SCHEMA, engine, "s").put(TRACK, track(ULID, 7, ULID))
        return {key: value for key, (value, _) in (await contents(engine))["s"].items()}

    assert asyncio.run(scenario()) == dict(rows_by_hand(track(ULID, 7, ULID)))


def filled(folder: Path) -> None:
    async def fill() -> None:
        engine = await open_engine(f"sqlite:{folder}/a.db")
        await engine.commit("s", Batch(puts=(Put("k", b"1"),)))
        await engine.close()

    asyncio.run(fill())


def test_it_works_beside_the_store_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path)
    before = (tmp_path / "a.db").read_bytes()
    named = ("--store", "sqlite:a.db", "--only", f"{STORED},8", "--plot", "b.svg")
    ran = run("bench", "--seconds", "0.01", "--json", *named, cwd=tmp_path)
    done = json.loads(ran.stdout)
    assert done["engine"] == "sqlite" and done["durable"] and done["rounds"] == 5
    assert [figure["row"] for figure in done["figures"]] == ["3", "4", "5", "8", "commit", "read"]
    for figure in done["figures"]:
        ours, limit = figure["results"]
        assert (
            len(ours["rounds"]) == len(limit["rounds"]) == 5 and figure["against"] == "apsw by hand"
        )
        assert figure["ratio"] == pytest.approx(ours["median"] / limit["median"])
    assert "a file of its own beside it, which goes at the end" in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "b.svg"]
    assert (tmp_path / "a.db").read_bytes() == before
    xml.etree.ElementTree.parse(tmp_path / "b.svg")


def test_ctrl_c_removes_what_it_made(tmp_path: Path) -> None:
    filled(tmp_path)
    shown = on_terminal(
        "bench",
        "--store",
        "sqlite:a.db",
        "--only",
        "3,4",
        cwd=tmp_path,
        typed=[("how fast is it?", CTRL_C)],
        code=130,
    )
    assert "Stopped. What it had made is removed." in shown and "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "no such file" in run("bench", "--store", "sqlite:gone.db", cwd=tmp_path, code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_there_is_not_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="There is no such row"):
        named_rows("3,9")
    assert named_rows("read,3") == ["3", "read"]


def test_in_an_engine_that_others_use_it_has_spaces_of_its_own_and_empties_them(
    tmp_path: Path,
) -> None:
    """As on NATS and DynamoDB. A sweep, which is of all spaces, is not measured, and it says so."""
    filled(tmp_path)
    url = f"sqlite:{tmp_path}/a.db"

    async def scenario() -> tuple[Benched, list[str]]:
        place = Scratch(
            url, url, "spaces of its own", "keyhouse-bench-1", is_alone=False, is_shared=True
        )
        done = await measure(place, ["3", "8"], rounds=5, seconds=0.01, say=unheard, show=unheard)
        engine = await open_engine(url)
        left = [space async for space in engine.spaces()]
        await engine.close()
        return done, left

    done, left = asyncio.run(scenario())
    assert [(figure.row, figure.against) for figure in done.figures] == [("3", "the engine alone")]
    assert "a sweep is of all spaces" in done.left_out["8"]
    assert left == ["s"]


def test_on_postgresql_it_has_tables_of_its_own_and_drops_them() -> None:
    async def scenario() -> tuple[Benched, str | None]:
        async with scratch(await postgres_schema()) as place:
            done = await measure(
                place, ["3", "8"], rounds=5, seconds=0.01, say=unheard, show=unheard
            )
            assert await asyncio.to_thread(migrate.current, place.url) is not None
        return done, await asyncio.to_thread(migrate.current, place.url)

    done, tables = asyncio.run(scenario())
    assert [figure.row for figure in done.figures] == ["3", "8"] and done.figures[1].ratio is None
    assert tables is None


@pytest.mark.parametrize("more", ["bucket=mine", "prefix=mine-"])
def test_on_nats_it_has_buckets_of_its_own_and_removes_them(more: str) -> None:
    """Spaces among the user's were emptied, and left a marker for each row, or empty buckets."""

    async def scenario() -> list[str]:
        async with scratch(f"{nats_server().url}/?{more}") as place:
            await touched(place)
        client = await nats.connect(nats_server().url)
        names = [info.config.name or "" for info in await client.jetstream().streams_info()]
        await client.close()
        return names

    assert [name for name in asyncio.run(scenario()) if "keyhouse-bench" in name] == []


async def touched(place: Scratch) -> None:
    """A little of what is measured there."""
    async with place.opened() as engine:
        for space in place.spaces:
            await engine.commit(space, Batch(puts=(Put("k", b"1"),), id="once"))


def unheard(said: object) -> None:
    """Nobody looks."""


def test_a_picture_says_where_the_goal_is() -> None:
    results = [Result("ours", 50.0, [50.0]), Result("limit", 100.0, [100.0])]
    figure = Figure(
        row="3", work="put <&>", unit="records/s", results=results, goal=0.6, against="hand"
    )
    drawn = svg("Title & more", "note", [figure])
    assert "put &lt;&amp;&gt;" in drawn and ">0.50<" in drawn and "<line" in drawn
    assert not figure.reached


def on_cores() -> set[int]:
    """None, where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def test_client_and_servers_are_kept_apart_and_let_go_whatever_happens() -> None:
    """On one core only, too: then the client's is the one that there is."""
    cores = on_cores()

    def again() -> set[int]:
        with apart() as begin_to_ask:
            begin_to_ask()
            return on_cores()

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(UnavailableError), apart():
            threads.submit(int).result()  # makes the thread, where servers are
            raise UnavailableError("What is to be measured did not start.")
        assert on_cores() == cores
        assert threads.submit(again).result() == set(sorted(cores)[:1])
        assert threads.submit(on_cores).result() == cores


def test_where_nobody_may_be_pinned_it_is_measured_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(process: int, cores: list[int]) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", forbidden, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    with apart() as begin_to_ask:
        begin_to_ask()
