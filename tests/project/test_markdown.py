"""Markdown wraps at 100 columns, table cells too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_documentation import ROOT, tracked

COLUMNS_MAX = 100

PENDING: tuple[str, ...] = (
    "docs/serving.md",
    "docs/systems/rosey.md",
    "docs/systems/streamkit.md",
)
"""Paths that do not wrap yet. Only ever remove lines; empty before a release."""

GENERATED = ("docs/cli.md", "docs/systems/*-keyspace.md")
"""Written by a program from text of any length."""


def long_lines(text: str) -> Iterator[int]:
    """Return the numbers of lines that are too long and could be wrapped.

    Output of programs (```text blocks) is verbatim, and a lone URL has no place to break."""
    is_output = in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
            is_output = in_block and line.strip().startswith("```text")
        elif len(line) > COLUMNS_MAX and not is_output:
            words = line.strip().lstrip("-* ").split()
            if len(words) > 1 or "://" not in words[0]:
                yield number


def checked_pages() -> list[Path]:
    pages = [
        page for page in tracked("*.md") if not any(page.match(pattern) for pattern in GENERATED)
    ]
    return [
        page
        for page in pages
        if not any(str(page.relative_to(ROOT)).startswith(path) for path in PENDING)
    ]


def test_markdown_wraps_at_100_columns() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in checked_pages()
        for number in long_lines(page.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short\n" + "word " * 30 + "\n", [2]),
        ("| " + "cell " * 30 + "|\n", [1]),
        ("```sh\n" + "command " * 20 + "\n```\n", [2]),
        ("```text\n" + "output " * 20 + "\n```\nshort\n", []),
        ("https://example.org/" + "x" * 100 + "\n", []),
        ("x" * 100 + "\n", []),
    ],
)
def test_a_line_that_is_too_long_is_found(text: str, lines: list[int]) -> None:
    assert list(long_lines(text)) == lines
