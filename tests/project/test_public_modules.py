"""Applications import `PUBLIC_MODULES`: the examples, and the programs of the documentation.

The rule `public_names_only` checks the systems.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import blocks
from tests.project.layer_tables import OPERATOR_MODULES, PUBLIC_MODULES, PUBLIC_ONLY
from tests.project.layers import names_outside, published
from tests.project.package_source import REPOSITORY, Source, module_path, package_sources

ROOTS = (REPOSITORY / "src", *sorted(REPOSITORY.glob("systems/*/src")))
PAGES = (
    REPOSITORY / "README.md",
    *sorted(REPOSITORY.glob("docs/*.md")),
    *sorted(REPOSITORY.glob("docs/guides/*.md")),
    *sorted(REPOSITORY.glob("systems/*/README.md")),
)
TOUR = frozenset({"keyhouse.demo.clips"})
"""The tour runs the program of the tutorial, as the demo does."""


def examples() -> list[Source]:
    paths = sorted((REPOSITORY / "examples").rglob("*.py"))
    return [Source(REPOSITORY, path, ast.parse(path.read_text()), ROOTS) for path in paths]


def programs() -> Iterator[Source]:
    """Yield the programs of the documentation."""
    for page in PAGES:
        for text in blocks(page.read_text(), "python"):
            if "import" in text:
                yield Source(REPOSITORY, page, ast.parse(text), ROOTS)


def test_examples_and_documentation_import_public_names() -> None:
    sources = [*examples(), *programs()]
    assert len(sources) > 50
    assert [
        name for source in sources for name in names_outside(source, PUBLIC_MODULES | TOUR)
    ] == []


def test_each_public_module_is_used() -> None:
    """A name that no system, example or page needs is not promised to anybody."""
    users = [source for source in package_sources() if source.layer in PUBLIC_ONLY]
    used = {
        part
        for source in [*users, *examples()]
        for _, module, _ in source.imports
        for part in (module, module.rpartition(".")[0])
    }
    for page in PAGES:
        used.update(re.findall(r"from (keyhouse[\w.]*) import", page.read_text()))
    assert sorted((PUBLIC_MODULES | OPERATOR_MODULES) - used) == []


@pytest.mark.parametrize("module", sorted(PUBLIC_MODULES | OPERATOR_MODULES))
def test_a_public_package_names_what_it_publishes(module: str) -> None:
    place = module_path(ROOTS, module)
    assert place is not None
    assert place.is_file() or published(ROOTS, module)
