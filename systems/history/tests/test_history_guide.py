"""The guide is run: the walk-through against the program, the queries against DynamoDB, and the
write units of an event are those that it states."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import SystemClock
from keyhouse.service.usage import Quota
from keyhouse_history.events import make_event, store_events
from keyhouse_history.fold import ViewingEvent
from keyhouse_history.profiles import Profile
from systems.history.tests.conftest import dynamodb_settings_of
from systems.history.tests.support import service as support
from systems.history.tests.support.service import EXT
from tests.serve.support.serve_process import serving
from tests.support.dynamodb_tables import plain_client
from tests.support.program import write_program
from tests.support.threaded_service import SECRET

GUIDE = Path(__file__).parents[1] / "README.md"
MARK = "=== the next block ==="


def section(title: str) -> str:
    return GUIDE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)


def tour() -> list[tuple[str, str]]:
    """Each block of commands, with the output that the guide shows behind it."""
    found = blocks("Tour")
    assert found[0][1].startswith("$ keyhouse serve history")
    steps: list[tuple[str, str]] = []
    for language, text in found[1:]:
        if language == "sh":
            steps.append((text, ""))
        else:
            steps[-1] = (steps[-1][0], text)
    return steps


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_walk_through_prints_what_it_shows(tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    write_program(bin)
    with serving(tmp_path, "history", KEYHOUSE_HISTORY_JWT_SECRET=SECRET) as served:
        script = f"\necho; echo '{MARK}'\n".join(text for text, _ in tour())
        more = {"KEYHOUSE_HISTORY_JWT_SECRET": SECRET}
        ran = subprocess.run(
            ["bash", "-eu", "-c", script.replace("http://127.0.0.1:8080", served.http)],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{bin}:{os.environ['PATH']}"} | more,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        printed = [part.strip() for part in ran.stdout.split(MARK)]
        assert printed == [shown.strip() for _, shown in tour()]
        names: dict[str, Any] = {}
        exec(blocks("From Python")[0][1], names)
        bearer = support.token(SystemClock(), sub="profile-1")
        assert names["watched"](f"{served.http}/history", bearer, "7") == ["7"]


def test_other_programs_query_the_table_and_its_indexes(tmp_path: Path) -> None:
    where, opener = dynamodb_settings_of()
    names: dict[str, Any] = {}
    exec(blocks("DynamoDB")[0][1], names)
    with support.serving(opener, tmp_path) as service:
        viewer = service.viewer("profile-1")
        viewer.put("1981", 1, 50, ext=EXT)
        viewer.put("1988", 2, 100, ext=EXT | {"showCategoryId": "14460"})
        viewer.put("2000", 3, 25, ext={"showCategoryId": "1446"})
        viewer.close()

        async def ask(name: str, *arguments: Any) -> Any:
            async with plain_client() as client:
                loop = asyncio.get_running_loop()

                class Blocking:
                    """The driver's client with blocking calls, as boto3 has them."""

                    def __getattr__(self, method: str) -> Any:
                        def call(**given: Any) -> Any:
                            asked = getattr(client, method)(**given)
                            return asyncio.run_coroutine_threadsafe(asked, loop).result(30)

                        return call

                return await asyncio.to_thread(names[name], Blocking(), where.table, *arguments)

        def asked(name: str, *arguments: Any) -> Any:
            return asyncio.run(ask(name, "profile-1", *arguments))

        assert asked("entries", "IN_PROGRESS") == [("1981", "50"), ("2000", "25")]
        assert asked("entries", "COMPLETED") == [("1988", "100")]
        assert sorted(asked("below", "path.hierarchy", "/1446")) == ["1981", "2000"]
        assert sorted(asked("below", "path.sport", "/cricket/4")) == ["1981", "1988"]
        assert asked("listed", "IN_PROGRESS") == (["1981", "2000"], False)
        assert asked("listed", "/cricket/4/60092") == (["1981", "1988"], False)


def test_the_guide_states_the_write_units_of_an_event() -> None:
    stated = re.findall(
        r"^\| (.+) \| (\d+) \| (\d+) \| (\d+) \|$", section("DynamoDB"), re.MULTILINE
    )
    other = EXT | {"showCategoryId": "9", "sport": "golf", "team-ids": "1,2"}
    events: list[tuple[str, float, float, dict[str, str]]] = [
        ("c", 1, 10, {}),
        ("a", 1, 10, EXT),
        ("a", 2, 20, EXT),
        ("a", 3, 100, EXT),
        ("a", 4, 10, EXT),
        ("a", 5, 20, other),
    ]
    assert len(stated) == len(events)

    async def work() -> None:
        where, opener = dynamodb_settings_of()
        engine: Any = await opener(SystemClock())
        client = CountingClient(engine.client.driver)
        engine.client.driver = client
        profile = Profile("p", engine, Quota(), entries_max=10_000)
        try:
            await store_events(profile, [viewing_event("b", 1, 10, EXT)])
            for (asset, second, progress, ext), row in zip(events, stated, strict=True):
                client.items, client.units, client.commits = 0, {}, 0
                await store_events(profile, [viewing_event(asset, second, progress, ext)])
                units = (client.units[where.table], client.units[f"{where.table}.log"])
                assert (client.items, *units) == tuple(map(int, row[1:])), row[0]
                assert client.commits == 1
        finally:
            await engine.close()

    asyncio.run(work())


class CountingClient:
    """A driver's client that counts the items and write units of transactions."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.items = self.commits = 0
        self.units: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def transact_write_items(self, **given: Any) -> Any:
        answer = await self._client.transact_write_items(**given, ReturnConsumedCapacity="TOTAL")
        self.items += len(given["TransactItems"])
        self.commits += 1
        for each in answer["ConsumedCapacity"]:
            self.units[each["TableName"]] = each["CapacityUnits"]
        return answer


def viewing_event(asset: str, second: float, progress: float, ext: dict[str, str]) -> ViewingEvent:
    return make_event(
        asset_id=asset,
        asset_type="tv-episode",
        total_time=100,
        progress=progress,
        update_time=support.at(second),
        state=None,
        ext=ext,
        completed_percent=95,
    )


def test_every_setting_is_in_the_guide() -> None:
    from keyhouse.auth import JwtSettings
    from keyhouse_history.settings import HistorySettings

    own = set(HistorySettings.__struct_fields__) - set(JwtSettings.__struct_fields__)
    assert own == set(re.findall(r"^\| `(\w+)` \|", section("Access"), re.MULTILINE))
