"""`get`, `delete` and lists through a service of one's own schema: each kind of row."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.support.serve_process import serving
from tests.support.program import run

MODULE = """
import msgspec
from keyhouse import Counter, Index, Log, Record, Schema, Space, Unique, per_write

class Song(msgspec.Struct):
    id: str
    votes: int

class Wish(msgspec.Struct):
    song: str

STAGE = Record(str, "stage", name="stage", expiry=per_write())
SONG = Record(Song, "song:{id}", Index("top:{votes:05d}:{id}"),
              Unique("votes:{votes:06d}", value="id"), name="song")
NIGHT = Record(str, "night:{day:date}:{place}", name="night")
OPENED = Counter("opened", name="opened")
PLAYS = Counter("plays:{id}", name="plays")
WISHES = Log(Wish, "wish:{at:ulid}", name="wish")
KARAOKE = Schema("wishes", STAGE, SONG, NIGHT, OPENED, PLAYS, WISHES, space=Space("a room"))
"""
SYSTEM = "wishes:KARAOKE"
RECORDS = {
    "stage": '"open"',
    "song:a": '{"id": "a", "votes": 1}',
    "night:2026-01-31:x": '"x"',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "wishes.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def at(folder: Path) -> Iterator[list[str]]:
    """The options of a running service."""
    made = run("token", SYSTEM, "--space", "red", "--data", "data", cwd=folder).stdout
    with serving(folder, SYSTEM, "--nats", "off") as process:
        yield ["--store", process.http, "--token", made.strip()]


@pytest.mark.parametrize("key", RECORDS)
def test_a_record_of_any_key_is_read_and_deleted(key: str, folder: Path, at: list[str]) -> None:
    """One without key fields was a KeyError: its address is that of its list."""
    for command in (["get"], ["delete", "--yes"]):
        name, *options = command
        absent = run(name, SYSTEM, key, *options, *at, cwd=folder, code=3).stderr
        assert "No row at this key" in absent
    run("put", SYSTEM, key, RECORDS[key], *at, cwd=folder)
    found = json.loads(run("get", SYSTEM, key, "--json", *at, cwd=folder).stdout)
    assert (found["key"], found["value"]) == (key, json.loads(RECORDS[key]))
    run("delete", SYSTEM, key, "--yes", *at, cwd=folder)
    run("get", SYSTEM, key, *at, cwd=folder, code=3)


@pytest.mark.parametrize("key", ["opened", "plays:a"])
def test_a_counter_of_any_key_is_read(key: str, folder: Path, at: list[str]) -> None:
    assert run("get", SYSTEM, key, *at, cwd=folder).stdout == "0\n"


def test_an_event_is_read(folder: Path, at: list[str]) -> None:
    """It was never found: a log has no address of one event."""
    _, url, _, token = at
    headers = {"Authorization": f"Bearer {token}"}
    wish = httpx.post(f"{url}/wishes/logs/wish", json={"song": "a"}, headers=headers).json()
    got = run("get", SYSTEM, wish["key"], "--json", *at, cwd=folder).stdout
    assert json.loads(got)["value"] == {"song": "a"}


@pytest.mark.parametrize("command", ["list", "scan", "count", "watch"])
@pytest.mark.parametrize("selected", [["top:"], ["to"], ["votes:000001"], ["--type", "derived"]])
def test_derived_rows_are_an_error_with_the_alternative(
    command: str, selected: list[str], folder: Path, at: list[str]
) -> None:
    """The list of a prefix that only rows of an index have was empty, with exit code 0."""
    error = run(command, SYSTEM, *selected, *at, cwd=folder, code=1).stderr
    assert "no derived rows: for these, name the engine or the data folder as --store" in error


def test_one_derived_row_is_an_error_with_the_alternative(folder: Path, at: list[str]) -> None:
    error = run("get", SYSTEM, "top:00001:a", *at, cwd=folder, code=1).stderr
    assert "no derived rows: name the engine or the data folder as --store" in error
