"""`verify`, `migrate`, `sweep`, `backup` and `restore`; the grammar of all commands."""

import asyncio
import json
import re
from pathlib import Path
from textwrap import dedent

import apsw
import pytest

from keyhouse import Store, open_engine
from keyhouse.demo.clips import BOARD, fill
from keyhouse.engine import Batch, Put
from keyhouse.serve.data_dir import DataDir
from tests.cli.support.shows import declare_shows
from tests.support.program import run

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


def test_verify_reports_no_problems(folder: Path) -> None:
    shown = run("verify", CLIPS, *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces read: no problems." in shown
    assert (
        "9 rows of 1 space"
        in run("verify", CLIPS, "--space", "channel-8", *STORE, cwd=folder).stdout
    )


def test_verify_finds_and_repairs_broken_rows(folder: Path) -> None:
    by_hand(
        folder,
        "DELETE FROM rows WHERE space = 'channel-8' AND key = 'idx:clip:second:000012:kick-off'",
    )
    found = run("verify", CLIPS, *STORE, cwd=folder, code=5).stdout
    assert (
        "found: missing in channel-8: idx:clip:second:000012:kick-off"
        " (clip:kick-off should have it)" in found
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
    assert "no problems" in run("verify", CLIPS, *STORE, cwd=folder).stdout


def test_unknown_rows_are_deleted_only_with_the_option(folder: Path) -> None:
    commit(folder, "channel-7", Batch(puts=(Put("what\x1b[31m", b"1"), Put("clip:bad", b"[1]"))))
    found = run("verify", CLIPS, "--repair", *STORE, cwd=folder, code=5).stdout
    assert (
        "unknown in channel-7: what\\x1b[31m" in found
        and "unreadable in channel-7: clip:bad" in found
    )
    # after an edit of the declaration, the first advice was to delete all data
    advice = found.index("if the declaration changed, give the new member a default")
    assert advice < found.index("--delete-unreadable")
    assert (
        "Confirmation needs a terminal"
        in run("verify", CLIPS, "--delete-unreadable", *STORE, cwd=folder, code=1).stderr
    )
    assert (
        "2 repaired, 0 left"
        in run("verify", CLIPS, "--delete-unreadable", "--yes", *STORE, cwd=folder).stdout
    )
    assert "18 rows" in run("verify", CLIPS, *STORE, cwd=folder).stdout


def test_a_space_of_another_system_is_listed_and_not_checked(folder: Path) -> None:
    commit(folder, "not/a customer", Batch(puts=(Put("k", b"1"),)))
    shown = run("verify", "streamkit", *STORE, cwd=folder, code=5).stdout
    assert "18 rows of 2 spaces" in shown and "not checked\n  not/a customer" in shown
    refused = run("verify", "streamkit", "--space", "not/a customer", *STORE, cwd=folder, code=1)
    assert "Traceback" not in refused.stderr


def test_migrate_lists_pending_spaces_asks_and_runs_once(folder: Path) -> None:
    dry = run("migrate", NEXT, "--dry-run", *STORE, cwd=folder, code=5).stdout
    assert "2 of 2 spaces would be migrated. Nothing was written." in dry
    assert (
        "Confirmation needs a terminal" in run("migrate", NEXT, *STORE, cwd=folder, code=1).stderr
    )
    done = json.loads(run("migrate", NEXT, "--yes", "--json", *STORE, cwd=folder).stdout)
    assert [(step["space"], step["id"], step["records"]) for step in done["steps"]] == [
        ("channel-7", 1, 2),
        ("channel-8", 1, 2),
    ]
    assert "no pending migrations" in run("migrate", NEXT, *STORE, cwd=folder).stdout
    assert run("migrate", NEXT, "--dry-run", *STORE, cwd=folder).returncode == 0
    run("verify", NEXT, *STORE, cwd=folder)


def test_migrate_reports_a_new_index_that_no_migration_builds(tmp_path: Path) -> None:
    """It reported no pending migrations, and exit code 0, although the index had no rows. A dry run
    with --reindex did not name the indexes that it would build."""
    declare_shows(tmp_path)
    command = ("migrate", "tv:NEXT", "--store", "sqlite:tv.db")
    for options, code in ((["--dry-run"], 5), ([], 0)):
        shown = run(*command, *options, cwd=tmp_path, code=code).stdout
        assert shown.startswith("Checked\n")
        assert "1 index to build in 1 space" in shown and "year:{year:04d}:{id}" in shown
        assert "keyhouse migrate tv:NEXT --store sqlite:tv.db --reindex" in shown
        assert ("Nothing was written." in shown) == ("--dry-run" in options)
    answer = json.loads(run(*command, "--dry-run", "--json", cwd=tmp_path, code=5).stdout)
    assert answer["unbuilt"] == [{"space": "ann", "index": "year:{year:04d}:{id}"}]
    for _ in range(2):
        every = run(*command, "--dry-run", "--reindex", cwd=tmp_path, code=5).stdout
        assert "2 indexes of 1 space would be built again. Nothing was written." in every
        assert "title" in every and "year:{year:04d}:{id}" in every and "Build:" not in every
        assert "2 indexes built" in run(*command, "--reindex", cwd=tmp_path).stdout
    assert "to build" not in run(*command, "--dry-run", cwd=tmp_path).stdout


@pytest.mark.parametrize("program", ["tv.py", "show.py"])
def test_the_error_of_a_new_index_names_the_command_that_builds_it(
    tmp_path: Path, program: str
) -> None:
    """It lacked the store and the name of the schema: a copy of it asked for both."""
    declare_shows(tmp_path)
    opening = "import asyncio\nfrom keyhouse import open_store\n" + dedent(
        """
        async def main():
            async with open_store(NEXT, "sqlite:tv.db", "ann"):
                print("open")

        if __name__ == "__main__":
            asyncio.run(main())
        """
    )
    imported = "" if program == "tv.py" else "from tv import NEXT\n"
    with (tmp_path / program).open("a") as file:
        file.write(imported + opening)
    failed = run(program=(str(tmp_path / program),), cwd=tmp_path, code=1).stderr
    [command] = re.findall(r"command='(keyhouse [^']+)'", failed)
    assert command == "keyhouse migrate tv:NEXT --store sqlite:tv.db --space ann --reindex"
    assert "2 indexes built" in run(*command.split()[1:], cwd=tmp_path).stdout
    assert run(program=(str(tmp_path / program),), cwd=tmp_path).stdout == "open\n"


def test_sweep_deletes_expired_rows(folder: Path) -> None:
    commit(
        folder, "channel-7", Batch(puts=tuple(Put(f"k{at}", b"1", 1_000) for at in range(1_200)))
    )
    assert run("sweep", *STORE, cwd=folder).stdout == "Deleted 1,200 expired rows.\n"
    assert json.loads(run("sweep", "--json", *STORE, cwd=folder).stdout) == {"rows": 0}


def test_a_backup_is_restored_on_another_engine(folder: Path) -> None:
    shown = run("backup", "rosey", "b.jsonl", *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces" in shown and "One snapshot of the whole store." in shown
    restored = run("restore", "rosey", "b.jsonl", "--store", "rocksdb:new", cwd=folder).stdout
    assert "18 rows of 2 spaces, identical in file and store; 18 written." in restored
    assert "no problems" in run("verify", CLIPS, "--store", "rocksdb:new", cwd=folder).stdout
    again = json.loads(
        run("restore", "rosey", "b.jsonl", "--store", "rocksdb:new", "--json", cwd=folder).stdout
    )
    assert again["written"] == 0


def test_restore_rejects_a_folder_in_use_by_serve(folder: Path) -> None:
    """A service that kept writing left a mixture of both stores."""
    run("backup", "rosey", "b.jsonl", *STORE, cwd=folder)
    restore = ("restore", "rosey", "b.jsonl", "--replace", "--yes", *STORE)
    taken = DataDir.take(folder)
    assert (
        "Another keyhouse serves this data folder: stop it"
        in run(*restore, cwd=folder, code=1).stderr
    )
    taken.release()
    run(*restore, cwd=folder)


def test_restore_of_a_store_with_other_rows_needs_replace(folder: Path) -> None:
    run("backup", "rosey", "b.jsonl", *STORE, cwd=folder)
    commit(folder, "channel-9", Batch(puts=(Put("k", b"1"),)))
    before = (folder / "b.jsonl").read_bytes()
    other = run("restore", "rosey", "b.jsonl", *STORE, cwd=folder, code=1).stderr
    assert "has other rows: choose an empty one, or delete them with --replace" in other
    refused = run("restore", "rosey", "b.jsonl", "--replace", *STORE, cwd=folder, code=1).stderr
    assert "Confirmation needs a terminal" in refused
    dry = run("restore", "rosey", "b.jsonl", "--replace", "--dry-run", *STORE, cwd=folder).stdout
    assert "18 rows of 2 spaces. The file is valid; nothing was written." in dry
    assert run("spaces", *STORE, cwd=folder).stdout.splitlines()[-1] == "channel-9"
    run("restore", "rosey", "b.jsonl", "--replace", "--yes", *STORE, cwd=folder)
    assert run("spaces", *STORE, cwd=folder).stdout == "channel-7\nchannel-8\n"
    assert (folder / "b.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("backup", "rosey", "clips.db"), "already exists"),
        (("backup", "rosey", "gone/b.jsonl"), "can't be opened"),
        (("restore", "rosey", "gone.jsonl"), "can't be opened"),
        (("restore", "rosey", "clips.db"), "truncated or damaged"),
    ],
)
def test_an_invalid_file_is_rejected_and_nothing_changes(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = {entry.name for entry in folder.iterdir()}
    refused = run(*arguments, *STORE, cwd=folder, code=1).stderr
    assert words in refused and "Traceback" not in refused
    assert {entry.name for entry in folder.iterdir()} == before


def test_only_its_owner_can_read_a_backup_or_an_export(folder: Path) -> None:
    run("backup", "rosey", "b.jsonl", *STORE, cwd=folder)
    run("export", "rosey", "e.jsonl", *STORE, cwd=folder)
    assert [(folder / name).stat().st_mode & 0o777 for name in ("b.jsonl", "e.jsonl")] == [
        0o600,
        0o600,
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("backup",), "Missing argument 'SYSTEM'"),
        (("backup", "rosey"), "Missing argument 'FILE'"),
        (("restore", "rosey"), "Missing argument 'FILE'"),
        (("export", "rows.jsonl"), "'rows.jsonl' is not an installed system"),
        (("move", "sqlite:a.db", "sqlite:b.db"), "keyhouse move SYSTEM FROM TO"),
    ],
)
def test_a_wrong_spelling_is_rejected_with_the_right_one(
    arguments: tuple[str, ...], words: str
) -> None:
    assert words in " ".join(run(*arguments, code=2).stderr.split())


def test_the_environment_names_the_system(tmp_path: Path) -> None:
    where = {"KEYHOUSE_STORE": "sqlite:bot.db", "KEYHOUSE_SPACE": "trivia"}
    named = where | {"KEYHOUSE_SYSTEM": "rosey"}

    def keyhouse(*arguments: str) -> str:
        return run(*arguments, cwd=tmp_path, environment=named).stdout

    keyhouse("put", "theme", '"dark"')
    keyhouse("put", "--ttl", "24h", "rosey", "rosey", "1")
    assert keyhouse("get", "theme") == keyhouse("get", "rosey", "theme") == '"dark"\n'
    assert keyhouse("get", "rosey", "rosey") == "1\n"
    assert keyhouse("list") == "rosey\ntheme\n"
    assert keyhouse("list", "--limit", "5", "th") == "theme\n"
    assert "2 rows" in keyhouse("backup", "b.jsonl")
    assert "2 rows" in keyhouse("move", "sqlite:bot.db", "sqlite:{system}.db")
    assert (tmp_path / "rosey.db").exists()
    assert "Missing argument 'KEY'" in run("get", "rosey", environment=named, code=2).stderr


def test_the_environment_names_the_schema_of_acl(folder: Path) -> None:
    shown = run("acl", "ann", "--json", cwd=folder, environment={"KEYHOUSE_SYSTEM": CLIPS})
    assert [user["user"] for user in json.loads(shown.stdout)["users"]] == ["keyhouse", "ann"]


def test_convert_gives_all_keys_a_prefix_and_takes_it_away_again(folder: Path) -> None:
    prefixed = f"{CLIPS}@channel:{{channel}}:"
    before = run("export", CLIPS, *STORE, cwd=folder).stdout
    to = ("--to", "channel:{channel}:")
    shown = run("convert", CLIPS, *to, "--yes", *STORE, cwd=folder).stdout
    assert "2 spaces, 18 rows moved." in shown
    assert (
        "18 rows of 2 spaces read: no problems."
        in run("verify", prefixed, *STORE, cwd=folder).stdout
    )
    lines = run("list", prefixed, "--space", "channel-7", *STORE, cwd=folder).stdout
    assert "channel:channel-7:clip:kick-off" in lines
    again = run("convert", CLIPS, *to, "--yes", "--json", *STORE, cwd=folder).stdout
    assert [each["moved"] for each in json.loads(again)] == [0, 0]
    run("convert", prefixed, "--to", "", "--yes", *STORE, cwd=folder)
    assert run("export", CLIPS, *STORE, cwd=folder).stdout == before


def test_convert_lists_the_rows_that_it_leaves(folder: Path) -> None:
    taken = Put("channel:channel-7:clip:kick-off", b"{}")
    commit(folder, "channel-7", Batch(puts=(taken,)))
    to = ("--to", "channel:{channel}:")
    shown = run("convert", CLIPS, *to, "--yes", *STORE, cwd=folder, code=1).stdout
    assert "the new key has a different value: channel-7, clip:kick-off" in shown
    assert "add --yes" in run("convert", CLIPS, *to, *STORE, cwd=folder, code=1).stderr
