"""The documentation is true: generated pages are current, and every error, limit, setting and test
that a page names exists.
"""

import ast
import re
from pathlib import Path

import pytest

from keyhouse import errors
from keyhouse.service.registry import system_names
from tests.docs.pages import DOCS, ROOT, code, items, table
from tools.reference import pages

SOURCE = ROOT / "src" / "keyhouse"


def test_generated_pages_are_current() -> None:
    stale = [
        path.name
        for path, text in pages(DOCS).items()
        if not path.is_file() or path.read_text() != text
    ]
    assert stale == [], "run: make docs"


# Errors


def documented_errors() -> dict[str, tuple[int, str, str]]:
    """Return the status, code and cause that the page gives for each error."""
    page = (DOCS / "errors.md").read_text()
    sections = (
        "## The declaration",
        "## The caller",
        "## The access",
        "## The stored state",
        "## The data",
        "## The engine",
    )
    found = {}
    for section in sections:
        for item in items(page, section):
            entry = re.fullmatch(r"`(\w+)` \((\d+), `(\w+)`\): (.+)", item)
            assert entry is not None, item
            found[entry[1]] = (int(entry[2]), entry[3], entry[4])
    return found


ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.KeyhouseError)
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_is_documented_with_its_status_code_and_cause(
    error: type[errors.KeyhouseError],
) -> None:
    status, machine_name, cause = documented_errors()[error.__name__]
    assert (status, machine_name) == (error.status, error.code)
    assert len(cause) > 10


def test_every_documented_error_exists() -> None:
    assert sorted(documented_errors()) == sorted(error.__name__ for error in ERRORS)


# Limits, settings, commands


