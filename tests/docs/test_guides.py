"""The how-tos are programs: each prints the output that its page shows."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.serve.support.serve_process import serving
from tests.support.program import run

GUIDES = (
    "adapters",
    "backfill-index",
    "cooldown",
    "counters",
    "jobs-and-webhooks",
    "leaderboard",
    "pagination",
    "per-user-data",
    "record-options",
    "sessions",
    "simulation",
    "testing",
    "transactions",
)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_prints_the_output_it_shows(guide: str, tmp_path: Path) -> None:
    page = (DOCS / "guides" / f"{guide}.md").read_text()
    written(tmp_path, guide, "program")
    assert run(program=("program.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))


@pytest.mark.parametrize("number", range(5))
def test_each_program_of_change_a_field_prints_what_it_shows(number: int, tmp_path: Path) -> None:
    page = (DOCS / "guides" / "change-a-field.md").read_text()
    programs, outputs = blocks(page, "python"), blocks(page, "text")
    assert len(programs) == len(outputs) == 5
    (tmp_path / "songs.py").write_text(programs[number])
    assert run(program=("songs.py",), cwd=tmp_path).stdout == outputs[number]
    (tmp_path / "songs.py").write_text(programs[number].replace("asyncio.run(main())", ""))
    store = ("--store", "sqlite:songs.db")
    run("verify", "songs:SONGS", *store, cwd=tmp_path)
    assert "no pending migrations" in run("migrate", "songs:SONGS", *store, cwd=tmp_path).stdout


ADDRESS = "http://127.0.0.1:8080"
"""The address of a service, in the documentation."""


def written(folder: Path, guide: str, module: str) -> None:
    page = (DOCS / "guides" / f"{guide}.md").read_text()
    (folder / f"{module}.py").write_text("\n".join(blocks(page, "python")))


def test_the_fastapi_guide(tmp_path: Path) -> None:
    written(tmp_path, "fastapi", "notes")
    (tmp_path / "check.py").write_text(FASTAPI_CHECK)
    run(program=("check.py",), cwd=tmp_path)


FASTAPI_CHECK = """
import warnings
warnings.simplefilter("ignore")  # of the libraries themselves
from starlette.testclient import TestClient
import notes

ada = {"x-user": "ada"}
with TestClient(notes.app) as client:
    for id, tags in ("a", ["Tea"]), ("b", []):
        put = client.put(f"/notes/{id}", json={"text": id, "tags": tags}, headers=ada)
        assert put.status_code == 200, put.text
    assert client.get("/notes?tag=TEA", headers=ada).json()["items"][0]["id"] == "a"
    assert len(client.get("/notes", headers=ada).json()["items"]) == 2
    assert client.get("/notes", headers={"x-user": "bo"}).json() == {"items": [], "cursor": None}
    wrong = client.get("/notes?cursor=x", headers=ada)
    assert wrong.status_code == 400 and wrong.json()["code"], wrong.text
"""


def test_the_guide_to_flask_and_django(tmp_path: Path) -> None:
    written(tmp_path, "flask-django", "notes")
    (tmp_path / "check.py").write_text(FLASK_CHECK)
    run(program=("check.py",), cwd=tmp_path)


FLASK_CHECK = """
import warnings
warnings.simplefilter("ignore")  # of the libraries themselves
from types import SimpleNamespace
import django
from django.conf import settings
from django.test import RequestFactory
import notes

client = notes.app.test_client()
ada = {"X-User": "user-7"}
for id, tags in ("a", ["Tea"]), ("b", []):
    put = client.put(f"/notes/{id}", json={"text": id, "tags": tags}, headers=ada)
    assert put.status_code == 200, put.text
assert client.get("/notes?tag=TEA", headers=ada).json["items"][0]["id"] == "a"
assert len(client.get("/notes", headers=ada).json["items"]) == 2
assert client.get("/notes?cursor=x", headers=ada).status_code == 400
assert client.get("/notes", headers={"X-User": "bo"}).json == {"items": [], "cursor": None}

settings.configure(ALLOWED_HOSTS=["*"], INSTALLED_APPS=["notes.NotesConfig"])
django.setup()
request = RequestFactory().get("/notes/a")
request.user = SimpleNamespace(pk=7)
assert notes.note(request, "a").status_code == 200
assert notes.note(request, "none").status_code == 404
notes.NotesConfig.engine.close()
notes.ENGINE.close()
"""


def test_the_discord_guide(tmp_path: Path) -> None:
    written(tmp_path, "discord", "points_bot")
    (tmp_path / "check.py").write_text(DISCORD_CHECK)
    run(program=("check.py",), cwd=tmp_path)


DISCORD_CHECK = """
import warnings
warnings.simplefilter("ignore")  # of the libraries themselves
import asyncio
from types import SimpleNamespace
import points_bot

