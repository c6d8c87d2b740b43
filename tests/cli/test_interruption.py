"""Commands stopped by Ctrl-C or a kill: no commit is half made, and running them again completes
them."""

import asyncio
import json
import re
import shutil
import signal
import tomllib
from pathlib import Path

import pytest

from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.registry import open_engine
from keyhouse.errors import UsageError
from tests.support.polling import wait_until
from tests.support.program import SOURCE, run, started
from tests.support.terminal import CTRL_C, on_terminal

ROWS = 20_000
PART = 500_000
"""Characters of an export of about four times as many."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many rows, and a backup of it."""
    made = tmp_path_factory.mktemp("many")

    async def fill() -> None:
        engine = await open_engine(f"sqlite:{made}/many.db")
        for start in range(0, ROWS, 5_000):
            puts = tuple(
                Put(f"k{at:06d}", b'{"text":"%b"}' % (b"x" * 100))
                for at in range(start, start + 5_000)
            )
            await engine.commit("s", Batch(puts=puts))
        await engine.close()

    asyncio.run(fill())
    run("backup", "rosey", "backup.jsonl", "--store", "sqlite:many.db", cwd=made)
    return made


def test_a_killed_export_resumes_and_is_complete(folder: Path, tmp_path: Path) -> None:
    with started(
        "export", "rosey", "--store", f"sqlite:{folder}/many.db", cwd=tmp_path
    ) as exporting:
        partial = exporting.stdout.read(PART)  # it waits: the pipe is full
        exporting.kill()
    (tmp_path / "part.jsonl").write_text(partial)
    store = ("--store", f"sqlite:{folder}/many.db")
    run("export", "rosey", "part.jsonl", *store, "--resume", cwd=tmp_path)
    done = json.loads(
        run("export", "rosey", "part.jsonl", *store, "--resume", "--json", cwd=tmp_path).stdout
    )
    assert done["rows"] == ROWS
    assert (tmp_path / "part.jsonl").read_bytes().count(b"\n") == ROWS + 1


def test_an_interrupted_export_reports_how_to_resume(folder: Path, tmp_path: Path) -> None:
    with started(
        "export", "rosey", "--store", f"sqlite:{folder}/many.db", cwd=tmp_path
    ) as exporting:
        exporting.stdout.read(100_000)
        exporting.send_signal(signal.SIGINT)
        out, err = exporting.communicate(timeout=60)
    assert exporting.returncode == 130
    assert "with --resume" in err and "Traceback" not in err
    assert not out.rstrip().endswith('"}') or '"sha256"' not in out[-200:], "it came to its end"


