"""Cloudflare's own `wrangler`, if available: it loads an export, and its output is imported here.

It is installed once from the npm registry, into a folder that git ignores. Without node or the
registry the tests are skipped with that reason.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DocumentError, KeyhouseError, RecordError
from keyhouse.testing.faults import FaultyEngine
from keyhouse_streamkit.transfer import export_items, import_items, read_items
from systems.streamkit.tests.support.service import Asked, app_of
from systems.streamkit.tests.test_streamkit_schema import VALUES
from tests.support.program import run

ROOT = Path(__file__).parents[3]
TOOLS = Path(os.environ.get("KEYHOUSE_NODE_TOOLS") or ROOT / "build" / "node")
VERSION = "4.86.0"
SECONDS_MAX = 120

CONFIGURATION = """
name = "streamkit"
compatibility_date = "2026-01-01"
send_metrics = false
[[kv_namespaces]]
binding = "STREAMKIT_KV"
id = "streamkit"
"""


@pytest.fixture(scope="module")
def wrangler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that runs it in a new folder, on a local store."""
    program = TOOLS / "node_modules" / ".bin" / "wrangler"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not here")
    if not program.exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        install = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(TOOLS),
            f"wrangler@{VERSION}",
        ]
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pytest.skip("the npm registry took too long to give wrangler")
        if done.returncode != 0 or not program.exists():
            pytest.skip(f"the npm registry gave no wrangler: {done.stderr[-200:]}")
    folder = tmp_path_factory.mktemp("wrangler")
    (folder / "wrangler.toml").write_text(CONFIGURATION)

    def ask(*arguments: str) -> str:
        environment = os.environ | {
            "WRANGLER_SEND_METRICS": "false",
            "CI": "1",
            "NO_COLOR": "1",
            "HOME": str(folder),
        }
        ran = subprocess.run(
            [program, *arguments, "--binding", "STREAMKIT_KV", "--local"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return ask


async def exported(folder: Path) -> list[dict[str, Any]]:
    engine = MemoryEngine(SystemClock())
    ask = Asked(app_of(engine, folder), engine.clock)
    for record, value in VALUES[:-1]:
        for id in ("a", "a_b.c~d", value["id"]):
            made = await ask(
                "POST", f"/configs/{record.name}", value | {"id": id, "ünï": "☕"}, customer="12345"
            )
            assert made.status == 201
    for scene in ("Gaming Scene", "BRB / Pause? 100%", "Café ☕", '"quoted"'):
        await ask("POST", "/scene-activity/record", {"sceneName": scene}, customer="12345")
    entries: list[dict[str, Any]] = (await ask("GET", "/export", customer="12345")).json
    return entries


@pytest.mark.extra  # three starts of wrangler; the next test has its commands and its file
@pytest.mark.long
def test_wrangler_and_streamkit_read_each_others_files(wrangler: Any, tmp_path: Path) -> None:
    entries = asyncio.run(exported(tmp_path))
    file = tmp_path / "export.json"
    file.write_text(json.dumps(entries))
    wrangler("kv", "bulk", "put", str(file))
    listed = json.loads(wrangler("kv", "key", "list", "--prefix", "cust_12345_"))
    assert [(each["name"], each.get("expiration")) for each in listed] == sorted(
        (entry["key"], entry.get("expiration")) for entry in entries
    )
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps([each["name"] for each in listed]))
    got = wrangler("kv", "bulk", "get", str(keys))

    async def load() -> list[dict[str, Any]]:
        engine = MemoryEngine(SystemClock())
        done = await import_items(engine, read_items(got.encode()))
        assert (done.written, done.expired) == (len(entries), 0)
        return [
            json.loads(item.value or "") | {"key": item.key} async for item in export_items(engine)
        ]

    assert asyncio.run(load()) == [
        json.loads(entry["value"]) | {"key": entry["key"]} for entry in entries
    ]


# The document's wrangler commands, on a file


def test_the_documents_wrangler_commands_have_counterparts(tmp_path: Path) -> None:
    """List by prefix, get, delete, export, import: on SQLite here, and on any engine by another
    URL."""
    entries = asyncio.run(exported(tmp_path))
    (tmp_path / "export.json").write_text(json.dumps(entries))
    store = ("--store", f"sqlite:{tmp_path}/streamkit.db")
    done = run("streamkit", "import", str(tmp_path / "export.json"), *store, "--json")
    assert json.loads(done.stdout)["written"] == len(entries)
    listed = run(
        "list", "streamkit", "cust_12345_", "--space", "12345", *store, "--json"
    ).stdout.splitlines()
    assert sorted(json.loads(line)["key"] for line in listed) == sorted(
        entry["key"] for entry in entries
    )
    key = "cust_12345_streamkit_text-cyclers_config1"
    assert json.loads(run("get", "streamkit", key, *store).stdout)["name"] == "My Text Cycler"
    changed = [
        entry | {"value": entry["value"].replace("My Text Cycler", "Another")} for entry in entries
    ]
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    over = ("streamkit", "import", str(tmp_path / "changed.json"), *store)
    assert "Confirmation needs a terminal" in run(*over, code=1).stderr
    assert json.loads(run("get", "streamkit", key, *store).stdout)["name"] == "My Text Cycler"
    run(*over, "--yes")
    assert json.loads(run("get", "streamkit", key, *store).stdout)["name"] == "Another"
    assert "0 entries written" in run(*over).stdout  # it replaces nothing, and asks nothing
    run("streamkit", "import", str(tmp_path / "export.json"), *store, "--yes")
    run("delete", "streamkit", key, "--yes", *store)
    run("get", "streamkit", key, *store, code=3)
    run("streamkit", "export", str(tmp_path / "again.json"), *store)
    again = json.loads((tmp_path / "again.json").read_text())
    assert [entry for entry in entries if entry["key"] != key] == again


def test_the_key_migration_is_a_command(tmp_path: Path) -> None:
    entries = asyncio.run(exported(tmp_path))
    (tmp_path / "export.json").write_text(json.dumps(entries))
    store = ("--store", f"sqlite:{tmp_path}/streamkit.db")
    run("streamkit", "import", str(tmp_path / "export.json"), *store)
    command = ("streamkit", "migrate-keys", *store)
    assert f"1 customer, {len(entries)} rows would be copied" in run(*command, "--dry-run").stdout
    [moved] = json.loads(run(*command, "--json").stdout)
    assert (moved["customer"], moved["copied"], moved["deleted"]) == (
        "12345",
        len(entries),
        len(entries),
    )
    assert "0 rows copied, 0 deleted" in run(*command).stdout
    listed = run("list", "streamkit", "", "--space", "12345", *store, "--json").stdout.splitlines()
    assert all(json.loads(line)["key"].startswith("cust_12345_streamkit_v2_") for line in listed)
    run(*command, "--customer", "12_streamkit_notes", code=1)


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[{]", '[{"name": "cust_1_streamkit_notes_a"}]', "5"]
)
def test_a_file_that_is_not_wranglers_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    store = f"sqlite:{tmp_path}/streamkit.db"
    refused = run("streamkit", "import", str(tmp_path / "file.json"), "--store", store, code=1)
    assert "Traceback" not in refused.stderr and refused.stderr.count("\n") <= 3
    assert not (tmp_path / "streamkit.db").exists()


@pytest.mark.parametrize("member", ["createdAt", "updatedAt", "lastUsed"])
@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-01-18T12:00:00"])
def test_a_missing_time_is_reported_by_member(member: str, text: str | None) -> None:
    """It used to say that an empty text is not a time, and not where in the file that text was to
    be found."""
    key = (
        "cust_12345_streamkit_notes_a"
        if member != "lastUsed"
        else "cust_12345_streamkit_scene_activity_a"
    )
    times = dict.fromkeys(("createdAt", "updatedAt", "lastUsed"), "2026-01-18T12:00:00.000Z")
    value = {
        "id": "a",
        "title": "",
        "content": "",
        "sceneName": "a",
        "count": 1,
        **times,
        member: text,
    }
    if text is None:
        del value[member]
    with pytest.raises(KeyhouseError) as refused:
        read_items(json.dumps([{"key": key, "value": json.dumps(value)}]).encode())
    assert refused.value.fields.items() >= {"member": member, "entry": 0, "key": key}.items()
    assert ("lacks a time" in str(refused.value)) == (not text)


WRONG = {
    "a negative count": ("scene_activity_a", {"count": -1}, "count"),
    "a count without end": ("scene_activity_a", {"count": 2**63}, "count"),
    "used next week": ("scene_activity_a", {"lastUsed": "2026-01-08T00:00:00.000Z"}, "member"),
    "made next week": ("notes_a", {"createdAt": "2026-01-08T00:00:00.000Z"}, "member"),
    "changed next week": ("notes_a", {"updatedAt": "2026-01-08T00:00:00.000Z"}, "member"),
    "a dot": ("notes_.", {"id": "."}, "id"),
    "two dots": ("v2_notes_..", {"id": ".."}, "id"),
}


@pytest.mark.parametrize(("place", "change", "field"), WRONG.values(), ids=WRONG)
def test_an_invalid_entry_is_rejected_by_its_key(
    place: str, change: dict[str, Any], field: str
) -> None:
    """They were taken: a scene that counts down, one that never expires and is always the last one
    used, a config that is listed and can be neither read nor deleted."""
    times = dict.fromkeys(
        ("createdAt", "updatedAt", "lastUsed"), "2026-01-02T00:00:00.000Z"
    )  # a day ahead is let pass
    value = {"id": "a", "title": "", "content": "", "sceneName": "a", "count": 0, **times}
    key, now = f"cust_1_streamkit_{place}", ManualClock().now()
    for each in ("notes_a", "scene_activity_a"):
        text = json.dumps([{"key": f"cust_1_streamkit_{each}", "value": json.dumps(value)}])
        assert len(read_items(text.encode(), now=now)) == 1
    with pytest.raises(RecordError) as refused:
        read_items(
            json.dumps([{"key": key, "value": json.dumps(value | change)}]).encode(), now=now
        )
    assert (
        refused.value.fields.items() >= {"entry": 0, "key": key}.items()
        and field in refused.value.fields
    )


def test_a_file_that_is_nested_too_deep_is_rejected() -> None:
    with pytest.raises(DocumentError, match="not a wrangler file"):
        read_items(b'[{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}]")


def test_a_key_that_expired_after_it_was_listed_is_counted(tmp_path: Path) -> None:
    """One `null` of `wrangler kv bulk get` refused the whole file."""
    times = dict.fromkeys(("createdAt", "updatedAt"), "2026-01-18T12:00:00.000Z")
    note = json.dumps({"id": "a", "title": "", "content": "", **times})
    values = {"cust_1_streamkit_notes_a": {"value": note}, "cust_1_streamkit_notes_b": None}
    (tmp_path / "values.json").write_text(json.dumps(values, indent=2) + "\n\nSuccess!\n")
    store = ("--store", f"sqlite:{tmp_path}/streamkit.db")
    done = run("streamkit", "import", str(tmp_path / "values.json"), *store, "--json")
    assert json.loads(done.stdout) == {"written": 1, "unchanged": 0, "expired": 1}


def test_an_import_of_large_values_is_split_into_commits() -> None:
    """It counted entries and not bytes: on DynamoDB, whose commits end at some MB, a file of large
    notes failed midway, however often it was tried."""

    async def scenario() -> None:
        engine = FaultyEngine(MemoryEngine(SystemClock()), bytes=400_000)
        note = {
            "title": "",
            "createdAt": "2026-01-18T12:00:00.000Z",
            "updatedAt": "2026-01-18T12:00:00.000Z",
        }
        values = [note | {"id": f"n{number}", "content": "x" * 150_000} for number in range(7)]
        items = [
            {"key": f"cust_1_streamkit_notes_{each['id']}", "value": json.dumps(each)}
            for each in values
        ]
        done = await import_items(engine, read_items(json.dumps(items).encode()))
        assert done.written == 7 and [each.key async for each in export_items(engine)] == [
            each["key"] for each in items
        ]

    asyncio.run(scenario())


def test_an_import_with_duplicates_writes_nothing() -> None:
    """Each customer's entries were looked at when it was their turn, and those of the ones before
    had been written."""

    async def scenario() -> None:
        engine = MemoryEngine(SystemClock())
        note = {
            "id": "a",
            "title": "",
            "content": "",
            "createdAt": "2026-01-18T12:00:00Z",
            "updatedAt": "2026-01-18T12:00:00Z",
        }
        keys = (
            "cust_1_streamkit_notes_a",
            "cust_2_streamkit_notes_a",
            "cust_2_streamkit_v2_notes_a",
        )
        items = [{"key": key, "value": json.dumps(note)} for key in keys]
        with pytest.raises(KeyhouseError) as refused:
            await import_items(engine, read_items(json.dumps(items).encode()))
        assert refused.value.fields == {"customer": "2", "type": "notes", "id": "a"}
        assert [each async for each in export_items(engine)] == []

    asyncio.run(scenario())
