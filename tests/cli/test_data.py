"""`get`, `put`, `delete`, `list`, `scan`, `count`, `watch`, `spaces`, `stats` on a SQLite file."""

import asyncio
import json
from pathlib import Path

import pytest

from keyhouse import open_engine
from keyhouse.engine import Batch, Put
from tests.cli.support.board import BOARD, GOAL, STORE, everything, lines
from tests.support.program import run, started

# Put and get


def test_put_writes_a_record_and_its_derived_rows(tmp_path: Path) -> None:
    shown = run("put", BOARD, "clip:goal", GOAL, *STORE, cwd=tmp_path).stdout
    assert "Stored in the space `channel-7` at revision 1." in shown
    assert "idx:clip:tag:replay:goal" in shown
    assert run("list", BOARD, *STORE, cwd=tmp_path).stdout.split("\n") == [
        "clip:goal",
        "idx:clip:second:000754:goal",
        "idx:clip:tag:goal:goal",
        "idx:clip:tag:replay:goal",
        "idx:clip:title:what a goal!",
        "",
    ]


def test_put_and_delete_reject_a_space_migrated_by_newer_code(tmp_path: Path) -> None:
    """A put in the old format was stored among the new ones."""
    board = "keyhouse.demo.clips:NEXT_BOARD"
    run("put", board, "clip:goal", GOAL, *STORE, cwd=tmp_path)

    async def migrate_further() -> None:
        engine = await open_engine(f"sqlite:{tmp_path / 'clips.db'}")
        await engine.commit("channel-7", Batch(puts=(Put("meta:version", b"5"),)))
        await engine.close()

    asyncio.run(migrate_further())
    for words in (("put", board, "clip:goal", GOAL), ("delete", board, "clip:goal", "--yes")):
        refused = run(*words, *STORE, cwd=tmp_path, code=1).stderr
        assert "The store was migrated by newer code: use the newer program." in refused
    assert "What a goal!" in run("get", board, "clip:goal", *STORE, cwd=tmp_path).stdout


def test_get_prints_only_the_value_in_a_pipe(folder: Path) -> None:
    value = json.loads(run("get", BOARD, "clip:goal", *STORE, cwd=folder).stdout)
    assert value["id"] == "goal"
    assert value["tags"] == ["Goal", "replay"]
    row = json.loads(run("get", BOARD, "clip:goal", *STORE, "--json", cwd=folder).stdout)
    assert row["value"] == value
    assert (row["space"], row["kind"], row["record"], row["revision"], row["expires"]) == (
        "channel-7",
        "record",
        "clip",
        1,
        None,
    )


def test_get_reads_a_derived_row(folder: Path) -> None:
    row = json.loads(
        run("get", BOARD, "idx:clip:title:what a goal!", *STORE, "--json", cwd=folder).stdout
    )
    assert (row["kind"], row["record"], row["value"]) == ("unique", "clip", "goal")


def test_a_missing_row_exits_with_3(folder: Path) -> None:
    ran = run("get", BOARD, "clip:none", *STORE, cwd=folder, code=3)
    assert ran.stdout == ""
    assert "No row at this key, or it expired. (key='clip:none'" in ran.stderr
    output = json.loads(run("get", BOARD, "clip:none", *STORE, "--json", cwd=folder, code=3).stderr)
    assert (output["code"], output["status"]) == ("NOT_FOUND", 404)


def test_an_unreadable_row_is_an_error_not_null(folder: Path) -> None:
    """A pipe got `null` and the exit code 0, and wrote it back."""
    run(
        program=("-m", "apsw", "clips.db", "UPDATE rows SET value = '{' WHERE key = 'clip:goal'"),
        cwd=folder,
    )
    ran = run("get", BOARD, "clip:goal", *STORE, cwd=folder, code=1)
    assert (
        ran.stdout == "" and "The row can't be decoded; `keyhouse explain` shows it." in ran.stderr
    )
    assert (
        json.loads(run("get", BOARD, "clip:goal", *STORE, "--json", cwd=folder, code=1).stderr)[
            "status"
        ]
        == 500
    )


