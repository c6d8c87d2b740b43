"""Many clients at once, a full profile, a long one, and a process that is killed."""

import asyncio
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse import open_engine
from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Engine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.http import App
from keyhouse.store import Store, verify
from keyhouse_history.events import make_event
from keyhouse_history.fold import NOTHING, fold
from keyhouse_history.schema import (
    ASSETS_IN_STATE,
    ENTRIES,
    ENTRY,
    NEWEST,
    SCHEMAS,
)
from systems.history.tests.conftest import CHOSEN, OPENERS
from systems.history.tests.support.service import EXT, app_of, at, token, viewing
from systems.history.tests.support.service import serving as history_serving
from tests.serve.support.serve_process import serving
from tests.sizes import size
from tests.support.bound_rows import bound
from tests.support.polling import wait_until
from tests.support.threaded_service import SECRET

CLIENTS = 64
PROFILES = size(12, 100, 1_000)
EVENTS = size(64, 640, 6_400)
LONG = size(5_000, 10_000, 10_000)


def run(folder: Path, work: Callable[[Engine, App], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        engine = SqliteEngine.open(folder / "rows.db", clock=ManualClock())
        try:
            await work(engine, app_of(engine, folder, **settings))
        finally:
            await engine.close()

    asyncio.run(main())


def client(app: App) -> httpx.AsyncClient:
    bearer = token(ManualClock(), sub="jobs", scope="history.service")
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://test/history",
        headers={"Authorization": f"Bearer {bearer}"},
        timeout=60,
    )


async def is_exact(engine: Engine, profile: str, events: list[dict[str, Any]]) -> None:
    """The stored entries are those of a fold of all events, and every row follows from them."""
    model: dict[str, Any] = {}
    for each in events:
        event = make_event(
            asset_id=each["assetId"],
            asset_type=each["assetType"],
            total_time=each["totalTime"],
            progress=each["progress"],
            update_time=each["updateTime"],
            state=None,
            ext=each.get("ext"),
            completed_percent=95,
        )
        model[event.asset_id] = fold(model.get(event.asset_id, NOTHING), event)
    store = Store(SCHEMAS[0], engine, profile)
    expected = [entry for entries in model.values() for entry in entries.newest_first()]
    stored = [entry.record async for entry in store.scan(ENTRY)]
    key = lambda entry: (entry.attr.state, entry.attr.asset_id)  # noqa: E731
    assert sorted(stored, key=key) == sorted(expected, key=key)
    assert [finding async for finding in verify(store)] == []
    assert await store.record_count(ENTRIES) == len(expected)
    for state in ("IN_PROGRESS", "COMPLETED"):
        listed = await store.members(ASSETS_IN_STATE, state=state)
        assert set(listed) == {e.attr.asset_id for e in expected if e.attr.state == state}


def drawn(draw: random.Random, assets: int) -> dict[str, Any]:
    """An event at a random time, so that many arrive late."""
    progress = draw.choice((5, 50, 99))
    ext = EXT | {"team-ids": draw.choice(("1", "1,2", "3")), "showCategoryId": draw.choice("12")}
    second = draw.randrange(0, 3_000)
    return {"assetId": f"a{draw.randrange(assets)}", **viewing(second, progress, ext=ext)}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("engine", "profiles"),
    [
        *((engine, 1) for engine in CHOSEN),
        *(
            pytest.param(engine, PROFILES, marks=() if engine == "sqlite" else pytest.mark.extra)
            for engine in CHOSEN
        ),
    ],
)
def test_no_update_of_64_clients_is_lost(tmp_path: Path, engine: str, profiles: int) -> None:
    draw = random.Random(profiles)
    sent: dict[str, list[dict[str, Any]]] = {}
    for _ in range(EVENTS if engine == "sqlite" else 2 * CLIENTS):
        sent.setdefault(f"p{draw.randrange(profiles)}", []).append(drawn(draw, 12))
    todo = [(profile, event) for profile, events in sent.items() for event in events]
    draw.shuffle(todo)

    async def send(http: httpx.AsyncClient) -> None:
        while todo:
            profile, event = todo.pop()
            path = f"/profiles/{profile}/assets/{event['assetId']}"
            body = {name: value for name, value in event.items() if name != "assetId"}
            response = await http.put(path, json=body)
            assert response.status_code == 200, response.text

    async def send_all(url: str, bearer: str) -> None:
        limits = httpx.Limits(max_connections=CLIENTS)
        headers = {"Authorization": f"Bearer {bearer}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, limits=limits, timeout=120, trust_env=False
        ) as http:
            await asyncio.gather(*(send(http) for _ in range(CLIENTS)))

    with history_serving(OPENERS[engine](tmp_path), tmp_path) as service:
        bearer = token(service.clock, sub="jobs", scope="history.service")
        asyncio.run(send_all(service.url, bearer))
        for profile, events in sent.items():
            service.on_engine(partial(is_exact, profile=profile, events=events))


