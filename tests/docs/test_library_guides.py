"""The guides to the library: their programs print what the pages show."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.support.program import run


@pytest.mark.parametrize("guide", ["sync"])
def test_the_program_of_a_guide_prints_what_it_shows(guide: str, tmp_path: Path) -> None:
    page = (DOCS / "guides" / f"{guide}.md").read_text()
    (tmp_path / "program.py").write_text("\n".join(blocks(page, "python")))
    assert run(program=("program.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))
