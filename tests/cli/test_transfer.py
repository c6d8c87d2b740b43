"""`keyhouse move`, `export` and `import`: on files, truncated, and while a program writes."""

import asyncio
import json
from pathlib import Path

import pytest

from keyhouse.cli.commands.move import without_password
from keyhouse.engine import Batch, Put
from keyhouse.engines.registry import open_engine
from keyhouse.serve.data_dir import DataDir
from tests.cli.support.shows import declare_shows
from tests.support.program import run, started
from tests.support.terminal import CTRL_C, on_terminal

BOARD = "keyhouse.demo.clips:BOARD"


def fill(url: str, rows: int = 300) -> None:
    async def write() -> None:
        engine = await open_engine(url)
        for space in ("a", "b\x1b[31m"):
            await engine.commit(
                space,
                Batch(puts=tuple(Put(f"k{number:05d}", b"%d" % number) for number in range(rows))),
            )
        await engine.close()

    asyncio.run(write())


def put(url: str, key: str) -> None:
    async def write() -> None:
        engine = await open_engine(url)
        await engine.commit("a", Batch(puts=(Put(key, b"1"),)))
        await engine.close()

    asyncio.run(write())


def test_move_copies_a_store_and_back(tmp_path: Path) -> None:
    fill(f"sqlite:{tmp_path}/one.db")
    shown = run("move", "rosey", "sqlite:one.db", "rocksdb:two", cwd=tmp_path).stdout
    assert "600 rows of 2 spaces, identical in both; 600 written." in shown
    assert "b\\x1b[31m  300 rows" in shown
    moved = json.loads(
        run("move", "rosey", "rocksdb:two", "sqlite:three.db", "--json", cwd=tmp_path).stdout
    )
    assert moved["rows"] == moved["written"] == 600
    again = json.loads(
        run("move", "rosey", "sqlite:one.db", "sqlite:three.db", "--json", cwd=tmp_path).stdout
    )
    assert again == moved | {"written": 0, "passes": 1}
    put(f"sqlite:{tmp_path}/three.db", "other")
    assert (
        "has other rows"
        in run("move", "rosey", "sqlite:one.db", "sqlite:three.db", cwd=tmp_path, code=1).stderr
    )


def test_move_takes_the_data_folder_of_a_service(tmp_path: Path) -> None:
    """Moved by URLs, the rows were in tables that the service did not look at."""
    (tmp_path / "notes.py").write_text(
        "from keyhouse import Record, Schema, Space\n"
        "NOTE = Record(str, 'note:{id}', name='note')\n"
        "NOTES = Schema('notes', NOTE, space=Space('a person'))\n"
    )
    (tmp_path / "data").mkdir()
    fill(f"sqlite:{tmp_path}/data/notes.db?layout=notes")
    shown = run("move", "notes:NOTES", "data", "rocksdb:other", cwd=tmp_path).stdout
    assert "600 rows of 2 spaces, identical in both" in shown
    assert "keyhouse serve notes:NOTES --engine rocksdb:other" in " ".join(shown.split())
    assert (tmp_path / "other" / "notes").is_dir(), "where `--engine rocksdb:other` looks"


def test_move_rejects_the_data_folder_of_a_running_service(tmp_path: Path) -> None:
    """It copied the rows, and what the service wrote after that was lost."""
    declare_shows(tmp_path)
    run("move", "tv:GUIDE", "sqlite:tv.db", "data", cwd=tmp_path)
    lock = DataDir.take(tmp_path / "data")
    for source in ("data", "sqlite:data/guide.db?layout=guide"):
        refused = run("move", "tv:GUIDE", source, "sqlite:live.db", cwd=tmp_path, code=1).stderr
        assert "what it writes from now on is not copied" in refused and "--follow" in refused
        assert not (tmp_path / "live.db").exists()
    into = run("move", "tv:GUIDE", "sqlite:tv.db", "data", cwd=tmp_path, code=1).stderr
    assert "Another keyhouse serves this data folder" in into
    shown = run("move", "tv:GUIDE", "data", "sqlite:live.db", "--follow", cwd=tmp_path).stdout
    assert "identical in both" in shown
    lock.release()
    assert "0 written" in run("move", "tv:GUIDE", "data", "sqlite:live.db", cwd=tmp_path).stdout


