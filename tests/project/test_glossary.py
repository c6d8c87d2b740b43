"""The glossary is alphabetical, large enough, and names the modules where its words live."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TERMS_MIN = 55
STEM_CHARS = 6


def entries() -> list[tuple[str, str]]:
    """Return each term with its definition."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?=^- |\Z)", page, re.MULTILINE | re.DOTALL)


def test_the_glossary_is_alphabetical_and_large_enough() -> None:
    terms = [term.lower() for term, _ in entries()]
    assert terms == sorted(set(terms))
    assert len(terms) >= TERMS_MIN


def paths_of(definition: str) -> list[str]:
    return re.findall(r"`([\w/]+(?:\.py)?)`", definition)


def place(path: str) -> Path:
    inside = ROOT / "src" / "keyhouse" / path
    return inside if inside.exists() else ROOT / path


def source(path: str) -> str:
    """Return the text of a module, or of all modules of a folder, with the path itself."""
    files = [place(path)] if path.endswith(".py") else place(path).rglob("*.py")
    return " ".join([path, *(file.read_text() for file in files)])


def test_every_term_names_a_module_that_exists() -> None:
    for term, definition in entries():
        assert paths_of(definition), f"{term} names no module"
        for path in paths_of(definition):
            assert place(path).exists(), f"{term} names {path}, which does not exist"


def test_every_module_uses_the_words_of_its_term() -> None:
    """`contention` and `horizon` named modules that did not have them."""
    for term, definition in entries():
        for path in paths_of(definition):
            text = source(path).lower()
            missing = [word for word in term.lower().split() if word[:STEM_CHARS] not in text]
            assert not missing, f"{term} names {path}, which does not have the word"


def test_a_term_that_is_a_class_of_the_core_names_its_module() -> None:
    """`first` and `unique` named the module of derived rows, from which they had moved."""
    modules = {
        node.name.lower(): path
        for package in ("keys", "schema", "store")
        for path in (ROOT / "src" / "keyhouse" / package).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    for term, definition in entries():
        module = modules.get(term.replace(" ", "").lower())
        assert module is None or module in map(place, paths_of(definition)), (term, module)
