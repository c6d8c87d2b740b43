"""The data folder of `keyhouse serve` of version 0.1, with all systems, is served by this version.

Its embedded NATS server had no accounts, and the systems were modules of the library. See
`tests/fixtures/stored_0_1/make.py`.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import nats
import pytest

from keyhouse_playlist.catalog.tables import MediaCatalog
from tests.serve.support.serve_process import serving
from tests.store.support.stored_files import FOLDER
from tests.support.program import run

SPACES = {
    "rosey": "trivia",
    "streamkit": "12345",
    "audiobooks": "main",
    "playlist": "kryten_playlist_acl",
    "history": "profile-1",
}


async def plugin_get(url: str, key: str) -> bytes:
    client = await nats.connect(url)
    try:
        request = json.dumps({"key": key}).encode()
        return (await client.request(f"db.kv.{SPACES['rosey']}.get", request, timeout=30)).data
    finally:
        await client.close()


@pytest.mark.long
def test_a_data_folder_of_0_1_is_served_and_written_on(tmp_path: Path) -> None:
    with ZipFile(FOLDER / "data-folder.zip") as file:
        file.extractall(tmp_path)
    data = tmp_path / "stored"
    for path in [data, *data.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)  # a zip file has no modes
    book = json.loads((tmp_path / "facts.json").read_bytes())["book"]
    secrets = {path.name: path.read_bytes() for path in data.glob("*.secret")}

    def command(*arguments: str) -> str:
        return run(*arguments, cwd=tmp_path).stdout.strip()

    def rows(verb: str, system: str, *key: str) -> Any:
        place = ("--space", SPACES[system], "--store", "stored", "--json")
        return json.loads(command(verb, system, *key, *place))

    def token_of(system: str) -> str:
        return command("token", system, "--customer", SPACES[system], "--data", "stored")

    with serving(tmp_path, *SPACES, data="stored") as server:

        def send(method: str, path: str, token: str = "", body: object = None) -> httpx.Response:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            url = server.http + path
            return httpx.request(
                method, url, json=body, headers=headers, timeout=30, trust_env=False
            ).raise_for_status()

        api = "/audiobooks/api/v1"
        account = {"username": "admin", "password": "correct horse"}
        session = send("POST", f"{api}/auth/login", "", account).json()["data"]["token"]
        assert book in send("GET", f"{api}/search?q=dune", session).text
        at = f"{api}/books/{book}"
        assert send("GET", at, session).json()["data"]["title"] == "Dune"
        send("PATCH", at, session, {"title": "Dune Messiah"})

        token = token_of("streamkit")
        note = send("GET", "/streamkit/configs/notes/note1", token).json()
        assert note["title"] == "Ideas"

        token = token_of("history")
        at = "/history/profiles/profile-1/assets/1981"
        assert send("GET", at, token).json()["entries"][0]["attr"]["assetId"] == "1981"

        send("GET", "/playlist/login")
        assert b"dark" in asyncio.run(plugin_get(server.nats, "theme"))
        measured = re.findall(
            r'^keyhouse_operation_seconds_count\{.*system="(\w+)"\} [1-9]',
            send("GET", "/metrics").text,
            re.MULTILINE,
        )
        assert {*measured} == {*SPACES}

        assert rows("get", "rosey", "theme")["value"] == "dark"
        admins = ("playlist", "ns/default/admins")
        assert rows("get", *admins)["value"] == ["Ada"]
        command("playlist", "admin", "add", "Bob", "--store", "stored")
        assert rows("get", *admins)["value"] == ["Ada", "Bob"]
        for system in SPACES:
            rows("verify", system)
        assert server.end() == 0
    reader = MediaCatalog(data / "catalog.sqlite3").reader()
    assert reader is not None
    assert [item.video_id for item in reader.search("fly", limit=10).items] == ["v1"]
    assert secrets == {name: (data / name).read_bytes() for name in secrets}