def test_every_limit_is_documented_with_its_reason() -> None:
    modules = [("", path) for path in SOURCE.rglob("limits.py")]
    modules += [(f"{path.parts[-4]}.", path) for path in ROOT.glob("systems/*/src/*/limits.py")]
    names = [
        f"{prefix}{node.target.id}"
        for prefix, path in modules
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    documented = items((DOCS / "limits.md").read_text(), "# Limits")
    assert sorted(code(item.split(":")[0]) for item in documented) == sorted(names)


def constants(path: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = eval(compile(ast.Expression(value), "", "eval"), {}, {})
    return found


def test_the_sqlite_guide_shows_the_engines_constants() -> None:
    real = constants(SOURCE / "engines/sqlite/connections.py") | constants(
        SOURCE / "engines/sqlite/feed.py"
    )
    for name, value, _ in table((DOCS / "guides" / "sqlite.md").read_text(), "## Durability"):
        assert f"{real[code(name)]:,}" == value


def test_the_operations_page_lists_the_findings_of_verify() -> None:
    kinds = re.search(
        r"Kind = Literal\[(.*?)\]", (SOURCE / "store/verify/finding.py").read_text(), re.DOTALL
    )
    assert kinds is not None
    named = {
        code(row[0])
        for row in table((DOCS / "guides" / "verify.md").read_text(), "# Verify and repair")
    }
    assert named == set(re.findall(r'"(\w+)"', kinds[1]))


def test_the_engines_page_lists_every_method_of_the_contract() -> None:
    tree = ast.parse((SOURCE / "engine.py").read_text())
    [contract] = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Engine"
    ]
    methods = [
        node.name
        for node in contract.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    page = (DOCS / "engines.md").read_text()
    assert re.findall(r"^   \| `(\w+)` \|", page, re.MULTILINE) == methods


# Reliability


def named_tests() -> list[tuple[str, str]]:
    """Return every test that the reliability page names, with its file or package."""
    found = []
    place = ""
    for name in re.findall(r"`([\w./]+)`", (DOCS / "reliability.md").read_text()):
        if name.startswith(("tests/", "systems/", "keyhouse.testing")):
            place = name
        elif name.startswith("test_"):
            found.append((place, name))
    return found


@pytest.mark.parametrize(
    ("place", "name"), named_tests(), ids=lambda part: str(part).rpartition("/")[2]
)
def test_a_named_test_exists(place: str, name: str) -> None:
    path = ROOT / place if place.endswith(".py") else SOURCE.parent / place.replace(".", "/")
    files = [path] if path.is_file() else list(path.rglob("*.py"))
    assert any(re.search(rf"def {name}\(", file.read_text()) for file in files)


def test_every_guarantee_names_a_test() -> None:
    page = (DOCS / "reliability.md").read_text()
    guarantees = page.split("## Guarantees\n", 1)[1].split("\n## ", 1)[0].split("### ")[1:]
    assert [guarantee.partition(".")[0] for guarantee in guarantees] == list("12345678")
    assert all("`test_" in guarantee for guarantee in guarantees)


# Systems and indexes


@pytest.mark.parametrize("name", system_names())
def test_a_system_has_its_page_and_its_keyspace(name: str) -> None:
    page = (ROOT / "systems" / name / "README.md").read_text()
    assert "(keyspace.md)" in page
    assert "## Decisions where the document was silent" in page
    assert "## Not there yet" in page
    assert f"({name}/README.md)" in (ROOT / "systems" / "README.md").read_text()


def test_every_page_is_in_the_index() -> None:
    for folder in (DOCS, DOCS / "guides", DOCS / "reports"):
        index = (folder / "README.md").read_text()
        names = [path.name for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
        assert [name for name in names if f"({name})" not in index] == []


def test_the_readme_program_prints_what_the_readme_shows(tmp_path: Path) -> None:
    from tests.docs.pages import blocks
    from tests.support.program import run

    page = (ROOT / "README.md").read_text()
    (tmp_path / "board.py").write_text("\n".join(blocks(page, "python")))
    assert run(program=("board.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))
    [explain] = [
        line
        for line in "".join(blocks(page, "sh")).splitlines()
        if line.startswith("keyhouse explain")
    ]
    assert (
        "A derived row (index) of the record `clip`"
        in run(*explain.split()[1:], cwd=tmp_path).stdout
    )


def test_the_readme_and_the_tutorial_do_not_write_to_one_file() -> None:
    """After the README's program, the tutorial failed on a clip without a viewer."""
    files = [
        set(re.findall(r"sqlite:\w+\.db", page.read_text()))
        for page in (ROOT / "README.md", DOCS / "tutorial.md")
    ]
    assert all(files) and files[0].isdisjoint(files[1])


def test_the_declaring_page_has_every_public_name_and_its_program_prints_what_it_shows(
    tmp_path: Path,
) -> None:
    """Counters, logs and expiries were in the README's list, but not documented anywhere else."""
    import keyhouse
    from tests.docs.pages import blocks
    from tests.support.program import run

    page = (DOCS / "declaring.md").read_text()
    assert [name for name in keyhouse.__all__ if f"`{name}`" not in page] == []
    names = page.partition("\n## Names\n")[2].partition("\n## ")[0]
    listed = [
        each
        for line in re.findall(r"^- ([^:]+):", names, re.M)
        for each in re.findall(r"`(\w+)`", line)
    ]
    assert [name for name in listed if name not in vars(keyhouse)] == [], "no longer public"
    (tmp_path / "sounds.py").write_text("\n".join(blocks(page, "python")))
    assert run(program=("sounds.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))


def test_the_audiobooks_program_prints_what_its_page_shows(tmp_path: Path) -> None:
    """The page explained decisions, but not how to store a book."""
    from tests.docs.pages import blocks
    from tests.support.program import run

    text = (ROOT / "systems" / "audiobooks" / "README.md").read_text()
    page = text.partition("\n## Use it in a program\n")[2].partition("\n## ")[0]
    (tmp_path / "library.py").write_text("\n".join(blocks(page, "python")))
    assert run(program=("library.py",), cwd=tmp_path).stdout == "".join(blocks(page, "text"))


def test_the_declaring_page_lists_the_names_that_no_key_field_has() -> None:
    """A key field called `by` was rejected, and no page said which names are."""
    from keyhouse.schema.record_check import RESERVED

    page = (DOCS / "declaring.md").read_text()
    listed = page.partition("no field of a key has one of them:")[2].partition(". An attribute")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == RESERVED
