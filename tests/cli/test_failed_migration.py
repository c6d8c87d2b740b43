"""A migration that fails: the service reports it, others are migrated, doctor names the fix."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.support.serve_process import serving
from tests.support.polling import wait_until
from tests.support.program import run

OLD = """
import msgspec
from keyhouse import Index, Meta, Migration, Record, Schema, Space, Unique

class Song(msgspec.Struct):
    id: str
    seconds: int
    title: str

SONG = Record(Song, "song:{id}", Index("idx:song:{seconds:06d}:{id}"),
              Unique("title:{title}", value="id"), name="song", created=None)
SONGS = Schema("songs", SONG, space=Space("a channel"), meta=Meta())
"""
NEW = """
import sys
import msgspec
from keyhouse import Index, Meta, Migration, Record, Schema, Space, Unique
from old import SONG as OLD_SONG

class Song(msgspec.Struct):
    id: str
    length: int
    title: str

BY_LENGTH = Index("idx:song:{length:06d}:{id}", name="length")
BY_TITLE = Unique("title:{title}", value="id", name="title")
SONG = Record(Song, "song:{id}", BY_LENGTH, BY_TITLE, name="song")

class Own(Exception):
    pass

class OwnBase(BaseException):
    pass

def deep():
    return deep()

async def step(tx, entry):
    if entry.record.seconds == 666:
        FAIL
    await tx.put(SONG, Song(entry.record.id, entry.record.seconds, entry.record.title))

SONGS = Schema("songs", SONG, space=Space("a channel"), meta=Meta(),
               migrations=(Migration(1, "Lengths", OLD_SONG, step),))