def test_the_oldest_entry_leaves_a_full_profile(tmp_path: Path) -> None:
    async def work(engine: Engine, app: App) -> None:
        async with client(app) as http:

            async def put(asset: str, second: int) -> Any:
                body = viewing(second, ext=EXT)
                return (await http.put(f"/profiles/p/assets/{asset}", json=body)).json()

            await asyncio.gather(*(put(f"a{n}", 100 + n) for n in range(30)))
            listed = (await http.get("/profiles/p/facets/asset/all")).json()["entries"]
            assert [each["attr"]["assetId"] for each in listed] == [
                f"a{n}" for n in range(29, 19, -1)
            ]
            assert (await put("old", 1))["applied"] is False
            assert (await http.get("/profiles/p/assets/old")).status_code == 404
            store = Store(SCHEMAS[0], engine, "p")
            assert await store.record_count(ENTRIES) == 10
            assert [finding async for finding in verify(store)] == []

    run(tmp_path, work, entries_max=10)


class CountedReads:
    """Counts the rows that an engine returns."""

    def __init__(self, engine: Any) -> None:
        self.rows = 0
        read, scan = engine.read, engine.scan

        async def counted_read(*given: Any, **options: Any) -> Any:
            rows = await read(*given, **options)
            self.rows += len(rows)
            return rows

        async def counted_scan(*given: Any, **options: Any) -> Any:
            page = await scan(*given, **options)
            self.rows += len(page.rows)
            return page

        engine.read, engine.scan = counted_read, counted_scan


