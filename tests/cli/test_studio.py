"""`keyhouse studio`: a store in a browser, without a service."""

import asyncio
import re
import socket
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest

from keyhouse import Store, load_system, open_engine
from tests.serve.support.serve_process import serving
from tests.support.polling import wait_until
from tests.support.program import run, started


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
    command = ["studio", "rosey", "--store", url, *(["--write"] if write else [])]
    with started(*command) as process:
        link = process.stdout.readline().strip()
        base = f"http://{urlsplit(link).netloc}"
        [code] = parse_qs(urlsplit(link).query)["link"]
        with httpx.Client(base_url=base, timeout=30) as client:
            answer = client.post("/studio/login", data={"token": code})
            assert answer.status_code == 303
            page = client.get("/studio/rosey/trivia/key.json", params={"k": "theme"})
            assert page.json()["value"] == '"dark"'
            answer = client.post("/studio/lock", data={"unlocked": "on"})
            assert answer.status_code == (303 if write else 403)
            first = client.get("/studio/").text
            for start in ("/", "/studio/"):
                for path in re.findall(r'href="([^"#]+)"', client.get(start).text):
                    assert client.get(urljoin(start, path)).status_code == 200, path
            again = client.post("/studio/login", data={"token": code})
            assert again.status_code == 401
            assert "start `keyhouse studio` again" in unescape(again.text)
            for text in (first, client.get("/").text, client.get("/studio/login").text):
                assert "--operator" not in text, "no token signs in here"


def test_a_port_in_use_names_the_option_of_this_command(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ("studio", "rosey", "--port", port, "--store", f"sqlite:{tmp_path}/bot.db")
        refused = run(*command, code=1).stderr
    assert "choose another port with --port" in refused
    assert "--http" not in refused


def test_the_studio_of_a_served_system_takes_an_operators_token(tmp_path: Path) -> None:
    with serving(tmp_path, "rosey", "--nats", "off") as served:
        made = run(
            "token", "--operator", "--scope", "studio:read", "--data", f"{tmp_path}/data"
        ).stdout.strip()
        headers = {"Authorization": f"Bearer {made}"}
        with httpx.Client(base_url=served.http, headers=headers, timeout=30) as client:
            [system] = client.get("/studio/index.json").raise_for_status().json()["systems"]
            assert (system["name"], system["is_ready"]) == ("rosey", True)
            assert system["is_durable"] is True
            assert client.get("/studio/rosey/schema.json").status_code == 200
            assert client.get("/studio/openapi.json").status_code == 200
        given = ("--store", served.http, "--token", made)
        listed = run("jobs", *given).stdout
        assert "No job was started" in listed
        assert "0 sweeps" in listed
        none = run("jobs", "01JCXQ0Z3V8B6N4M2K1H0G9F8E", *given, "--json", code=None)
        assert none.returncode != 0
        assert "No such job" in none.stderr
        assert served.get("/ready").json()["systems"] == {"rosey": {"ready": True}}


def test_jobs_needs_a_service_and_a_token() -> None:
    for given, sentence in (
        ([], "--store http://host:8080"),
        (["--store", "http://localhost:1"], "keyhouse token --operator"),
        (["--store", "http://localhost:1", "--token", "x"], "cannot be reached"),
    ):
        assert sentence in run("jobs", *given, code=1).stderr


def test_a_served_playlist_has_its_figures_in_the_studio(tmp_path: Path) -> None:
    engine = f"sqlite:{tmp_path}/playlist.db"
    with serving(tmp_path, "playlist", "--nats", "off", "--engine", engine) as served:
        made = run("token", "--operator", "--data", f"{tmp_path}/data").stdout.strip()
        headers = {"Authorization": f"Bearer {made}"}
        with httpx.Client(base_url=served.http, headers=headers, timeout=30) as client:
            assert client.get("/playlist/login").status_code == 200
            page = client.get("/studio/slow.json").raise_for_status().json()
            routes = {each["call"]: each["count"] for each in page["requests"]}
            assert routes["GET /playlist/login"] == 1
            assert {each["call"] for each in page["calls"]} == {"read", "scan", "commit"}
            [system] = client.get("/studio/jobs.json").json()["systems"]
            assert system["system"] == "playlist"

            def counted() -> Any:  # a count that takes over 50 ms is not exact
                [system] = client.get("/studio/index.json").json()["systems"]
                return system["size"]["is_exact"] and system

            system = wait_until(counted)
            assert system["docs"] == "/playlist/docs"
            for space in client.get("/studio/playlist/index.json").json()["spaces"]:
                path = f"/studio/playlist/{space['name']}/index.json"
                assert client.get(path).json()["use"]["rate"]["per_second"] > 0