def test_a_killed_import_completes_when_run_again(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "backup.jsonl").read_text()
    with started("import", "rosey", "--store", "sqlite:new.db", cwd=tmp_path) as importing:
        importing.stdin.write(whole[: len(whole) * 3 // 4])
        importing.stdin.flush()
        wait_until(lambda: rows_in(tmp_path / "new.db"))
    there = rows_in(tmp_path / "new.db")
    assert 0 < there < ROWS
    again = run(
        "import",
        "rosey",
        f"{folder}/backup.jsonl",
        "--store",
        "sqlite:new.db",
        "--json",
        cwd=tmp_path,
    )
    done = json.loads(again.stdout)
    assert done["rows"] == ROWS and 0 < done["written"] < ROWS
    assert rows_in(tmp_path / "new.db") == ROWS


def test_an_interrupted_delete_reports_exactly_what_was_deleted(
    folder: Path, tmp_path: Path
) -> None:
    """The commit in flight is completed before the count is printed."""
    shutil.copy(folder / "many.db", tmp_path / "many.db")
    command = (
        "delete",
        "rosey",
        "--prefix",
        "k",
        "--space",
        "s",
        "--store",
        "sqlite:many.db",
        "--yes",
    )
    shown = on_terminal(*command, cwd=tmp_path, typed=[("records deleted", CTRL_C)], code=130)
    output = re.search(
        r"([\d,]+) records deleted with all derived rows; the rest is unchanged", shown
    )
    assert (
        output is not None
        and "Run the same command again for the rest." in shown
        and "Traceback" not in shown
    )
    gone = int(output[1].replace(",", ""))
    assert 0 < gone < ROWS and rows_in(tmp_path / "many.db") == ROWS - gone
    assert f"Deleted {ROWS - gone:,} records" in run(*command, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("command", "seen", "said"),
    [
        (
            ("import", "rosey", "backup.jsonl", "--store", "sqlite:new.db"),
            "4,000 rows",
            "rows already written stay",
        ),
        (
            ("restore", "rosey", "backup.jsonl", "--store", "sqlite:new.db"),
            "copying s",
            "must not be used",
        ),
        (
            ("move", "rosey", "sqlite:many.db", "sqlite:new.db"),
            "copying s",
            "The move is incomplete",
        ),
    ],
)
def test_an_interrupted_command_reports_how_to_resume_and_completes(
    folder: Path, tmp_path: Path, command: tuple[str, ...], seen: str, said: str
) -> None:
    for name in ("many.db", "backup.jsonl"):
        shutil.copy(folder / name, tmp_path / name)
    shown = interrupted(*command, cwd=tmp_path, seen=seen)
    assert said in shown and "Run the same command again" in shown and "Traceback" not in shown
    run(*command, cwd=tmp_path)
    assert rows_in(tmp_path / "new.db") == ROWS


def interrupted(*command: str, cwd: Path, seen: str) -> str:
    """Interrupt a command that has printed `seen`, and return its output. On a busy machine it may
    end before Ctrl-C arrives: then it is run again."""
    for _ in range(4):
        try:
            return on_terminal(*command, cwd=cwd, typed=[(seen, CTRL_C)], code=130)
        except (AssertionError, OSError) as error:
            if isinstance(error, AssertionError) and not str(error).startswith("exit code 0\n"):
                raise
        for path in cwd.glob("new.db*"):
            path.unlink()
    return on_terminal(*command, cwd=cwd, typed=[(seen, CTRL_C)], code=130)


def rows_in(path: Path) -> int:
    async def count() -> int:
        if not path.exists():
            return 0
        try:
            engine = await open_engine(f"sqlite:{path}", create=False)
        except UsageError:  # no tables yet
            return 0
        total, more, after = 0, True, ""
        while more:
            page = await engine.scan("s", Span().after(after), limit=10_000, keys_only=True)
            total, more = total + len(page.rows), page.more
            after = page.rows[-1].key if page.rows else ""
        await engine.close()
        return total

    return asyncio.run(count())


@pytest.mark.parametrize("rows", [0, 1, ROWS // 2])
def test_a_restore_killed_after_any_row_completes_when_run_again(
    folder: Path, tmp_path: Path, rows: int
) -> None:
    command = ("restore", "rosey", f"{folder}/backup.jsonl", "--store", "sqlite:new.db")
    with started(*command, cwd=tmp_path):
        wait_until(lambda: (tmp_path / "new.db").exists() and rows_in(tmp_path / "new.db") >= rows)
    assert (
        f"{ROWS:,} rows of 1 space, identical in file and store"
        in run(*command, cwd=tmp_path).stdout
    )


def test_an_interrupted_backup_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    with started(
        "backup", "rosey", "b.jsonl", "--store", f"sqlite:{folder}/many.db", cwd=tmp_path
    ) as backing_up:
        wait_until(lambda: list(tmp_path.iterdir()))
        backing_up.send_signal(signal.SIGINT)
        _, err = backing_up.communicate(timeout=60)
    left = [path.name for path in tmp_path.iterdir()]
    assert (backing_up.returncode, left) in ((130, []), (0, ["b.jsonl"])), err
    assert backing_up.returncode == 0 or "No backup was made. Run it again." in err


def test_a_terminal_shows_progress_and_restore_asks_before_it_deletes(
    folder: Path, tmp_path: Path
) -> None:
    shown = on_terminal(
        "backup", "rosey", "b.jsonl", "--store", f"sqlite:{folder}/many.db", cwd=tmp_path
    )
    assert "writing: " in shown and f"{ROWS:,} rows of 1 space" in shown
    command = ("restore", "rosey", "b.jsonl", "--replace", "--store", "sqlite:new.db")
    refused = on_terminal(*command, cwd=tmp_path, typed=[("are deleted. [y/N]: ", "n\n")], code=1)
    assert "Its other rows are deleted" in refused and "Nothing was changed." in refused
    assert not (tmp_path / "new.db").exists()
    assert "Restored" in on_terminal(
        *command, cwd=tmp_path, typed=[("are deleted. [y/N]: ", "y\n")]
    )


def test_ctrl_c_before_the_command_starts_exits_with_130() -> None:
    """While its modules are being imported, which takes a while on a busy machine."""
    program = (
        "import signal, keyhouse.cli.__main__ as e; "
        "e._run = lambda: signal.raise_signal(signal.SIGINT); e.main()"
    )
    assert run(program=("-c", program), code=130).stderr == "keyhouse: Stopped.\n"


def test_ctrl_c_during_import_of_the_package_exits_with_130(tmp_path: Path) -> None:
    """The entry point is outside the package, which could not handle the signal."""
    (tmp_path / "keyhouse").mkdir()
    (tmp_path / "keyhouse" / "__init__.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import keyhouse_program; keyhouse_program.main()"
    )
    assert run(program=("-c", program), code=130).stderr == "keyhouse: Stopped.\n"
    assert tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]["scripts"] == {
        "keyhouse": "keyhouse_program:main"
    }