def test_the_file_of_a_program_is_moved_to_the_data_folder_of_a_service(tmp_path: Path) -> None:
    """`serve --engine sqlite:tv.db` rejected the file, and named no way from one to the other."""
    declare_shows(tmp_path)
    serve = ("serve", "tv:GUIDE", "--engine", "sqlite:tv.db", "--http", "127.0.0.1:0")
    refused = run(*serve, "--nats", "off", cwd=tmp_path, code=1).stderr
    assert "keyhouse move SYSTEM sqlite:FILE keyhouse-data" in " ".join(refused.split())
    shown = run("move", "tv:GUIDE", "sqlite:tv.db", "fresh", cwd=tmp_path).stdout
    assert "Now serve it: keyhouse serve tv:GUIDE --data fresh" in " ".join(shown.split())
    listed = run("list", "tv:GUIDE", "--store", "fresh", "--space", "ann", cwd=tmp_path).stdout
    assert "show:a" in listed
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o700


def test_restore_creates_the_data_folder(tmp_path: Path) -> None:
    declare_shows(tmp_path)
    run("backup", "tv:GUIDE", "b.jsonl", "--store", "sqlite:tv.db", cwd=tmp_path)
    command = ("restore", "tv:GUIDE", "b.jsonl", "--store", "fresh")
    run(*command, "--dry-run", cwd=tmp_path)
    assert not (tmp_path / "fresh").exists()
    assert "identical in file and store" in run(*command, cwd=tmp_path).stdout
    (tmp_path / "file").touch()
    refused = run("restore", "tv:GUIDE", "b.jsonl", "--store", "file", cwd=tmp_path, code=1).stderr
    assert "This is a file, not a data folder" in refused


