"""Profiles and ids that are made to collide: each profile sees what it alone has stored."""

import asyncio
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.sqlite import SqliteEngine
from systems.history.tests.support.service import app_of, token, viewing
from tests.sizes import size

PROFILES = size(400, 400, 10_000)
WORDS = [
    "IN_PROGRESS",
    "COMPLETED",
    "|",
    "/",
    "%2F",
    "%7C",
    "%",
    "newest",
    "path.sport",
    "path.hierarchy/",
    "entries",
    "..",
    ".",
    "a",
    "A",
    "1",
    "é",
    "e\u0301",
    "\u202e",
    "💥",
    " ",
    "?",
    "#",
    "&",
    "'",
    '"',
    "\\",
    "*",
    ">",
    "{asset}",
    ",",
    ":",
    "assets",
    "profiles",
    "..%2f",
]


@pytest.mark.soak
def test_hostile_profiles_and_ids_are_isolated(tmp_path: Path) -> None:
    async def work() -> None:
        draw = random.Random(20_260_118)

        def text() -> str:
            made = "".join(draw.choice(WORDS) for _ in range(draw.randint(1, 4)))
            return made if made not in (".", "..") else f"{made}x"

        profiles = list({text(): None for _ in range(2 * PROFILES)})[:PROFILES]
        clock = ManualClock()
        engine = SqliteEngine.open(tmp_path / "rows.db", clock=clock)
        app = app_of(engine, tmp_path)
        stored: dict[str, dict[str, Any]] = {}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t/history") as http:

            async def ask(
                method: str, caller: str, profile: str, path: str, body: Any = None
            ) -> Any:
                headers = {"Authorization": f"Bearer {token(clock, profileId=caller)}"}
                url = f"/profiles/{quote(profile, safe='')}{path}"
                return await http.request(method, url, headers=headers, json=body)

            for profile in profiles:
                asset, show = text(), text()
                ext = {"showCategoryId": show, "seasonCategoryId": text()}
                body = viewing(1, ext=ext)
                path = f"/assets/{quote(asset, safe='')}"
                done = await ask("PUT", profile, profile, path, body)
                assert done.status_code == 200, (profile, asset, done.text)
                stored[profile] = done.json()["entry"]
            for profile in profiles:
                entry = stored[profile]
                listed = await ask("GET", profile, profile, "/facets/asset/all")
                assert listed.json()["entries"] == [entry], profile
                show = quote(entry["ext"]["showCategoryId"], safe="")
                found = await ask("GET", profile, profile, f"/facets/show/{show}/all")
                assert found.json()["entries"] == [entry], profile
                other = draw.choice(profiles)
                status = 200 if other == profile else 403
                answer = await ask("GET", profile, other, "/facets/asset/all")
                assert answer.status_code == status, (profile, other)
        assert {space async for space in engine.spaces()} == set(profiles)
        await engine.close()

    asyncio.run(work())
