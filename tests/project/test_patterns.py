"""Patterns of requests and settings end at the end of the text."""

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = [*ROOT.glob("src/**/*.py"), *ROOT.glob("systems/*/src/**/*.py")]
MAY_END_WITH_SPACE: Final = {"Username": "spaces around it are removed"}
"""Types whose pattern may match a newline at the end, with the reason."""


def patterns(module: Path) -> list[tuple[str, int, str]]:
    """Return the name of the statement, the line, and the last constant of each `pattern=`."""
    found = []
    for statement in ast.parse(module.read_text()).body:
        name = ast.unparse(statement).split("=")[0].split(":")[0].strip()
        for node in ast.walk(statement):
            if isinstance(node, ast.keyword) and node.arg == "pattern":
                texts = [each for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
                if texts and isinstance(text := texts[-1].value, str):
                    found.append((name, node.value.lineno, text))
    return found


@pytest.mark.parametrize(
    "module",
    [pytest.param(each, id=str(each.relative_to(ROOT))) for each in MODULES if patterns(each)],
)
def test_no_pattern_lets_a_newline_through_at_the_end(module: Path) -> None:
    """`$` also matches before a newline at the end: a library could be named `lib\\n`, which was
    created, with a folder, and never found again."""
    for name, line, text in patterns(module):
        if text.startswith("^") or text.endswith("$"):
            is_ended = not text.endswith("$") or name in MAY_END_WITH_SPACE
            assert is_ended, f"{module}:{line}: write $(?!\\n), as JSON Schema has no \\Z"
