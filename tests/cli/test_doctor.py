"""`doctor`, and the formats of `describe` for programs."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from keyhouse import Store, open_engine, open_store
from keyhouse.cli.commands.describe import json_schema
from keyhouse.demo.clips import BOARD, fill
from keyhouse.engine import Batch, Put
from keyhouse.schema.description import describe
from keyhouse.schema.diagram import dot, mermaid
from keyhouse.service.registry import load_system, system_names
from keyhouse.store import MARK_SPACE
from tests.cli.support.shows import NEXT as NEXT_GUIDE
from tests.cli.support.shows import declare_shows
from tests.support.engine_openers import postgres_schema
from tests.support.program import run

CLIPS = "keyhouse.demo.clips:BOARD"
NEXT = "keyhouse.demo.clips:NEXT_BOARD"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asyncio.run(make(f"sqlite:{tmp_path}/clips.db"))
    return tmp_path


async def make(url: str) -> None:
    engine = await open_engine(url)
    await fill(Store(BOARD, engine, "channel-7"))
    await engine.close()


def facts(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    answer = json.loads(run("doctor", *arguments, "--json", cwd=cwd, code=code).stdout)
    found = {fact["name"]: fact for part in answer["findings"] for fact in part["facts"]}
    assert answer["wrong"] == sum(fact["state"] == "bad" for fact in found.values())
    return found


def test_doctor_without_a_store_checks_the_installation(tmp_path: Path) -> None:
    environment = {
        "KEYHOUSE_STREAMKIT_JWT_SECRET": "hush",
        "KEYHOUSE_NATS": "nats://bot:hush@host:4222",
    }
    shown = run("doctor", cwd=tmp_path, environment=environment).stdout
    assert "No problems." in shown and "Python" in shown
    assert "KEYHOUSE_STREAMKIT_JWT_SECRET  is set" in shown and "hush" not in shown
    assert "nats://host:4222" in shown


def test_doctor_of_a_system_without_a_store_reports_that_no_rows_were_checked(
    tmp_path: Path,
) -> None:
    assert facts("rosey", cwd=tmp_path)["store"]["state"] == "warn"


def test_doctor_finds_no_problems_in_a_sound_store(folder: Path) -> None:
    found = facts(CLIPS, "--store", "sqlite:clips.db", cwd=folder)
    assert {"SQLite", "durability", "free disk", "clock", "migrations", "index health"} <= set(
        found
    )
    assert "no problems" in found["index health"]["value"]
    assert {fact["state"] for fact in found.values()} == {"ok"}


def test_rows_in_memory_are_not_advised_to_configure_nats(tmp_path: Path) -> None:
    """Every engine that is not durable got the advice of JetStream."""
    durable = facts("--store", "memory:", cwd=tmp_path)["durable"]
    assert durable["state"] == "warn" and "name another engine" in durable["fix"]


def test_each_problem_has_a_fix(folder: Path) -> None:
    connection = apsw.Connection(str(folder / "clips.db"))
    connection.execute("DELETE FROM rows WHERE key = 'idx:clip:second:000012:kick-off'")
    connection.close()

    async def mark() -> None:
        engine = await open_engine(f"sqlite:{folder}/clips.db")
        await engine.commit(MARK_SPACE, Batch(puts=(Put("move", b'{"source":"a","started":1}'),)))
        await engine.close()

    asyncio.run(mark())
    found = facts(NEXT, "--store", "sqlite:clips.db", cwd=folder, code=1)
    wrong = {name: fact["fix"] for name, fact in found.items() if fact["state"] == "bad"}
    assert set(wrong) == {"unfinished", "migrations", "index health"}
    named = f"{NEXT} --store sqlite:clips.db"
    assert wrong["index health"].endswith(f"keyhouse verify {named} --repair")
    assert wrong["migrations"].endswith(f"keyhouse migrate {named}")


def test_the_fix_of_a_new_index_builds_it(tmp_path: Path) -> None:
    """The advice was `verify --repair`, after which `open_store` still rejected the space."""
    declare_shows(tmp_path)
    store = ("--store", "sqlite:tv.db")
    found = facts("tv:NEXT", *store, cwd=tmp_path, code=1)
    build = "keyhouse migrate tv:NEXT --store sqlite:tv.db --reindex"
    assert found["indexes"]["fix"] == build
    assert "year:{year:04d}:{id}" in found["indexes"]["value"]
    repaired = run("verify", "tv:NEXT", *store, "--repair", cwd=tmp_path).stdout
    assert "ann: year:{year:04d}:{id}" in repaired and build in repaired
    assert facts("tv:NEXT", *store, cwd=tmp_path, code=1)["indexes"]["fix"] == build
    run(*build.split()[1:], cwd=tmp_path)
    assert facts("tv:NEXT", *store, cwd=tmp_path)["indexes"]["value"] == "all built"

    async def reopen() -> None:
        async with open_store(NEXT_GUIDE, f"sqlite:{tmp_path}/tv.db", "ann"):
            pass

    asyncio.run(reopen())


def test_an_unreachable_store_is_a_finding(tmp_path: Path) -> None:
    found = facts("--store", "sqlite:gone.db", cwd=tmp_path, code=1)
    assert found["reachable"]["state"] == "bad" and "does not exist" in found["reachable"]["value"]
    url = "postgresql://ann:hush@127.0.0.1:1/gone"
    shown = run("doctor", "--store", url, cwd=tmp_path, code=1)
    assert "hush" not in shown.stdout + shown.stderr and "✗ reachable" in shown.stdout


def test_doctor_finds_a_damaged_file(folder: Path) -> None:
    data = bytearray((folder / "clips.db").read_bytes())
    data[4_096 * 2 : 4_096 * 3] = b"\x55" * 4_096
    (folder / "clips.db").write_bytes(data)
    shown = run("doctor", CLIPS, "--store", "sqlite:clips.db", cwd=folder, code=1).stdout
    assert "✗" in shown and "Traceback" not in shown


def test_a_file_with_damaged_pages_is_restored_and_not_unreachable(folder: Path) -> None:
    """It was reachable, and not reachable, with the advice to check the URL."""
    with open(folder / "clips.db", "r+b") as file:
        file.seek(4_096)
        file.write(b"\xa5" * 8_192)
    ran = run("doctor", "--store", "sqlite:clips.db", cwd=folder, code=1)
    assert "restore" in ran.stdout and "URL comes from" not in ran.stdout


def test_doctor_reports_version_sync_and_clock_of_a_server(tmp_path: Path) -> None:
    url = asyncio.run(postgres_schema())
    asyncio.run(make(url))
    found = facts(CLIPS, "--store", url, cwd=tmp_path)
    assert found["PostgreSQL"]["value"][:2].isdigit()
    assert "fsync on" in found["durability"]["value"]
    assert found["clock"]["value"].startswith("the server's is ")


@pytest.mark.parametrize("name", system_names())
def test_describe_prints_json_schema_of_every_system(name: str) -> None:
    document = json_schema(load_system(name))
    output = json.dumps(document)
    for reference in re.findall(r'"#/\$defs/([^"]+)"', output):
        assert reference in document["$defs"]
    keys = {record["key"] for record in document["x-records"]}
    assert keys == {
        record.template.text for schema in load_system(name).schemas for record in schema.records
    }


@pytest.mark.parametrize("name", system_names())
def test_the_diagram_of_every_system_has_all_records_and_derived_rows(name: str) -> None:
    schemas = [describe(schema) for schema in load_system(name).schemas]
    rows = sum(len(record.derived) for schema in schemas for record in schema.records)
    records = sum(len(schema.records) for schema in schemas)
    for drawn, arrow in ((mermaid(schemas), "-->|"), (dot(name, schemas), " -> r")):
        assert drawn.count(arrow) == rows
    assert mermaid(schemas).count("<b>") == dot(name, schemas).count("style=bold") == records
    assert all(line.count('"') % 2 == 0 for line in mermaid(schemas).splitlines())


def test_an_option_selects_the_format(tmp_path: Path) -> None:
    assert run("describe", CLIPS, "--format", "mermaid").stdout.startswith("flowchart LR\n")
    assert run("describe", CLIPS, "--format", "dot").stdout.startswith('digraph "clips" {')
    assert "$defs" in json.loads(run("describe", CLIPS, "--format", "json-schema").stdout)
    assert (
        run("describe", CLIPS, "--format", "json").stdout == run("describe", CLIPS, "--json").stdout
    )
    assert "Invalid value" in run("describe", CLIPS, "--format", "svg", code=2).stderr
