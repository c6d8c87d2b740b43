"""The glossary is alphabetical, large enough, and names modules that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TERMS_MIN = 55


def entries() -> list[tuple[str, str]]:
    """Return each term with its definition."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?=^- |\Z)", page, re.MULTILINE | re.DOTALL)


def test_the_glossary_is_alphabetical_and_large_enough() -> None:
    terms = [term.lower() for term, _ in entries()]
    assert terms == sorted(set(terms))
    assert len(terms) >= TERMS_MIN


def test_every_term_names_a_module_that_exists() -> None:
    for term, definition in entries():
        paths = re.findall(r"`([\w/]+(?:\.py)?)`", definition)
        assert paths, f"{term} names no module"
        for path in paths:
            known = (ROOT / "src" / "keyhouse" / path).exists() or (ROOT / path).exists()
            assert known, f"{term} names {path}, which does not exist"