def test_put_reads_a_value_from_a_file_or_standard_input(folder: Path) -> None:
    (folder / "clip.json").write_text(GOAL.replace("Goal", "Header"))
    run("put", BOARD, "clip:goal", "--file", "clip.json", *STORE, cwd=folder)
    assert run("count", BOARD, "idx:clip:tag:header:", *STORE, cwd=folder).stdout == "1\n"
    run("put", BOARD, "clip:goal", *STORE, cwd=folder, given=GOAL)
    assert run("count", BOARD, "idx:clip:tag:header:", *STORE, cwd=folder).stdout == "0\n"
    run("put", BOARD, "screen", "--text", 'say "hi"', *STORE, cwd=folder)
    assert run("get", BOARD, "screen", *STORE, cwd=folder).stdout == '"say \\"hi\\""\n'


def test_put_checks_the_expected_revision(folder: Path) -> None:
    assert (
        "expected=7"
        in run("put", BOARD, "clip:goal", GOAL, "--expect", "7", *STORE, cwd=folder, code=4).stderr
    )
    assert (
        "found=1"
        in run(
            "put", BOARD, "clip:goal", GOAL, "--expect", "absent", *STORE, cwd=folder, code=4
        ).stderr
    )
    run("put", BOARD, "clip:goal", GOAL, "--expect", "1", *STORE, cwd=folder)
    other = GOAL.replace("What", "Oh, what")
    run("put", BOARD, "clip:late", other, "--expect", "absent", *STORE, cwd=folder)


