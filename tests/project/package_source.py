"""The files of the package as the rules of the project read them: syntax trees and imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple


class Import(NamedTuple):
    line: int
    module: str
    """Absolute; `from keyhouse import store` imports keyhouse.store."""
    name: str | None
    """The imported name; None for the module itself."""


@dataclass(frozen=True, eq=False)
class Source:
    """One file of the library or of a system. `root` contains its package; `roots` contain all."""

    root: Path
    path: Path
    tree: ast.Module
    roots: tuple[Path, ...]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports())

    @cached_property
    def module(self) -> str:
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def layer(self) -> str:
        return layer_of(self.module)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(self.roots[0].parent)}:{line}"

    def _imports(self) -> Iterator[Import]:
        for node in self.nodes:
            match node:
                case ast.Import(names=names):
                    yield from (Import(node.lineno, alias.name, None) for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    origin = (
                        ".".join(filter(None, [self._package(level), module]))
                        if level
                        else module or ""
                    )
                    yield from (
                        self._import_from(node.lineno, origin, alias.name) for alias in names
                    )
                case ast.Call(
                    func=ast.Name(id="import_module" | "__import__")
                    | ast.Attribute(value=ast.Name(id="importlib"), attr="import_module"),
                    args=[ast.Constant(value=str(module)), *_],
                ):
                    yield Import(node.lineno, module, None)

    def _import_from(self, line: int, origin: str, name: str) -> Import:
        if module_path(self.roots, f"{origin}.{name}") is not None:
            return Import(line, f"{origin}.{name}", None)
        return Import(line, origin, name)

    def _package(self, level: int) -> str:
        inside = self.path.relative_to(self.root).parent.parts
        return ".".join(inside[: len(inside) - level + 1])


REPOSITORY: Final = Path(__file__).parents[2]


@cache
def package_sources() -> list[Source]:
    """Return every file of the library and of the systems here, parsed once."""
    return sources(REPOSITORY / "src", *sorted(REPOSITORY.glob("systems/*/src")))


def sources(*roots: Path) -> list[Source]:
    """Return every file of the library and of the systems, whose packages are in `roots`."""
    return [
        Source(root, path, ast.parse(path.read_text()), roots)
        for root in roots
        for package in sorted(root.glob("keyhouse*/"))
        for path in sorted(package.rglob("*.py"))
    ]


def module_path(roots: tuple[Path, ...], module: str) -> Path | None:
    """Return the folder or file of a module, or None."""
    for root in roots:
        place = root.joinpath(*module.split("."))
        if place.is_dir():
            return place
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
    return None


def is_ours(module: str) -> bool:
    """Return whether a module is of the library or of a system: keyhouse, keyhouse_rosey, …"""
    return module.split(".")[0].partition("_")[0] == "keyhouse"


def layer_of(module: str) -> str:
    """The folder below the library. A system is one layer; its own commands belong to the command
    line, and its `catalog.tables`, the SQL tables that its document prescribes, is a layer."""
    package, *parts = module.split(".")
    if package != "keyhouse":
        if parts == ["commands"]:
            return "cli"
        return "catalog" if parts[:2] == ["catalog", "tables"] and parts[2:] else "systems"
    return parts[0] if parts else ""


def last_name(node: ast.expr) -> str:
    """Return `engine` for `engine`, `store.engine` and `self._engine`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_")
    return ""
