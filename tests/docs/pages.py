"""The pages of the documentation, and their parts."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Return the text of the fenced blocks of one language."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading, without its header."""
    section = page.split(f"{heading}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None, f"no table after {heading!r}"
    lines = rows[0].splitlines()[2:]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]


def items(page: str, heading: str) -> list[str]:
    """Return the items of the lists in a section, each on one line."""
    section = re.split(r"^#+ ", page.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)
    assert found, f"no list after {heading!r}"
    return [" ".join(item.split()) for item in found]


def code(cell: str) -> str:
    """Return the text between the backticks of a code span."""
    found = re.fullmatch(r"`` ?(.+?) ?``|`(.+)`", cell)
    assert found is not None, f"{cell!r} is not code"
    return found[1] or found[2]
