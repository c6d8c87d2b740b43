"""The files of the package as the rules of the project read them: syntax trees and imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    line: int
    module: str
    """Absolute; `from keyhouse import store` imports keyhouse.store."""
    name: str | None
    """The imported name; None for the module itself."""


@dataclass(frozen=True, eq=False)
class Source:
    """One file of the package."""

    root: Path
    path: Path
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports())

    @property
    def module(self) -> str:
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def layer(self) -> str:
        return layer_of(self.module)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(self.root.parent)}:{line}"

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
                case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                    if ast.unparse(function) in (
                        "importlib.import_module",
                        "import_module",
                        "__import__",
                    ):
                        yield Import(node.lineno, module, None)

    def _import_from(self, line: int, origin: str, name: str) -> Import:
        inside = self.root.joinpath(*origin.split("."), name)
        if inside.is_dir() or inside.with_suffix(".py").is_file():
            return Import(line, f"{origin}.{name}", None)
        return Import(line, origin, name)

    def _package(self, level: int) -> str:
        inside = self.path.relative_to(self.root).parent.parts
        return ".".join(inside[: len(inside) - level + 1])


def sources(root: Path) -> list[Source]:
    """Return every file of the package; `root` is the folder that contains `keyhouse/`."""
    return [
        Source(root, path, ast.parse(path.read_text()))
        for path in sorted((root / "keyhouse").rglob("*.py"))
    ]


def layer_of(module: str) -> str:
    """The folder below the package; a system's own commands belong to the command line, and its
    folder `catalog`, the SQL tables that its document prescribes, is a separate layer."""
    parts = module.split(".")
    if parts[1:2] == ["systems"] and parts[3:4] == ["catalog"] and parts[4:]:
        return "catalog"
    if parts[1:2] == ["systems"] and parts[3:] == ["commands"]:
        return "cli"
    return parts[1] if len(parts) > 1 else ""


def last_name(node: ast.expr) -> str:
    """Return `engine` for `engine`, `store.engine` and `self._engine`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_")
    return ""
