"""`keyhouse studio`: a store in a browser, without a service."""

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from keyhouse import Store, load_system, open_engine


@pytest.mark.parametrize("write", [False, True])
def test_a_store_is_opened_read_only_without_write(write: bool, tmp_path: Path) -> None:
    async def fill() -> None:
        engine = await open_engine(f"sqlite:{tmp_path}/bot.db?layout=rosey")
        [schema] = load_system("rosey").schemas[:1]
        store = Store(schema, engine, "trivia")
        await store.put(schema.records[0], "dark", key="theme")
        await engine.close()

    asyncio.run(fill())
    url = f"sqlite:{tmp_path}/bot.db?layout=rosey"
    command = [sys.executable, "-m", "keyhouse.cli", "studio", "rosey", "--store", url]
    with subprocess.Popen(
        [*command, *(["--write"] if write else [])], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            base = f"http://{urlsplit(link).netloc}"
            [code] = parse_qs(urlsplit(link).query)["link"]
            with httpx.Client(base_url=base) as client:
                answer = client.post("/studio/login", data={"token": code})
                assert answer.status_code == 303
                page = client.get("/studio/rosey/trivia/key.json", params={"k": "theme"})
                assert page.json()["value"] == '"dark"'
                answer = client.post("/studio/lock", data={"unlocked": "on"})
                assert answer.status_code == (303 if write else 403)
        finally:
            process.terminate()
