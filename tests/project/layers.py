"""The rules about the layers of the package, whose tables are in `layer_tables.py`.

`test_layers.py` runs each rule over the source and over a planted violation. A rule reads source
with `ast`, imports nothing, and yields sentences with the location, the violation, and what to do
instead, so that a contributor need not read this file.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.project.code_rules import (
    errors_by_type_not_by_message,
    file_size,
    limits_have_names,
    meaningful_module_names,
    no_patching,
    private_names_stay_inside,
)
from tests.project.layer_tables import (
    ENGINE_CALLERS,
    ENGINE_CALLING_MODULES,
    ENGINE_CALLS,
    IMPURE_CALLS,
    INSTEAD,
    MAY_IMPORT,
    OPERATOR_MODULES,
    PUBLIC_MODULES,
    PUBLIC_ONLY,
    PURE,
    PURE_IMPORTS,
    STANDARD_DRIVERS,
    THIRD_PARTY,
)
from tests.project.package_source import Source, is_ours, last_name, layer_of, module_path


def import_only_lower_layers(source: Source) -> Iterator[str]:
    """A layer imports only the layers that MAY_IMPORT lists."""
    layer = source.layer
    if layer not in MAY_IMPORT:
        yield (
            f"{source.at(1)} is in no layer:"
            f" add keyhouse.{layer} to MAY_IMPORT and to ARCHITECTURE.md"
        )
        return
    for line, module, _ in source.imports:
        if not is_ours(module):
            continue
        target = layer_of(module)
        inside = module.removeprefix("keyhouse").removeprefix(".")
        if target == layer or any(
            inside == allowed or target == allowed for allowed in MAY_IMPORT[layer]
        ):
            continue
        below = (
            ", ".join(name or "keyhouse itself" for name in MAY_IMPORT[layer])
            or "nothing of keyhouse"
        )
        instead = INSTEAD.get(
            (layer, target),
            f"pass it as an argument, or move shared code to a lower layer ({below})",
        )
        yield (
            f"{source.at(line)} imports {module}, which is not below "
            f"{layer or 'keyhouse itself'}: {instead}"
        )


def systems_are_independent(source: Source) -> Iterator[str]:
    """No system imports another, and the library names no system."""
    own = source.module.split(".")[0]
    for line, module, _ in source.imports:
        if module.split(".")[0] in ("keyhouse", own) or not is_ours(module):
            continue
        if own == "keyhouse":
            yield f"{source.at(line)} imports {module}: the library names no system"
        else:
            yield (
                f"{source.at(line)} imports {module}: systems are independent; move shared code "
                "to keyhouse.service"
            )


def libraries_only_where_allowed(source: Source) -> Iterator[str]:
    """A library is imported only by the layers that THIRD_PARTY lists."""
    for line, module, _ in source.imports:
        library = module.split(".")[0]
        if library in STANDARD_DRIVERS:
            yield f"{source.at(line)} imports {module}: {STANDARD_DRIVERS[library]}"
        if is_ours(library) or library in sys.stdlib_module_names:
            continue
        if library not in THIRD_PARTY:
            yield (
                f"{source.at(line)} imports {module}, which is not in THIRD_PARTY: add it there "
                "with its layers"
            )
        elif source.layer not in THIRD_PARTY[library]:
            places = ", ".join(THIRD_PARTY[library])
            yield (
                f"{source.at(line)} imports {module}, which belongs in {places}: take its objects "
                "as arguments"
            )


def pure_core(source: Source) -> Iterator[str]:
    """Nothing in keys and schema awaits, opens a file or reads the clock."""
    if source.layer not in PURE:
        return
    for line, module, _ in source.imports:
        library = module.split(".")[0]
        if library in sys.stdlib_module_names and library not in PURE_IMPORTS:
            yield (
                f"{source.at(line)} imports {module} in the pure core: take its values as arguments"
            )
    for node in source.nodes:
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield (
                    f"{source.at(node.lineno)} is async in the pure core: return a value, and let "
                    "store await"
                )
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in IMPURE_CALLS
            ):
                yield (
                    f"{source.at(node.lineno)} calls {name}() in the pure core: take the time or "
                    "the text as an argument"
                )


def only_the_store_calls_engines(source: Source) -> Iterator[str]:
    """A schema meets an engine in the store and nowhere else."""
    if source.layer in ENGINE_CALLERS:
        return
    engines = {"engine", *_names_of_engines(source)}
    calls = [
        (getattr(node, "lineno", 1), call)
        for node in source.nodes
        if (call := _engine_call(node, engines)) in ENGINE_CALLS
    ]
    if source.module in ENGINE_CALLING_MODULES:
        if not calls:
            yield f"{source.at(1)} no longer calls an engine: take it off ENGINE_CALLING_MODULES"
        return
    for line, call in calls:
        yield (
            f"{source.at(line)} calls engine.{call}: ask a Store, which has `row`, "
            "`rows`, `row_page`, `row_scan`, `row_watch`, `record_row`, `usage` and `transact`"
        )


def _engine_call(node: Any, engines: set[str]) -> str | None:
    """Return the method of an engine that an expression looks up."""
    match node:
        case (
            ast.Attribute(value=value, attr=method)
            | ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(method)), *_]
            )
        ):
            return method if last_name(value) in engines else None
    return None


def _names_of_engines(source: Source) -> Iterator[str]:
    """Yield other names of engines in a module: annotated as one, or assigned from one."""
    for node in source.nodes:
        match node:
            case (
                ast.arg(arg=name, annotation=ast.expr() as declared)
                | ast.AnnAssign(target=ast.Name(id=name), annotation=declared)
                | ast.AnnAssign(target=ast.Attribute(attr=name), annotation=declared)
            ):
                if last_name(declared) == "Engine":
                    yield name.lstrip("_")
            case ast.Assign(targets=[target], value=value):
                if last_name(value) == "engine" and (assigned := last_name(target)):
                    yield assigned


def no_type_checking_imports(source: Source) -> Iterator[str]:
    """`if TYPE_CHECKING` hides an import cycle. Imports in `if not TYPE_CHECKING` do not."""
    for node in source.nodes:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                at = source.at(node.lineno)
                yield f"{at} uses TYPE_CHECKING: move shared code into a lower module"


def public_names_only(source: Source) -> Iterator[str]:
    """Systems, CLI, demo and adapters import the public names of PUBLIC_MODULES."""
    if source.layer in PUBLIC_ONLY:
        commands = OPERATOR_MODULES if source.layer == "cli" else frozenset[str]()
        yield from names_outside(source, PUBLIC_MODULES | commands)


def names_outside(source: Source, modules: frozenset[str]) -> Iterator[str]:
    """Yield what a file imports of the library that these modules do not publish."""
    for line, module, name in source.imports:
        if module.split(".")[0] != "keyhouse" or _is_own_package(source.module, module):
            continue
        if name is None and module not in modules:  # `from keyhouse.store import sweep`
            module, _, name = module.rpartition(".")
        if name is None or (module in modules and _publishes(source.roots, module, name)):
            continue
        yield (
            f"{source.at(line)} imports {module}.{name}, which is not public: "
            f"{_public_instead(source.roots, module, name, modules)}"
        )


def _is_own_package(importer: str, module: str) -> bool:
    """Return whether both are in one layer of the library."""
    return importer.split(".")[:2] == module.split(".")[:2]


def _publishes(roots: tuple[Path, ...], module: str, name: str) -> bool:
    names = published(roots, module)
    is_all = names is None and not name.startswith("_")
    return is_all or name == "__version__" or name in (names or ())


def _public_instead(
    roots: tuple[Path, ...], module: str, name: str, modules: frozenset[str]
) -> str:
    for other in sorted(modules):
        if name in (published(roots, other) or ()):
            return f"import it from {other}"
    if module in modules:
        return f"add it to the __all__ of {module}, if it is for applications"
    return f"publish it in a package, or add {module} to PUBLIC_MODULES, if it is for applications"


def published(roots: tuple[Path, ...], module: str) -> list[str] | None:
    """Return the `__all__` of a module or package, or None."""
    path = module_path(roots, module)
    if path is not None and path.is_dir():
        path = path / "__init__.py"
    return _published(path.read_text()) if path is not None and path.is_file() else None


@cache
def _published(text: str) -> list[str] | None:
    for node in ast.parse(text).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return [str(name) for name in ast.literal_eval(value)]
    return None


Rule = Callable[[Source], Iterator[str]]

RULES: tuple[Rule, ...] = (
    import_only_lower_layers,
    systems_are_independent,
    libraries_only_where_allowed,
    pure_core,
    only_the_store_calls_engines,
    no_type_checking_imports,
    meaningful_module_names,
    file_size,
    public_names_only,
    errors_by_type_not_by_message,
    limits_have_names,
    no_patching,
    private_names_stay_inside,
)
