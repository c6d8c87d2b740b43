"""The HTTP page is true: its example prints the shown output, and its tables match the code."""

from pathlib import Path

from keyhouse import errors
from keyhouse.http import errors as http_errors
from tests.docs.pages import DOCS, blocks, code, table
from tests.support.program import run

PAGE = (DOCS / "http.md").read_text()


def test_the_example_of_the_http_page_prints_the_shown_output(tmp_path: Path) -> None:
    [program] = blocks(PAGE, "python")
    [printed] = blocks(PAGE, "text")
    (tmp_path / "clips.py").write_text(program)
    assert run(program=("clips.py",), cwd=tmp_path).stdout == printed


def test_every_status_and_code_of_the_http_page_exists() -> None:
    kinds = [
        each
        for module in (errors, http_errors)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, errors.KeyhouseError)
    ]
    known = {(each.status, each.code) for each in kinds}
    named = {
        (int(status), code(each))
        for status, codes, _ in table(PAGE, "## Errors")
        for each in codes.split(", ")
    }
    assert named <= known
    of_http = {
        (each.status, each.code) for each in kinds if each.__module__ == http_errors.__name__
    }
    assert of_http <= named