def test_restore_rejects_a_backup_that_ends_inside_a_line(tmp_path: Path) -> None:
    declare_shows(tmp_path)
    run("backup", "tv:GUIDE", "b.jsonl", "--store", "sqlite:tv.db", cwd=tmp_path)
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes()[:-20])
    command = ("restore", "tv:GUIDE", "b.jsonl", "--store", "sqlite:new.db")
    refused = run(*command, cwd=tmp_path, code=1).stderr
    assert "The backup is truncated or damaged at this line: use another. (line=6," in refused
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("move", "rosey", "sqlite:gone.db", "rocksdb:two"),
            "The file does not exist; check the URL",
        ),
        (
            ("move", "rosey", "rocksdb:gone", "sqlite:two.db"),
            "The file does not exist; check the URL",
        ),
        (("move", "rosey", "sqlite:gone.db", "data"), "The file does not exist; check the URL"),
        (("move", "rosey", "sqlite:one.db", "sqlite:one.db"), "FROM and TO are the same engine"),
        (("export", "rosey", "--store", "sqlite:gone.db"), "The file does not exist;"),
        (("export", "rosey", "--store", "sqlite:one.db", "--resume"), "--resume needs a FILE"),
        (("export", "rosey", "one.db", "--store", "sqlite:one.db"), "already exists"),
        (
            ("export", "rosey", "gone.jsonl", "--store", "sqlite:one.db", "--resume"),
            "can't be opened",
        ),
        (
            ("import", "rosey", "gone.jsonl", "--store", "sqlite:two.db"),
            "opened: check its name",
        ),
        (
            ("import", "rosey", "one.db", "--store", "sqlite:two.db"),
            "not a row of an export: correct it, or export again",
        ),
        (
            ("import", "rosey", "cut.jsonl", "--store", "rocksdb:two", "--yes"),
            "truncated. Nothing was written.",
        ),
        (("import", "rosey", "--store", "sqlite:two.db"), "truncated. Nothing was written."),
        (
            ("put", BOARD, "clip:a", "[]", "--space", "a", "--store", "sqlite:two.db"),
            "have its record's type",
        ),
    ],
)
def test_invalid_arguments_are_rejected_and_nothing_is_created(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    fill(f"sqlite:{tmp_path}/one.db", rows=1)
    (tmp_path / "cut.jsonl").write_text('{"space":"s","key":"k","value":1}\n')
    before = {entry.name for entry in tmp_path.iterdir()}
    assert words in run(*arguments, cwd=tmp_path, code=1).stderr
    assert {entry.name for entry in tmp_path.iterdir()} == before


def test_an_export_is_imported_on_another_engine(tmp_path: Path) -> None:
    fill(f"sqlite:{tmp_path}/one.db")
    assert (
        "600 rows, SHA-256 "
        in run("export", "rosey", "one.jsonl", "--store", "sqlite:one.db", cwd=tmp_path).stdout
    )
    shown = run("import", "rosey", "one.jsonl", "--store", "rocksdb:two", cwd=tmp_path).stdout
    assert "600 of 600 rows written; 0 already present, 0 expired." in shown
    again = json.loads(
        run("import", "rosey", "one.jsonl", "--store", "rocksdb:two", "--json", cwd=tmp_path).stdout
    )
    assert again == {"rows": 600, "written": 0, "replaced": 0, "expired": 0, "dry_run": False}
    assert (
        run("export", "rosey", "--store", "rocksdb:two", cwd=tmp_path).stdout
        == (tmp_path / "one.jsonl").read_text()
    )
    one = json.loads(
        run(
            "export",
            "rosey",
            "a.jsonl",
            "--store",
            "rocksdb:two",
            "--space",
            "a",
            "--json",
            cwd=tmp_path,
        ).stdout
    )
    assert one["rows"] == 300


def test_a_truncated_export_is_resumed(tmp_path: Path) -> None:
    fill(f"sqlite:{tmp_path}/one.db")
    run("export", "rosey", "whole.jsonl", "--store", "sqlite:one.db", cwd=tmp_path)
    whole = (tmp_path / "whole.jsonl").read_bytes()
    for cut in (0, 1_000, len(whole) - 3, len(whole)):
        (tmp_path / "part.jsonl").write_bytes(whole[:cut])
        run("export", "rosey", "part.jsonl", "--store", "sqlite:one.db", "--resume", cwd=tmp_path)
        assert (tmp_path / "part.jsonl").read_bytes() == whole
    (tmp_path / "part.jsonl").write_bytes(whole[: whole.rindex(b"{")])
    assert (
        "truncated"
        in run(
            "import", "rosey", "part.jsonl", "--store", "sqlite:two.db", cwd=tmp_path, code=1
        ).stderr
    )
    assert (
        "600 of 600"
        in run(
            "import",
            "rosey",
            "part.jsonl",
            "--store",
            "sqlite:two.db",
            "--allow-truncated",
            cwd=tmp_path,
        ).stdout
    )


def test_an_error_late_in_a_file_leaves_the_store_unchanged(
    tmp_path: Path,
) -> None:
    """With --yes, or into an empty store, the lines before the invalid one were written."""
    put(f"sqlite:{tmp_path}/one.db", "there")
    rows = [f'{{"space":"s","key":"k{number:05d}","value":1}}\n' for number in range(4_100)]
    (tmp_path / "wrong.jsonl").write_text("".join(rows) + "{\n")
    refused = run(
        "import", "rosey", "wrong.jsonl", "--store", "sqlite:one.db", "--yes", cwd=tmp_path, code=1
    )
    assert "line=4101" in refused.stderr and "written_up_to" not in refused.stderr

    async def spaces() -> list[str]:
        engine = await open_engine(f"sqlite:{tmp_path}/one.db")
        found = [space async for space in engine.spaces()]
        await engine.close()
        return found

    assert asyncio.run(spaces()) == ["a"]


def test_import_asks_before_it_replaces_rows(tmp_path: Path) -> None:
    one, other = (
        ("--store", "sqlite:one.db", "--space", "s"),
        ("--store", "sqlite:other.db", "--space", "s"),
    )
    for key, value in (("a", "1"), ("b", "2")):
        run("put", "rosey", key, value, *one, cwd=tmp_path)
    run("put", "rosey", "a", "9", *other, cwd=tmp_path)
    run("export", "rosey", "one.jsonl", *one[:2], cwd=tmp_path)
    command = ("import", "rosey", "one.jsonl", *other[:2])
    would = run(*command, "--dry-run", cwd=tmp_path).stdout
    assert "2 of 2 rows would be written (1 replaced); 0 already present" in would
    assert "Confirmation needs a terminal" in run(*command, cwd=tmp_path, code=1).stderr
    stopped = on_terminal(*command, cwd=tmp_path, typed=[("undo this. [y/N]: ", CTRL_C)], code=130)
    assert "Nothing was changed.\nkeyhouse: Stopped." in stopped and "Interrupted:" not in stopped
    shown = on_terminal(*command, cwd=tmp_path, typed=[("undo this. [y/N]: ", "n\n")], code=1)
    assert "Replace 1 row of sqlite:other.db and add 1?" in shown
    assert run("get", "rosey", "a", *other, cwd=tmp_path).stdout == "9\n"
    lines = (tmp_path / "one.jsonl").read_text()
    refused = run("import", "rosey", *other[:2], cwd=tmp_path, given=lines, code=1).stderr
    assert "which standard input may replace: add --yes" in refused
    piped = run(
        "import", "rosey", "/dev/stdin", *other[:2], cwd=tmp_path, given=lines, code=1
    ).stderr
    assert "add --yes" in piped  # what is read twice is a file, and no pipe
    assert "2 of 2 rows written (1 replaced)" in run(*command, "--yes", cwd=tmp_path).stdout
    assert "0 of 2 rows written; 2 already present" in run(*command, cwd=tmp_path).stdout


def test_an_export_of_records_is_not_imported(tmp_path: Path) -> None:
    async def write() -> None:
        engine = await open_engine(f"sqlite:{tmp_path}/one.db")
        await engine.commit("channel-7", Batch(puts=(Put("unknown", b"1"),)))
        await engine.close()

    asyncio.run(write())
    shown = run(
        "export", BOARD, "one.jsonl", "--records", "--store", "sqlite:one.db", cwd=tmp_path
    ).stdout
    assert "0 rows" in shown and "1 row left out" in shown


def test_import_reads_standard_input(tmp_path: Path) -> None:
    options = ("--store", "rocksdb:two", "--allow-truncated", "--json")
    given = '{"space":"s","key":"k","value":{"n":1}}\n'
    ran = run("import", "rosey", *options, cwd=tmp_path, given=given)
    assert json.loads(ran.stdout) == {
        "rows": 1,
        "written": 1,
        "expired": 0,
        "replaced": 0,
        "dry_run": False,
    }


def test_move_follows_changes_until_enter(tmp_path: Path) -> None:
    source = f"sqlite:{tmp_path}/one.db"
    fill(source)
    target = f"rocksdb:{tmp_path}/two"
    with started("move", "rosey", source, target, "--follow", "--json") as moving:
        assert "Stop the programs" in moving.stderr.readline()
        for number in range(21):
            put(source, f"written meanwhile {number}")
        out, err = moving.communicate("\n", timeout=60)
    assert moving.returncode == 0, err
    assert json.loads(out)["rows"] == 621
    shown = json.loads(run("move", "rosey", source, target, "--json").stdout)
    assert shown["written"] == 0


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://user@host/board", "postgresql://user@host/board"),
        ("postgresql://user:p@ss@host/board", "postgresql://user:PASSWORD@host/board"),
        ("postgresql://host/b?password=p", "postgresql://host/b?password=…"),
        ("nats://a:b@h:4222/?bucket=x", "nats://a:PASSWORD@h:4222/?bucket=x"),
        ("postgresql://user:@/b?host=x", "postgresql://user@/b?host=x"),
        ("sqlite:a@b.db", "sqlite:a@b.db"),
        ("dynamodb://t?region=eu-west-1", "dynamodb://t?region=eu-west-1"),
    ],
)
def test_the_next_command_has_the_url_without_its_password(given: str, shown: str) -> None:
    """`keyhouse move` ended with `--engine TO`, literally, for every URL with a user."""
    assert without_password(given) == shown
