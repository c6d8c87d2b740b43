"""A package has a docstring and an `__all__`, and no logic."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = sorted((SOURCE / "keyhouse").rglob("__init__.py"))


def violations(text: str) -> Iterator[str]:
    """Return the violations in the text of an `__init__.py`."""
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "has no docstring: describe the package in a few lines, and what it must not know"
    imported: list[str] = []
    published: list[str] | None = None
    for node in tree.body:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                imported += [alias.asname or alias.name for alias in names]
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                published = [ast.literal_eval(element) for element in elements]
            case ast.Assign(targets=[ast.Name(id="__version__")]):
                imported.append("__version__")
            case ast.Assign(targets=[ast.Name(id="SYSTEM")]):
                imported = ["SYSTEM"]  # a declaration, and the one name of a system's package
            case _:
                yield f"has logic in line {node.lineno}: move it into a module of the package"
    if published is None:
        if imported:
            yield "re-exports names without an __all__"
        return
    if published != sorted(published, key=_order):
        yield f"has an __all__ out of order: {sorted(published, key=_order)}"
    if len(set(published)) != len(published):
        yield "names something twice in its __all__"
    for name in sorted(set(published) - set(imported)):
        yield f"publishes {name} without importing it"
    for name in sorted(set(imported) - set(published) - {"TYPE_CHECKING", "__version__"}):
        yield (
            f"imports {name} without publishing it:"
            " add it to __all__, or import it where it is used"
        )


def _order(name: str) -> tuple[int, str]:
    """Sort constants, classes, the rest, each alphabetically, as the formatter does."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize(
    "path", PACKAGES, ids=lambda path: ".".join(path.parent.relative_to(SOURCE).parts)
)
def test_a_package_has_a_docstring_and_a_sorted_all(path: Path) -> None:
    assert list(violations(path.read_text())) == []


@pytest.mark.parametrize(
    "path", PACKAGES, ids=lambda path: ".".join(path.parent.relative_to(SOURCE).parts)
)
def test_every_published_name_exists(path: Path) -> None:
    package = importlib.import_module(".".join(path.parent.relative_to(SOURCE).parts))
    assert [name for name in getattr(package, "__all__", ()) if not hasattr(package, name)] == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in (SOURCE / "keyhouse").rglob("*.py")}
    assert sorted(folder for folder in folders if not (folder / "__init__.py").is_file()) == []


SOUND = (
    '"""Keys."""\n\nfrom keyhouse.keys.key import MAX, Span, check\n\n'
    '__all__ = ["MAX", "Span", "check"]\n'
)


def test_a_sound_package_has_no_violation() -> None:
    assert list(violations(SOUND)) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no docstring"),
        (SOUND + "x = 1\n", "has logic in line 6"),
        (SOUND + "def __getattr__(name): ...\n", "has logic in line 6"),
        (SOUND + "if True:\n    pass\n", "has logic in line 6"),
        (
            '"""Keys."""\nfrom keyhouse.keys.key import Span\n',
            "re-exports names without an __all__",
        ),
        (SOUND.replace('"MAX", "Span"', '"Span", "MAX"'), "out of order"),
        (SOUND.replace('"MAX"', '"MAX", "MAX"'), "twice"),
        (SOUND.replace("MAX, Span, check", "MAX, Span"), "publishes check without importing it"),
        (SOUND.replace('"MAX", ', ""), "imports MAX without publishing it"),
    ],
)
def test_a_planted_violation_is_found(text: str, sentence: str) -> None:
    found = list(violations(text))
    assert len(found) == 1, found
    assert sentence in found[0]