def test_put_accepts_a_ttl_with_a_unit(tmp_path: Path) -> None:
    where = ("--store", "sqlite:bot.db", "--space", "trivia")
    written = json.loads(
        run("put", "rosey", "theme", "1", "--ttl", "24h", *where, "--json", cwd=tmp_path).stdout
    )
    assert written["expires"] is not None
    assert json.loads(run("explain", "rosey", "theme", *where, "--json", cwd=tmp_path).stdout)[
        "found"
    ][0]["stored"]["seconds_left"] in range(86_300, 86_401)
    assert (
        "15m"
        in run("put", "rosey", "theme", "1", "--ttl", "soon", *where, cwd=tmp_path, code=1).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("clip:goal", '{"title": 1, "second": 2, "viewer": "A"}'), "Expected `str`, got `int`"),
        (("clip:goal", "{"), "The value is not JSON"),
        (("clip:goal", "dark"), "add --text"),
        (("clip:goal", "[" * 100_000), "The value is not JSON"),
        (
            ("clip:goal", '{"id": "other", "title": "T", "second": 2, "viewer": "A"}'),
            "has another value there",
        ),
        (("clip:late", GOAL), "Another record holds this value"),
        (("idx:clip:tag:goal:goal", "1"), "This is a derived row"),
        (("clips:goal", GOAL), "The key matches no template of the system"),
        (("clip:goal", GOAL, "--ttl", "5"), "not declared to expire"),
        (("clip:goal", GOAL, "--expect", "first"), "A revision is a whole number"),
        (("clip:goal", GOAL, "--file", "x.json"), "not both"),
        (("clip:goal", "--file", "gone.json"), "can't be opened"),
        (("clip:\udcff", GOAL), "lone surrogate"),
    ],
)
def test_put_rejects_an_invalid_value_and_changes_nothing(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = everything(folder)
    ran = run("put", BOARD, *arguments, *STORE, cwd=folder, code=None)
    assert ran.returncode in (1, 4)
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert everything(folder) == before


def test_put_of_a_get_preserves_private_members(tmp_path: Path) -> None:
    """A change of a user's name with `get` and `put` would delete the password."""
    ulid = "01HQ3K5V7X9ZB2D4F6G8J0K2M4"
    where = ("--store", "sqlite:a.db", "--space", "main")
    user = {
        "id": ulid,
        "username": "ada",
        "role": "listener",
        "password_hash": "secret",
        "display_name": "Ada",
    }
    run("put", "audiobooks", f"u:{ulid}", json.dumps(user), *where, cwd=tmp_path)
    shown = json.loads(run("get", "audiobooks", f"u:{ulid}", *where, cwd=tmp_path).stdout)
    assert "password_hash" not in shown
    run(
        "put",
        "audiobooks",
        f"u:{ulid}",
        json.dumps(shown | {"username": "lovelace"}),
        *where,
        cwd=tmp_path,
    )
    [line] = [
        line
        for line in run(
            "export", "rosey", "--store", "sqlite:a.db", cwd=tmp_path
        ).stdout.splitlines()
        if f'"u:{ulid}"' in line
    ]
    assert json.loads(line)["value"]["password_hash"] == "secret"


# Lists


def test_list_filters_by_prefix_type_and_limit(folder: Path) -> None:
    def listed(*arguments: str) -> list[str]:
        return run("list", BOARD, *arguments, *STORE, cwd=folder).stdout.splitlines()

    assert listed("idx:clip:t") == listed("idx:clip:t", "--type", "derived")
    assert listed("--type", "records") == listed("--type", "clip") == ["clip:goal"]
    assert listed("--limit", "2") == ["clip:goal", "idx:clip:second:000754:goal"]
    assert listed("--after", "idx:clip:second:000754:goal", "--limit", "1") == [
        "idx:clip:tag:goal:goal"
    ]
    assert listed("--reverse") == listed()[::-1]
    assert "known=" in run("list", BOARD, "--type", "none", *STORE, cwd=folder, code=1).stderr


def test_scan_prints_values_and_resolves_an_index(folder: Path) -> None:
    key, _, value = (
        run("scan", BOARD, "clip:", *STORE, cwd=folder).stdout.rstrip("\n").partition("\t")
    )
    assert (key, json.loads(value)["viewer"]) == ("clip:goal", "Ada")
    [row] = lines(
        run("scan", BOARD, "idx:clip:tag:goal:", "--resolve", *STORE, "--json", cwd=folder).stdout
    )
    assert (row["key"], row["value"]["viewer"]) == ("clip:goal", "Ada")


def test_count_counts_rows(folder: Path) -> None:
    assert run("count", BOARD, *STORE, cwd=folder).stdout == "5\n"
    output = json.loads(
        run("count", BOARD, "clip:", "--type", "records", *STORE, "--json", cwd=folder).stdout
    )
    assert output == {"space": "channel-7", "prefix": "clip:", "type": "records", "rows": 1}


def test_spaces_lists_spaces_with_rows(folder: Path) -> None:
    run(
        "put",
        BOARD,
        "screen",
        '"on"',
        "--store",
        "sqlite:clips.db",
        "--space",
        "a\x1b[31m\nb",
        cwd=folder,
    )
    assert (
        run("spaces", "--store", "sqlite:clips.db", cwd=folder).stdout
        == "a\\x1b[31m\\nb\nchannel-7\n"
    )
    output = lines(run("spaces", "--store", "sqlite:clips.db", "--json", cwd=folder).stdout)
    assert [each["space"] for each in output] == ["a\x1b[31m\nb", "channel-7"]


# Targets


def test_completion_offers_systems_spaces_and_keys(folder: Path) -> None:
    def offered(*words: str) -> list[str]:
        output = {
            "_KEYHOUSE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        return run(cwd=folder, environment=output).stdout.split()

    where = ("keyhouse", "list", "--store", "sqlite:clips.db")
    assert offered("keyhouse", "get", "ro") == ["rosey"]
    assert offered(*where, "--space", "ch") == ["channel-7"]
    assert offered(*where, "--space", "channel-7", BOARD, "idx:clip:s") == [
        "idx:clip:second:000754:goal"
    ]
    assert offered("keyhouse", "list", "--store", "sqlite:gone.db", "--space", "ch") == []
    assert not (folder / "gone.db").exists()


# Watch


def test_watch_prints_changes_as_they_are_committed(folder: Path) -> None:
    command = ("watch", BOARD, *STORE, "--type", "clip", "--count", "2", "--json")
    with started(*command, cwd=folder) as watching:
        assert (
            watching.stderr.readline() == "Watching channel-7 after revision 1. Ctrl-C stops it.\n"
        )
        run("put", BOARD, "clip:goal", GOAL.replace("754", "748"), *STORE, cwd=folder)
        assert json.loads(watching.stdout.readline())["value"]["second"] == 748
        run("put", BOARD, "clip:goal", GOAL, *STORE, cwd=folder)
        [last] = lines(watching.communicate(timeout=60)[0])
        assert (last["change"], last["revision"]) == ("put", 3)
    assert watching.returncode == 0


def test_watch_can_start_at_an_earlier_revision(folder: Path) -> None:
    shown = run(
        "watch", BOARD, *STORE, "--since", "0", "--count", "5", cwd=folder
    ).stdout.splitlines()
    changes = [line.split("\t")[:3] for line in shown]
    assert len(changes) == 5 and ["1", "put", "clip:goal"] in changes
    assert {tuple(change[:2]) for change in changes} == {("1", "put")}


# Delete


def test_delete_removes_a_record_and_its_derived_rows(folder: Path) -> None:
    assert "add --yes" in run("delete", BOARD, "clip:goal", *STORE, cwd=folder, code=1).stderr
    dry = json.loads(
        run("delete", BOARD, "clip:goal", "--dry-run", "--json", *STORE, cwd=folder).stdout
    )
    expected = {"space": "channel-7", "records": 1, "left": 0, "dry_run": True, "forgotten": False}
    assert dry == expected
    assert (
        "expected=9"
        in run(
            "delete", BOARD, "clip:goal", "--expect", "9", "--yes", *STORE, cwd=folder, code=4
        ).stderr
    )
    assert len(everything(folder)) == 5
    assert (
        "Deleted 1 record" in run("delete", BOARD, "clip:goal", "--yes", *STORE, cwd=folder).stdout
    )
    assert everything(folder) == []
    run("delete", BOARD, "clip:goal", "--yes", *STORE, cwd=folder, code=3)


def test_delete_empties_a_space_with_whole_space(folder: Path) -> None:
    assert (
        "Would delete 1 record"
        in run("delete", BOARD, "--prefix", "", "--dry-run", *STORE, cwd=folder).stdout
    )
    assert (
        "Deleted 1 record"
        in run("delete", BOARD, "--whole-space", "--yes", *STORE, cwd=folder).stdout
    )
    assert everything(folder) == []


def test_delete_forgets_a_space_with_its_change_log(folder: Path) -> None:
    """A tenant could be erased only by a program."""
    words = ("delete", BOARD, "--forget", *STORE)
    assert "Would delete 1 record" in run(*words, "--dry-run", cwd=folder).stdout
    assert "Erased the space channel-7: 1 record" in run(*words, "--yes", cwd=folder).stdout
    assert everything(folder) == []
    assert "channel-7" not in run("spaces", BOARD, *STORE[:2], cwd=folder).stdout
    file = folder / STORE[1].removeprefix("sqlite:")
    assert b"clip:goal" not in file.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Name what to delete"),
        (("clip:goal", "--forget"), "Name what to delete"),
        (("clip:goal", "--prefix", "clip:"), "Name what to delete"),
        (("--prefix", "clip:", "--expect", "1"), "--expect needs a KEY"),
        (("idx:clip:tag:goal:goal",), "This is a derived row"),
    ],
)
def test_delete_rejects_invalid_arguments(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    before = everything(folder)
    assert words in run("delete", BOARD, *arguments, "--yes", *STORE, cwd=folder, code=1).stderr
    assert everything(folder) == before


# Stats


def test_stats_counts_rows_and_bytes_by_space_and_template(folder: Path) -> None:
    shown = run("stats", BOARD, "--store", "sqlite:clips.db", cwd=folder).stdout
    assert "5 rows in 1 space, " in shown
    assert "idx:clip:tag:{tag:norm}:{id}       index of clip   2 rows" in shown
    output = json.loads(
        run("stats", BOARD, "--store", "sqlite:clips.db", "--json", cwd=folder).stdout
    )
    rows = everything(folder)
    assert output["bytes"] == sum(len(row.key.encode()) + len(row.value) for row in rows)
    assert output["spaces"][0]["space"] == "channel-7"
    assert sum(each["rows"] for each in output["templates"]) == output["rows"] == len(rows)


# The store of a service


SHOP = """
import msgspec
from keyhouse import Record, Schema, Space

class Toy(msgspec.Struct):
    id: str
    name: str = ""

TOY = Record(Toy, "toy:{id}")
KEPT = Record(Toy, "kept:{id}", name="kept", unknown="keep")
SHOP = Schema("shop", TOY, KEPT, space=Space("a shop"))
"""


def test_put_does_not_drop_members_that_the_record_does_not_know(tmp_path: Path) -> None:
    """`colour` was dropped without a word."""
    (tmp_path / "shop.py").write_text(SHOP)
    store = ("--store", "sqlite:shop.db", "--space", "ann")
    rejected = run(
        "put",
        "shop:SHOP",
        "toy:a",
        '{"name": "car", "colour": "red"}',
        *store,
        cwd=tmp_path,
        code=1,
    )
    assert "colour" in rejected.stderr
    run("put", "shop:SHOP", "kept:a", '{"name": "car", "colour": "red"}', *store, cwd=tmp_path)
    run("put", "shop:SHOP", "kept:a", '{"name": "bus", "size": 1}', *store, cwd=tmp_path)
    found = run("get", "shop:SHOP", "kept:a", *store, cwd=tmp_path).stdout
    assert json.loads(found) == {"id": "a", "name": "bus", "size": 1, "colour": "red"}