def test_pages_and_lookups_do_not_grow_with_the_profile(tmp_path: Path) -> None:
    """By the rows that a request reads, which are those of its page."""

    async def fill(engine: Engine, profile: str, count: int) -> None:
        store = Store(SCHEMAS[0], engine, profile)
        for start in range(0, count, 100):

            async def work(tx: Any, start: int = start) -> None:
                for n in range(start, start + 100):
                    show = "1446" if n % (count // 20) == 0 else f"s{n % 50}"
                    entry = {
                        "attr": {
                            "assetId": f"a{n}",
                            "assetType": "movie",
                            "totalTime": 100,
                            "state": "COMPLETED" if n % 2 else "IN_PROGRESS",
                            "progress": 10,
                            "updateTime": at(n % 7_000 + n % 1_000 / 1_000),
                        },
                        "ext": {
                            "showCategoryId": show,
                            "seasonCategoryId": "1",
                            "sport": f"of {show}",
                            "series-id": "4",
                            "team-ids": "7",
                        },
                    }
                    await tx.put(ENTRY, ENTRY.json.accepted(entry))

            await store.transact(work)

    async def work(engine: Engine, app: App) -> None:
        await fill(engine, "short", 400)  # more than a page of each state
        await fill(engine, "long", LONG)
        longest = Store(SCHEMAS[0], engine, "long")
        assert await longest.count(NEWEST) == LONG
        row = await longest.row("IN_PROGRESS")
        assert row is not None and len(row.value) < 16 * 1_024
        assert bound(ENTRY, ASSETS_IN_STATE).is_truncated(row.value)
        paths = (
            "facets/asset/all",
            "facets/asset/resume",
            "facets/asset/watched?limit=20",
            "facets/show/1446/all",
            "facets/show/1446/all?season=1",
            "facets/sport/of%201446/all",
            "facets/sport/of%201446/all?series=4&team=7",
            "assets/a50",
        )

        counted = CountedReads(engine)
        counted_app = app_of(engine, tmp_path, entries_max=20_000)

        async def rows_read(http: httpx.AsyncClient, profile: str, path: str) -> int:
            before = counted.rows
            response = await http.get(f"/profiles/{profile}/{path}")
            assert response.status_code == 200 and response.json()["entries"]
            return counted.rows - before

        async with client(counted_app) as http:
            for path in paths:
                short, long = [await rows_read(http, each, path) for each in ("short", "long")]
                assert 0 < long <= short + 25, (path, short, long)

            async def changed() -> int:
                revision = await longest.revision()
                body = viewing(1_000, ext={"showCategoryId": "1446", "seasonCategoryId": "1"})
                assert (await http.put("/profiles/long/assets/new", json=body)).json()["applied"]
                rows = [row async for row in longest.row_scan() if row.revision > revision]
                return sum(len(row.key) + len(row.value) for row in rows)

            assert await changed() < 16 * 1_024

    run(tmp_path, work, entries_max=20_000)


@pytest.mark.long
@pytest.mark.soak
def test_no_acknowledged_event_is_lost_by_a_kill(tmp_path: Path) -> None:
    """Events that were not answered are sent again at the end: they change nothing if stored."""
    acknowledged: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []
    for round in range(size(2, 2, 5)):
        with serving(tmp_path, "history", KEYHOUSE_HISTORY_JWT_SECRET=SECRET) as served:
            threads = [
                threading.Thread(
                    target=write, args=(served.http, 10 * round + n, acknowledged, unanswered)
                )
                for n in range(8)
            ]
            for thread in threads:
                thread.start()
            goal = len(acknowledged) + size(50, 500, 2_000)
            wait_until(partial(reached, acknowledged, goal))
            served.end(signal.SIGKILL)
            for thread in threads:
                thread.join()
    assert len(acknowledged) > 20
    with serving(tmp_path, "history", KEYHOUSE_HISTORY_JWT_SECRET=SECRET) as served:
        write(served.http, 0, acknowledged, [], again=unanswered)

    async def check() -> None:
        [file] = tmp_path.rglob("history.db")
        engine = await open_engine(f"sqlite:{file}?layout=history")
        try:
            await is_exact(engine, "p", acknowledged)
        finally:
            await engine.close()

    asyncio.run(check())


def reached(acknowledged: Sequence[object], goal: int) -> bool:
    return len(acknowledged) >= goal


def write(
    url: str,
    seed: int,
    acknowledged: list[dict[str, Any]],
    unanswered: list[dict[str, Any]],
    again: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Send events until the service is gone, or those that are to be sent again."""
    draw = random.Random(seed)
    events = iter(lambda: drawn(draw, 20), None) if again is None else iter(again)
    headers = {"Authorization": f"Bearer {token(SystemClock(), sub='p')}"}
    with httpx.Client(headers=headers, timeout=20, trust_env=False) as http:
        for event in events:
            assert event is not None
            body = {name: value for name, value in event.items() if name != "assetId"}
            try:
                response = http.put(
                    f"{url}/history/profiles/p/assets/{event['assetId']}", json=body
                )
            except httpx.TransportError:
                unanswered.append(event)
                return
            if response.status_code == 200:
                acknowledged.append(event)
            elif response.status_code != 429:
                unanswered.append(event)
