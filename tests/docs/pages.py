"""The pages of the documentation, and what stands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The text of the fenced blocks of one language."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading, without its head."""
    section = page.split(f"{heading}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None, f"no table behind {heading!r}"
    lines = rows[0].splitlines()[2:]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]


def code(cell: str) -> str:
    """What stands between the marks of `code`."""
    found = re.fullmatch(r"`` ?(.+?) ?``|`(.+)`", cell)
    assert found is not None, f"{cell!r} is not code"
    return found[1] or found[2]
