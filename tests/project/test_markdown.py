"""Markdown wraps at 100 columns, table cells too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_documentation import ROOT, tracked

COLUMNS_MAX = 100

VERBATIM = ("text", "json", "nats")
"""Languages of blocks with output and messages."""

GENERATED = ("docs/cli.md", "systems/*/keyspace.md")
"""Written by a program from text of any length."""


def long_lines(text: str) -> Iterator[int]:
    """Return the numbers of lines that are too long and could be wrapped.

    Output and messages of programs are verbatim, generated tables (between `<!-- made` and
    `<!-- end`) have text of any length, and a lone URL has no place to break."""
    is_verbatim = in_block = is_generated = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<!-- "):
            is_generated = line.startswith("<!-- made")
        elif line.lstrip().startswith("```"):
            in_block = not in_block
            is_verbatim = in_block and line.strip().removeprefix("```").startswith(VERBATIM)
        elif len(line) > COLUMNS_MAX and not is_verbatim and not is_generated:
            words = line.strip().lstrip("-* ").split()
            if len(words) > 1 or "://" not in words[0]:
                yield number


def checked_pages() -> list[Path]:
    return [
        page for page in tracked("*.md") if not any(page.match(pattern) for pattern in GENERATED)
    ]


def test_markdown_wraps_at_100_columns() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in checked_pages()
        for number in long_lines(page.read_text())
    ]
    assert found == []


def test_every_row_of_a_table_has_its_own_line() -> None:
    """The table of stores in `docs/cli.md` was folded into a paragraph, and no reader saw a
    table."""
    found = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in tracked("*.md")
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if "|---|" in line and set(line.strip()) - set("|-: ")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short\n" + "word " * 30 + "\n", [2]),
        ("| " + "cell " * 30 + "|\n", [1]),
        ("```sh\n" + "command " * 20 + "\n```\n", [2]),
        ("```text\n" + "output " * 20 + "\n```\nshort\n", []),
        ("<!-- made: x -->\n| " + "cell " * 30 + "|\n<!-- end -->\nshort\n", []),
        ("https://example.org/" + "x" * 100 + "\n", []),
        ("x" * 100 + "\n", []),
    ],
)
def test_a_line_that_is_too_long_is_found(text: str, lines: list[int]) -> None:
    assert list(long_lines(text)) == lines
