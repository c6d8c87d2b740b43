"""`verify`, `migrate`, `sweep`, `backup` and `restore`, as an operator runs them over whole stores."""

import asyncio
import json
from pathlib import Path

import apsw
import pytest

from keyhouse import Store, open_engine
from keyhouse.demo.clips import BOARD, fill
from keyhouse.engine import Batch, Put
from keyhouse.serve.data_dir import DataDir
from tests.cli.running import run

CLIPS = "keyhouse.demo.clips:BOARD"
NEXT = "keyhouse.demo.clips:NEXT_BOARD"
STORE = ("--store", "sqlite:clips.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with two channels."""

    async def make() -> None:
        engine = await open_engine(f"sqlite:{tmp_path}/clips.db")
        for space in ("channel-7", "channel-8"):
            await fill(Store(BOARD, engine, space))
        await engine.close()

    asyncio.run(make())
    return tmp_path


def by_hand(folder: Path, sql: str) -> None:
    connection = apsw.Connection(str(folder / "clips.db"))
    connection.execute(sql)
    connection.close()


def commit(folder: Path, space: str, batch: Batch) -> None:
    async def write() -> None:
        engine = await open_engine(f"sqlite:{folder}/clips.db")
        await engine.commit(space, batch)
        await engine.close()

    asyncio.run(write())


def test_verify_says_that_all_is_well(folder: Path) -> None:
    shown = run("verify", CLIPS, *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces read, and all is as it should be." in shown
    assert (
        "9 rows of 1 space"
        in run("verify", CLIPS, "--space", "channel-8", *STORE, cwd=folder).stdout
    )


def test_verify_finds_what_was_broken_by_hand_and_mends_it(folder: Path) -> None:
    by_hand(
        folder,
        "DELETE FROM rows WHERE space = 'channel-8' AND key = 'idx:clip:second:000012:kick-off'",
    )
    found = run("verify", CLIPS, *STORE, cwd=folder, code=5).stdout
    assert (
        "found: missing in channel-8: idx:clip:second:000012:kick-off (clip:kick-off should have it)"
        in found
    )
    assert "17 rows of 2 spaces read: 1 finding, 0 repaired, 1 left." in found
    lines = run("verify", CLIPS, "--repair", "--json", *STORE, cwd=folder).stdout.splitlines()
    assert [json.loads(line).get("repaired") for line in lines] == [True, None]
    assert json.loads(lines[-1]) == {
        "rows": 17,
        "spaces": 2,
        "findings": 1,
        "left": 0,
        "other_spaces": [],
    }
    assert "all is as it should be" in run("verify", CLIPS, *STORE, cwd=folder).stdout


def test_what_nobody_knows_is_dropped_only_when_told(folder: Path) -> None:
    commit(folder, "channel-7", Batch(puts=(Put("what\x1b[31m", b"1"), Put("clip:bad", b"[1]"))))
    found = run("verify", CLIPS, "--repair", *STORE, cwd=folder, code=5).stdout
    assert (
        "unknown in channel-7: what\\x1b[31m" in found
        and "unreadable in channel-7: clip:bad" in found
    )
    assert (
        "There is nobody to ask"
        in run("verify", CLIPS, "--drop", *STORE, cwd=folder, code=1).stderr
    )
    assert (
        "2 repaired, 0 left" in run("verify", CLIPS, "--drop", "--yes", *STORE, cwd=folder).stdout
    )
    assert "18 rows" in run("verify", CLIPS, *STORE, cwd=folder).stdout


def test_a_space_of_another_system_is_named_and_left_alone(folder: Path) -> None:
    commit(folder, "not/a customer", Batch(puts=(Put("k", b"1"),)))
    shown = run("verify", "streamkit", *STORE, cwd=folder, code=5).stdout
    assert "18 rows of 2 spaces" in shown and "not looked at\n  not/a customer" in shown
    refused = run("verify", "streamkit", "--space", "not/a customer", *STORE, cwd=folder, code=1)
    assert "Traceback" not in refused.stderr


def test_migrate_names_what_is_behind_asks_and_does_it_once(folder: Path) -> None:
    dry = run("migrate", NEXT, "--dry-run", *STORE, cwd=folder, code=5).stdout
    assert "2 spaces of 2 spaces would be migrated. Nothing was written." in dry
    assert "There is nobody to ask" in run("migrate", NEXT, *STORE, cwd=folder, code=1).stderr
    done = json.loads(run("migrate", NEXT, "--yes", "--json", *STORE, cwd=folder).stdout)
    assert [(step["space"], step["id"], step["records"]) for step in done["steps"]] == [
        ("channel-7", 1, 2),
        ("channel-8", 1, 2),
    ]
    assert "Nothing to do." in run("migrate", NEXT, *STORE, cwd=folder).stdout
    assert run("migrate", NEXT, "--dry-run", *STORE, cwd=folder).returncode == 0
    run("verify", NEXT, *STORE, cwd=folder)


def test_sweep_removes_what_has_expired(folder: Path) -> None:
    commit(
        folder, "channel-7", Batch(puts=tuple(Put(f"k{at}", b"1", 1_000) for at in range(1_200)))
    )
    assert run("sweep", *STORE, cwd=folder).stdout == "Removed 1,200 expired rows.\n"
    assert json.loads(run("sweep", "--json", *STORE, cwd=folder).stdout) == {"rows": 0}


def test_a_backup_is_restored_on_another_engine(folder: Path) -> None:
    shown = run("backup", "--to", "b.jsonl", *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces" in shown and "All of it is of one moment." in shown
    restored = run("restore", "--from", "b.jsonl", "--store", "rocksdb:new", cwd=folder).stdout
    assert "18 rows of 2 spaces, the same in file and store; 18 written." in restored
    assert (
        "all is as it should be"
        in run("verify", CLIPS, "--store", "rocksdb:new", cwd=folder).stdout
    )
    again = json.loads(
        run("restore", "--from", "b.jsonl", "--store", "rocksdb:new", "--json", cwd=folder).stdout
    )
    assert again["written"] == 0


def test_nothing_is_restored_into_a_folder_that_is_served(folder: Path) -> None:
    """A service that goes on writing made a store of two halves of it."""
    run("backup", "--to", "b.jsonl", *STORE, cwd=folder)
    restore = ("restore", "--from", "b.jsonl", "--replace", "--yes", *STORE)
    taken = DataDir.take(folder)
    assert (
        "Another keyhouse serves this data folder: stop it"
        in run(*restore, cwd=folder, code=1).stderr
    )
    taken.release()
    run(*restore, cwd=folder)


def test_a_store_with_other_rows_is_restored_only_when_told(folder: Path) -> None:
    run("backup", "--to", "b.jsonl", *STORE, cwd=folder)
    commit(folder, "channel-9", Batch(puts=(Put("k", b"1"),)))
    before = (folder / "b.jsonl").read_bytes()
    assert (
        "has other rows" in run("restore", "--from", "b.jsonl", *STORE, cwd=folder, code=1).stderr
    )
    refused = run("restore", "--from", "b.jsonl", "--replace", *STORE, cwd=folder, code=1).stderr
    assert "There is nobody to ask" in refused
    dry = run("restore", "--from", "b.jsonl", "--replace", "--dry-run", *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces. The file is whole; nothing was written." in dry
    assert run("spaces", *STORE, cwd=folder).stdout.splitlines()[-1] == "channel-9"
    run("restore", "--from", "b.jsonl", "--replace", "--yes", *STORE, cwd=folder)
    assert run("spaces", *STORE, cwd=folder).stdout == "channel-7\nchannel-8\n"
    assert (folder / "b.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("backup",), "--to FILE"),
        (("backup", "--to", "clips.db"), "there already"),
        (("backup", "--to", "gone/b.jsonl"), "can't be opened"),
        (("restore",), "--from FILE"),
        (("restore", "--from", "gone.jsonl"), "can't be opened"),
        (("restore", "--from", "clips.db"), "A line is not a row"),
        (("export", "--records"), "Name the system"),
    ],
)
def test_what_can_not_be_is_said_and_changes_nothing(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = {entry.name for entry in folder.iterdir()}
    refused = run(*arguments, *STORE, cwd=folder, code=1).stderr
    assert words in refused and "Traceback" not in refused
    assert {entry.name for entry in folder.iterdir()} == before


def test_only_its_owner_can_read_a_backup_or_an_export(folder: Path) -> None:
    run("backup", *STORE, "--to", "b.jsonl", cwd=folder)
    run("export", *STORE, "--to", "e.jsonl", cwd=folder)
    assert [(folder / name).stat().st_mode & 0o777 for name in ("b.jsonl", "e.jsonl")] == [
        0o600,
        0o600,
    ]