sent = []

async def send(text):
    sent.append(text)

async def main():
    await points_bot.bot.setup_hook()
    ctx = SimpleNamespace(guild=SimpleNamespace(id=42), send=send)
    await points_bot.top.callback(ctx)
    for _ in range(2):
        await points_bot.thanks.callback(ctx, SimpleNamespace(id=7, display_name="Ada"))
    await points_bot.top.callback(ctx)
    await points_bot.bot.engine.close()

asyncio.run(main())
assert sent == ["Nobody has points yet.", "Ada has 1.", "Wait a minute.", "<@7>: 1"], sent
"""


def test_the_compose_files_name_settings_that_exist() -> None:
    import yaml  # type: ignore[import-untyped]

    from keyhouse.auth import JwtSettings
    from keyhouse.settings.settings import ServerSettings

    known = {
        *ServerSettings.__struct_fields__,
        *(f"clips_{name}" for name in JwtSettings.__struct_fields__),
    }
    for text in blocks((DOCS / "guides" / "compose.md").read_text(), "yaml"):
        services = yaml.safe_load(text)["services"]
        served = [each for each in services.values() if "keyhouse serve" in each.get("command", "")]
        assert served
        for service in served:
            named = {name.removeprefix("KEYHOUSE_").lower() for name in service["environment"]}
            assert named <= known
            assert set(service["depends_on"]) <= set(services)


def test_the_proxy_guide_names_settings_that_exist() -> None:
    import tomllib

    from keyhouse.http import HttpSettings
    from keyhouse.settings import read_settings

    found = blocks((DOCS / "guides" / "reverse-proxy.md").read_text(), "toml")
    assert len(found) == 2
    for text in found:
        read_settings(HttpSettings, tomllib.loads(text)["http"], table="http")


def test_the_nightly_backup(tmp_path: Path) -> None:
    """The command of the crontab line works on the data folder of `keyhouse serve`."""
    readme = (ROOT / "README.md").read_text()
    program = "\n".join(blocks(readme, "python"))
    (tmp_path / "board.py").write_text(
        program.replace("sqlite:board.db", "sqlite:data/clips.db?layout=clips")
    )
    (tmp_path / "backup").mkdir()
    (tmp_path / "data").mkdir()
    run(program=("board.py",), cwd=tmp_path)
    lines = "".join(blocks((DOCS / "guides" / "backup.md").read_text(), "text")).splitlines()
    command = lines[0].split("keyhouse ")[1]
    day = '"backup/$(date +\\%F).jsonl"'
    assert day in command
    arguments = command.replace(day, "backup/day.jsonl").split()
    run(*arguments, cwd=tmp_path)
    assert (tmp_path / "backup" / "day.jsonl").is_file()


def test_the_commands_of_the_readme_serve_its_schema_and_move_it(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (tmp_path / "board.py").write_text("\n".join(blocks(readme, "python")))
    first, second, third = blocks(readme.split("## The same as a service")[1], "sh")[:3]
    token, address, *calls = second.replace("\\\n", "").splitlines()
    words = token.removeprefix("TOKEN=$(keyhouse ").removesuffix(")").split()
    put, listed, watched = (shlex.split(call) for call in calls)

    def filled(url: str, *command: str) -> list[str]:
        given = {"$TOKEN": secret, "$BOARD": address.split("=")[1].replace(ADDRESS, url)}
        for name, value in given.items():
            command = tuple([word.replace(name, value) for word in command])
        return [*command, "--silent", "--noproxy", "*", "--max-time", "60"]

    def called(url: str, *command: str) -> str:
        ran = subprocess.run(filled(url, *command), capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran
        return ran.stdout

    with serving(tmp_path, *shlex.split(first)[2:]) as running:
        secret = run(*words, "--data", "data", cwd=tmp_path).stdout.strip()
        assert json.loads(called(running.http, *put))["revision"] >= 1
        before = called(running.http, *listed)
        assert [item["value"]["id"] for item in json.loads(before)["items"]] == ["goal"]
        with subprocess.Popen(
            filled(running.http, *watched), stdout=subprocess.PIPE, text=True
        ) as streaming:
            assert streaming.stdout is not None
            assert "event: put\n" in streaming.stdout
            assert streaming.poll() is None, "it streams on"
            streaming.kill()
        assert running.end() == 0
    move, serve = third.replace("postgresql://user@host/board", "rocksdb:moved").splitlines()
    run(*shlex.split(move.replace("keyhouse-data", "data"))[1:], cwd=tmp_path)
    with serving(tmp_path, *shlex.split(serve)[2:]) as running:
        after = json.loads(called(running.http, *listed))
        assert [item["value"]["id"] for item in after["items"]] == ["goal"]
