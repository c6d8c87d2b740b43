"""The tutorial is a program: its blocks, one after the other, run, and print what it says they
print.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from keyhouse.errors import DeclarationError
from keyhouse.operations.catalog import Catalog
from keyhouse.schema import Record, Schema
from tests.docs.pages import DOCS, blocks
from tests.support.program import SOURCE, run

PAGE = (DOCS / "tutorial.md").read_text()
LINES_MAX = 80


def program() -> str:
    """The blocks with two empty lines between them, as the formatter would have it."""
    return "\n\n".join(blocks(PAGE, "python"))


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


def test_the_blocks_are_the_program_that_the_demo_runs() -> None:
    assert program() == (SOURCE / "keyhouse" / "demo" / "clips.py").read_text()


def test_the_tutorial_takes_less_than_eighty_lines() -> None:
    assert sum(len(block.splitlines()) for block in blocks(PAGE, "python")) < LINES_MAX


def test_the_tutorial_prints_the_output_it_shows(tmp_path: Path) -> None:
    (tmp_path / "clips.py").write_text(program())
    ran = run(program=("clips.py",), cwd=tmp_path)
    shown = next(block for block in blocks(PAGE, "text") if block.startswith("stored "))
    assert without_times(ran.stdout) == without_times(shown)
    again = run(program=("clips.py",), cwd=tmp_path, code=1)
    assert "NewerError: Newer code has migrated the space" in again.stderr


def test_the_tutorials_commands_work_on_its_file(tmp_path: Path) -> None:
    (tmp_path / "clips.py").write_text(program())
    run(program=("clips.py",), cwd=tmp_path)
    [describe, explain] = "".join(blocks(PAGE, "sh")).splitlines()
    assert "clip:{id}" in run(*describe.split()[1:], cwd=tmp_path).stdout
    shown = next(
        block for block in blocks(PAGE, "text") if block.startswith("idx:clip:tag:goal:goal")
    )
    assert run(*explain.split()[1:], cwd=tmp_path).stdout.startswith(shown)


def test_the_tutorials_mistake_is_rejected_as_shown() -> None:
    from keyhouse.demo.clips import BOARD, CLIP

    screen = Record(str, "clip:screen", name="on-screen")
    with pytest.raises(DeclarationError) as refused:
        Schema("clips", CLIP, screen, space=BOARD.space)
    assert f"keyhouse.errors.DeclarationError: {refused.value}\n" in blocks(PAGE, "text")


def test_the_tutorials_schema_can_be_served() -> None:
    from keyhouse.demo.clips import BOARD, NEXT_BOARD

    for schema in (BOARD, NEXT_BOARD):
        Catalog(schema, {})  # raises DeclarationError


def test_the_tutorial_is_typed(tmp_path: Path) -> None:
    """An editor infers that `entry.record` is a Clip."""
    (tmp_path / "check.py").write_text(
        program() + "\n\nasync def kind(store: Store) -> None:\n" + CHECK
    )
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path / "cache"),
            "check.py",
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(SOURCE), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert 'Revealed type is "check.Clip"' in ran.stdout, ran.stdout


CHECK = "    async for entry in store.scan(CLIP):\n        reveal_type(entry.record)\n"