"""
FAILURES = {
    "KeyError": "raise KeyError('nothing')",
    "RecursionError": "deep()",
    "Own": "raise Own('broken')",
    "OwnBase": "raise OwnBase('broken')",
    "SystemExit": "sys.exit(3)",
    "UniqueError": "await tx.put(SONG, Song('other', 1, 'title-1'))",
    "AssertionError": "assert False",
}


def make(folder: Path, failure: str) -> None:
    """Write two modules, and three spaces by the old one. The step fails in the one between."""
    (folder / "data").mkdir()
    (folder / "old.py").write_text(OLD)
    (folder / "new.py").write_text(NEW.replace("FAIL", failure))
    for space in ("ann", "bob", "zoe"):
        rows = [
            {"key": f"song:{n}", "value": {"id": str(n), "seconds": n, "title": f"title-{n}"}}
            for n in (1, 2)
        ]
        if space == "bob":
            rows[1]["value"]["seconds"] = 666  # type: ignore[index]  # a dict
        for row in rows:
            run(
                *("put", "old:SONGS", str(row["key"]), json.dumps(row["value"])),
                *("--store", "data", "--space", space),
                cwd=folder,
            )


@pytest.mark.parametrize("failure", FAILURES)
def test_a_step_that_raises_anything_leaves_the_other_spaces_migrated(
    tmp_path: Path, failure: str
) -> None:
    make(tmp_path, FAILURES[failure])
    done = run(
        *("migrate", "new:SONGS", "--store", "data", "--yes", "--json"), cwd=tmp_path, code=1
    )
    result = json.loads(done.stdout)
    assert [step["space"] for step in result["steps"]] == ["ann", "zoe"]
    [failed] = result["failed"]
    assert failed["space"] == "bob"
    if failure != "UniqueError":
        assert failed["reason"].startswith(failure) and "new.py" in failed["reason"]
    assert failed["reason"].endswith(", at the record song:2"), "nothing named it"
    text = run("migrate", "new:SONGS", "--store", "data", "--yes", cwd=tmp_path, code=1).stdout
    assert "1 space failed" in " ".join(text.split())


def test_a_service_whose_migration_failed_reports_it_everywhere(tmp_path: Path) -> None:
    """It was ready, its lists were empty, and its writes were answered with: try again later."""
    make(tmp_path, FAILURES["KeyError"])
    with serving(tmp_path, "new:SONGS", "--nats", "off") as served:
        tokens = {
            space: run(
                "token", "new:SONGS", "--space", space, "--data", "data", cwd=tmp_path
            ).stdout.strip()
            for space in ("ann", "bob")
        }

        def ask(space: str, path: str, method: str = "GET", **options: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {tokens[space]}"}
            return httpx.request(method, f"{served.http}/songs{path}", headers=headers, **options)

        ready = wait_until(
            lambda: (r := httpx.get(f"{served.http}/ready")).status_code == 503 and r.json()
        )
        why = ready["systems"]["songs"]["why"]
        assert "A migration's step raised KeyError." in why and "keyhouse doctor" in why
        metrics = httpx.get(f"{served.http}/metrics").text
        assert "songs_spaces_unprepared 1.0" in metrics
        assert 'keyhouse_system_ready{system="songs"} 0.0' in metrics
        value = {"length": 1, "title": "new"}
        for method, path, body in (
            ("GET", "/records/song", None),
            ("GET", "/records/song?by=length", None),
            ("GET", "/records/song/1", None),
            ("GET", "/lookup/song?by=title&title=title-1", None),
            ("PUT", "/records/song/9", value),
            ("POST", "/records/song", {"id": "8", **value}),
            ("PATCH", "/records/song/1", {"title": "x"}),
            ("DELETE", "/records/song/1", None),
        ):
            options = {} if body is None else {"json": body}
            refused = ask("bob", path, method, **options)
            assert refused.status_code == 503, (method, path, refused.text)
            assert refused.json()["fields"]["reason"] == "A migration's step raised KeyError."
            assert "try again" not in refused.text and "keyhouse doctor" in refused.text
        assert len(ask("ann", "/records/song?by=length").json()["items"]) == 2
        assert ask("ann", "/records/song/9", "PUT", json=value).status_code == 201
    found = run("doctor", "new:SONGS", "--store", "data", "--json", cwd=tmp_path, code=1).stdout
    facts = {fact["name"]: fact for part in json.loads(found)["findings"] for fact in part["facts"]}
    assert "KeyError" in facts["migrations"]["value"] and "bob" in facts["migrations"]["value"]
    assert "keyhouse migrate new:SONGS" in facts["migrations"]["fix"]
    (tmp_path / "new.py").write_text(NEW.replace("FAIL", "pass"))
    run("migrate", "new:SONGS", "--store", "data", "--yes", cwd=tmp_path)
    run("verify", "new:SONGS", "--store", "data", cwd=tmp_path)


def test_a_space_that_another_program_began_is_prepared_when_it_is_met(tmp_path: Path) -> None:
    """Its lookups and lists by an index were 503 until the service was started again."""
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(
        NEW.replace("FAIL", "pass").replace('Migration(1, "Lengths", OLD_SONG, step),', "")
    )
    value = json.dumps({"id": "p", "length": 3, "title": "p"})
    with serving(tmp_path, "new:SONGS", "--nats", "off") as served:
        run(
            *("put", "new:SONGS", "song:p", value, "--space", "started", "--store", "data"),
            cwd=tmp_path,
        )
        token = run(
            "token", "new:SONGS", "--space", "started", "--data", "data", cwd=tmp_path
        ).stdout
        headers = {"Authorization": f"Bearer {token.strip()}"}
        for path in ("/lookup/song?by=title&title=p", "/records/song?by=length"):

            def prepared(path: str = path) -> Any:
                reply = httpx.get(f"{served.http}/songs{path}", headers=headers)
                return reply.json() if reply.status_code == 200 else None

            found = wait_until(prepared)
            assert "p" in json.dumps(found)


def test_verify_of_a_space_to_migrate_names_the_command_that_migrates(tmp_path: Path) -> None:
    """It advised `--repair`, and `--delete-unreadable` deleted the old records."""
    make(tmp_path, "pass")
    where = ("--store", "data")
    for options in ([], ["--repair"], ["--delete-unreadable", "--yes"]):
        done = run("verify", "new:SONGS", *options, *where, cwd=tmp_path, code=5).stdout
        text = " ".join(done.split())
        advice = "migrate the space first, with keyhouse migrate new:SONGS --store data"
        assert advice in text.replace("`", "")
        assert "--repair" not in text
    run("migrate", "new:SONGS", *where, "--yes", cwd=tmp_path)
    run("verify", "new:SONGS", *where, cwd=tmp_path)


FORGOTTEN = {
    "with meta rows": OLD,
    "without meta rows": OLD.replace(", meta=Meta()", ""),
    "with another index": OLD.replace("{seconds:06d}", "{seconds:08d}"),
}


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_code_of_the_first_version_on_migrated_rows_is_rejected_by_every_command(
    tmp_path: Path, forgotten: str
) -> None:
    """`migrate` advised --reindex, and doctor an installation of Keyhouse and a repair."""
    make(tmp_path, "pass")
    run("migrate", "new:SONGS", "--store", "data", "--yes", cwd=tmp_path)
    (tmp_path / "first.py").write_text(FORGOTTEN[forgotten])
    given = ("first:SONGS", "--store", "data")
    for command in (
        ("migrate", *given, "--yes"),
        ("migrate", *given, "--dry-run"),
        ("migrate", *given, "--yes", "--reindex"),
        ("put", *given, "--space", "ann", "song:9", '{"id": "9", "seconds": 9, "title": "t"}'),
        ("delete", *given, "--space", "ann", "song:1", "--yes"),
    ):
        failed = run(*command, cwd=tmp_path, code=None)
        assert failed.returncode != 0, command
        assert "newer program" in " ".join(failed.stderr.split()), command
    shown = " ".join(run("doctor", *given, cwd=tmp_path, code=1).stdout.split())
    assert "Run the newer version of your program" in shown
    assert "none pending" not in shown and "--re" not in shown and "Install the" not in shown
