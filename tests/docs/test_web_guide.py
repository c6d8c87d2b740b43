"""The programs of the guide to the parts of a web service print what the page shows."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.support.program import run

PAGE = (DOCS / "guides" / "web-service.md").read_text()
PROGRAMS = [
    (program, printed)
    for program, printed in zip(blocks(PAGE, "python"), blocks(PAGE, "text"), strict=True)
]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_a_program_of_the_guide_prints_what_it_shows(
    tmp_path: Path, program: str, printed: str
) -> None:
    (tmp_path / "program.py").write_text(program)
    assert run(program=("program.py",), cwd=tmp_path).stdout == printed
