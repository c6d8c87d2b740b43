"""The guides to the library: their programs print what the pages show."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.serve.support.serve_process import serving
from tests.support.program import run


@pytest.mark.parametrize("guide", ["sync"])
def test_the_program_of_a_guide_prints_what_it_shows(guide: str, tmp_path: Path) -> None:
    page = (DOCS / "guides" / f"{guide}.md").read_text()
    (tmp_path / "program.py").write_text("\n".join(blocks(page, "python")))
    assert run(program=("program.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))


def test_the_program_of_the_remote_store_prints_what_its_guide_shows(tmp_path: Path) -> None:
    page = (DOCS / "guides" / "remote-store.md").read_text()
    declared, program = blocks(page, "python")
    (tmp_path / "recipes.py").write_text(declared)
    (tmp_path / "program.py").write_text(f"from recipes import *\n{program}")
    with serving(tmp_path, "recipes:BOX") as running:
        token = run(
            "token", "recipes:BOX", "--space", "ann", "--data", str(tmp_path / "data"), cwd=tmp_path
        ).stdout.strip()
        environment = {"KEYHOUSE_URL": running.http, "KEYHOUSE_TOKEN": token}
        done = run(program=("program.py",), cwd=tmp_path, environment=environment)
        assert done.stdout == "".join(blocks(page, "text"))
        assert running.end() == 0
