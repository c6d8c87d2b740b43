"""The sizes in reports: what counts as a line of code, and where a module belongs."""

import pytest

from tools.code_lines import code_lines, part_of

TEXT = b'''"""A head
of two lines."""

LIMIT = 1
"""A docstring of an attribute."""


def sql() -> str:  # a comment
    """Return it."""
    # a comment
    return """SELECT

    1"""
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    assert code_lines(TEXT) == 5, "a line of a text counts, a blank one in it too"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("src/keyhouse/engine.py", "root"),
        ("src/keyhouse_program.py", "root"),
        ("src/keyhouse/store/jobs/sweep.py", "store"),
        ("systems/rosey/src/keyhouse_rosey/service.py", "systems/rosey"),
        ("src/keyhouse/systems/rosey/service.py", "systems/rosey"),
    ],
)
def test_a_module_belongs_to_a_package_or_a_system(path: str, part: str) -> None:
    assert part_of(path) == part
