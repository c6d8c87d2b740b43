"""The layers of the package, as a table, and the rules that hold them. `test_layers.py` runs and plants a breach of each.

Every rule reads source with `ast`, imports nothing, and answers with sentences that name the place, what stands there, and
what to do instead: whoever breaks a rule should not have to come here to learn how to keep it.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

BASE = ("limits", "errors", "arguments", "clock", "counter")
CORE = ("keys", "schema", "engine", "store")
SERVING = ("auth", "http", "metrics", "nats", "service", "settings")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "": (*BASE, *CORE, "engines.registry", "systems.registry"),
    "limits": (),
    "layout": ("errors",),
    "errors": ("limits",),
    "arguments": ("errors",),
    "clock": ("limits", "errors", "arguments"),
    "counter": ("limits", "errors"),
    "eager_task": (),
    "keys": ("limits", "errors", "arguments"),
    "schema": ("limits", "errors", "arguments", "keys"),
    "engine": (*BASE, "keys"),
    "metrics": (*BASE, *CORE, "engines.wrapper"),
    "nats": (*BASE, "eager_task", "schema"),
    "engines": (
        *BASE,
        "keys.escape",
        "engine",
        "layout",
        "nats.credentials",
        "nats.client",
        "nats.errors",
        "nats.server",
    ),
    "store": (*BASE, "keys", "schema", "engine"),
    "settings": (*BASE, "engines"),
    "testing": (*BASE, *CORE, "engines", "nats"),
    "auth": (*BASE, "settings"),
    "http": (*BASE, "schema", "auth", "metrics", "settings", ""),
    "service": (*BASE, *CORE, "auth", "http", "layout", "metrics", "nats", "settings", ""),
    "serve": (*BASE, *CORE, *SERVING, "engines", ""),
    "systems": (*BASE, *CORE, *SERVING, "layout", ""),
    "bench": (*BASE, *CORE, "engines", ""),
    "cli": (*BASE, *CORE, *SERVING, "bench", "demo", "engines", "serve", "systems", ""),
    "demo": (*BASE, *CORE, "engines", "serve", "systems", ""),
}
"""What each part of the package may import besides itself. The empty name is `keyhouse/__init__.py`."""

INSTEAD: dict[tuple[str, str], str] = {
    (
        "",
        "engines",
    ): "importing keyhouse must need no driver: open engines by URL, through keyhouse.engines.registry",
    ("keys", "clock"): "take the time or the id as an argument",
    ("schema", "clock"): "take the time or the id as an argument",
    ("schema", "engine"): "return keys and values; the store makes the Batch",
    ("schema", "store"): "return keys and values; the store makes the Batch",
    ("engine", "schema"): "an engine knows rows: say it with keys, values and spans",
    (
        "engines",
        "schema",
    ): "an engine knows rows: say it with keys, values and spans of keyhouse.engine",
    ("engines", "store"): "an engine knows rows: the store calls it, never the other way",
    (
        "engines",
        "keys",
    ): "import Span and check_key from keyhouse.engine, an alphabet from keyhouse.keys.escape",
    (
        "store",
        "engines",
    ): "the store names no engine: take an Engine as an argument, and ask its capabilities",
    ("systems", "engines"): "a system names no engine: take a Store, or an Engine, as an argument",
}
"""The way out of a forbidden import, where there is a better one than the general advice."""

THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "msgspec": tuple(MAY_IMPORT),
    "interegular": ("keys",),
    "alembic": ("engines",),
    "apsw": ("engines", "bench"),
    "asyncpg": ("engines",),
    "botocore": ("engines",),
    "sqlalchemy": ("engines",),
    "rocksdict": ("engines",),
    "typer": ("cli",),
    "rich": ("cli", "demo"),
    "pytest": ("testing",),
    "aiobotocore": ("engines",),
    "httpx": ("auth", "service", "systems"),  # JWKS, clients
    "httptools": ("serve",),
    "jwt": ("auth",),
    "nats": ("nats", "engines", "systems"),
    "opentelemetry": ("serve",),
    "prometheus_client": ("metrics", "http", "nats", "service", "serve", "systems"),
    "starlette": ("http", "serve", "systems"),
    "structlog": ("auth", "http", "nats", "serve", "service", "systems", "cli"),
    "uvicorn": ("serve",),
    "uvloop": ("serve", "cli"),
}
"""Where each library may be imported: drivers in engines, faces and clients only, and nothing that is not in this table."""

PURE = ("keys", "schema")
PURE_IMPORTS = frozenset(
    {
        "abc",
        "array",
        "base64",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
    }
    | {
        "functools",
        "hashlib",
        "heapq",
        "inspect",
        "itertools",
        "json",
        "keyword",
        "math",
        "operator",
        "re",
        "string",
    }
    | {"struct", "types", "typing", "unicodedata", "zlib"}
)
"""The standard modules that do no I/O, know no time and draw no random numbers."""

IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input", "breakpoint"})
DRIVERS_OF_PYTHON = {
    "sqlite3": "Python's own SQLite is often old and has a WAL bug: use apsw",
    "dbm": "use an engine",
}
EMPTY_NAMES = frozenset(
    {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
)
PUBLIC_ONLY = ("systems", "cli", "demo")
FILE_LINES_MAX = 550


ENGINE_CALLS = frozenset({"read", "scan", "commit", "watch"})
ENGINE_CALLERS = ("store", "engines", "testing", "bench", "metrics")
"""Layers that call an engine: the store, engines and wrappers of them, and what measures or tests them."""

ENGINE_CALLING_MODULES = {
    "keyhouse.serve.server": "its readiness probe",
    "keyhouse.serve.tracing": "a wrapper of an engine",
    "keyhouse.cli.access": "to convert",
    "keyhouse.cli.completion": "to convert",
    "keyhouse.cli.examining": "to convert",
    "keyhouse.cli.query": "to convert",
    "keyhouse.cli.rows": "to convert",
    "keyhouse.cli.screens": "to convert",
    "keyhouse.cli.stored": "to convert",
    "keyhouse.demo.presenter": "to convert",
    "keyhouse.demo.story": "to convert",
    "keyhouse.systems.streamkit.routes": "to convert",
    "keyhouse.systems.streamkit.versions": "to convert",
}
"""Modules elsewhere that call an engine, with the reason. The list only shrinks."""


class Import(NamedTuple):
    line: int
    module: str
    """Absolute, and the module itself where a module is imported by name: `from keyhouse import store` is keyhouse.store."""
    name: str | None
    """What is taken out of the module; None when it is the module itself."""


class Source(NamedTuple):
    """One file of the package."""

    root: Path
    path: Path
    tree: ast.Module

    @property
    def module(self) -> str:
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def layer(self) -> str:
        return layer_of(self.module)

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(self.root.parent)}:{line}"

    def imports(self) -> Iterator[Import]:
        for node in ast.walk(self.tree):
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
    """Every file of the package in `root`, the folder that holds `keyhouse/`."""
    return [
        Source(root, path, ast.parse(path.read_text()))
        for path in sorted((root / "keyhouse").rglob("*.py"))
    ]


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def only_what_is_below(source: Source) -> Iterator[str]:
    """Each part imports only what the table allows."""
    layer = source.layer
    if layer not in MAY_IMPORT:
        yield f"{source.at(1)} is in no layer: give keyhouse.{layer} its row in MAY_IMPORT, and a line in ARCHITECTURE.md"
        return
    for line, module, _ in source.imports():
        if module.split(".")[0] != "keyhouse":
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
            (layer, target), f"hand it in as an argument, or move what both need down ({below})"
        )
        yield f"{source.at(line)} imports {module}, which is not below {layer or 'keyhouse itself'}: {instead}"


def systems_apart(source: Source) -> Iterator[str]:
    """No system knows another."""
    if source.layer != "systems" or source.module.count(".") < 2:
        return
    own = source.module.split(".")[2]
    for line, module, _ in source.imports():
        parts = module.split(".")
        if parts[:2] == ["keyhouse", "systems"] and parts[2:3] not in ([], [own]):
            yield f"{source.at(line)} imports {module}: systems do not know each other; move what both need below them"


def libraries_in_their_place(source: Source) -> Iterator[str]:
    """A driver is imported in engines and faces only; a library that is not in the table, nowhere."""
    for line, module, _ in source.imports():
        library = module.split(".")[0]
        if library in DRIVERS_OF_PYTHON:
            yield f"{source.at(line)} imports {module}: {DRIVERS_OF_PYTHON[library]}"
        if library == "keyhouse" or library in sys.stdlib_module_names:
            continue
        if library not in THIRD_PARTY:
            yield f"{source.at(line)} imports {module}, a library without its row in THIRD_PARTY: say there where it belongs"
        elif source.layer not in THIRD_PARTY[library]:
            places = ", ".join(THIRD_PARTY[library])
            yield f"{source.at(line)} imports {module}, which belongs in {places}: take what it makes as an argument"


def pure_core(source: Source) -> Iterator[str]:
    """Nothing in keys and schema awaits, opens, or asks the time."""
    if source.layer not in PURE:
        return
    for line, module, _ in source.imports():
        library = module.split(".")[0]
        if library in sys.stdlib_module_names and library not in PURE_IMPORTS:
            yield f"{source.at(line)} imports {module} in the pure core: take what it gives as an argument"
    for node in ast.walk(source.tree):
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"{source.at(node.lineno)} is async in the pure core: return a value, and let store await"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in IMPURE_CALLS
            ):
                yield f"{source.at(node.lineno)} calls {name}() in the pure core: take the time, or the text, as an argument"


def only_the_store_calls_engines(source: Source) -> Iterator[str]:
    """A schema meets an engine in the store and nowhere else."""
    if source.layer in ENGINE_CALLERS:
        return
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in ENGINE_CALLS and _is_engine(node.value)
    ]
    if source.module in ENGINE_CALLING_MODULES:
        if not calls:
            yield f"{source.at(1)} no longer calls an engine: take it off ENGINE_CALLING_MODULES"
        return
    for call in calls:
        yield (
            f"{source.at(call.lineno)} calls engine.{call.attr}: ask a Store, which has `row`, `rows`, `row_page`,"
            " `row_scan`, `row_watch`, `record_row`, `usage` and `transact`"
        )


def _is_engine(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_") == "engine"
    return False


def no_hidden_cycle(source: Source) -> Iterator[str]:
    """`TYPE_CHECKING` hides a cycle; the cycle is the fault."""
    for node in ast.walk(source.tree):
        match node:
            case ast.ImportFrom(names=names) if any(
                alias.name == "TYPE_CHECKING" for alias in names
            ):
                line = node.lineno
            case ast.Attribute(attr="TYPE_CHECKING"):
                line = node.lineno
            case _:
                continue
        yield f"{source.at(line)} uses TYPE_CHECKING: move what both modules need into one below them"


def telling_names(source: Source) -> Iterator[str]:
    """A module is named by the thing it holds."""
    for part in source.module.split("."):
        if part.strip("_").lower() in EMPTY_NAMES:
            yield f"{source.at(1)} is called {part}, which says nothing: name it by the noun it holds"


def one_idea_a_file(source: Source) -> Iterator[str]:
    lines = len(source.path.read_text().splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{source.at(lines)} has {lines} lines, over {FILE_LINES_MAX}: find the second idea in it, and give it a file"


def public_names_only(source: Source) -> Iterator[str]:
    """Systems, CLI and explorer use what anybody may use: a name that its package or module publishes."""
    if source.layer not in PUBLIC_ONLY:
        return
    for line, module, name in source.imports():
        if module.split(".")[0] != "keyhouse" or _at_home(source.module, module):
            continue
        dotted = module if name is None else f"{module}.{name}"
        if name == "__version__":
            continue
        if any(part.startswith("_") for part in dotted.split(".")):
            package = ".".join(module.split(".")[:2])
            yield f"{source.at(line)} imports {dotted}, which is private: use a public name of {package}"
        elif name is None and not _is_public(source.root, module):
            package = module.rpartition(".")[0]
            yield f"{source.at(line)} imports {module}, the inside of {package}: use the names that {package} publishes"
        elif name is not None and not _publishes(source.root, module, name):
            instead = _published_at(source.root, module, name)
            yield f"{source.at(line)} imports {dotted}, which no __all__ publishes: {instead}"


def _at_home(importer: str, module: str) -> bool:
    """Whether both are in the same face, or in the same system."""
    depth = 3 if layer_of(importer) == "systems" else 2
    return importer.split(".")[:depth] == module.split(".")[:depth]


def _is_public(root: Path, module: str) -> bool:
    """A package, a module right in keyhouse, or one that says what it publishes; or what its package publishes under the
    name of the module that holds it: `from keyhouse.store import sweep`."""
    is_package = root.joinpath(*module.split(".")).is_dir()
    package, _, name = module.rpartition(".")
    named = name in (published(root, package) or ())
    return is_package or named or module.count(".") == 1 or published(root, module) is not None


def _publishes(root: Path, module: str, name: str) -> bool:
    """By its `__all__`; a module that stands right in keyhouse and has none publishes all its public names."""
    names = published(root, module)
    return name in names if names is not None else module.count(".") == 1


def _published_at(root: Path, module: str, name: str) -> str:
    parents = module.split(".")
    for length in range(len(parents) - 1, 0, -1):
        package = ".".join(parents[:length])
        if name in (published(root, package) or ()):
            return f"import it from {package}"
    return f"add it to the __all__ of {module}, if everybody may use it"


def published(root: Path, module: str) -> list[str] | None:
    """The `__all__` of a module or package; None when it has none."""
    place = root.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text()).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                return [str(name) for name in ast.literal_eval(value)]
    return None


Rule = Callable[[Source], Iterator[str]]

RULES: tuple[Rule, ...] = (
    only_what_is_below,
    systems_apart,
    libraries_in_their_place,
    pure_core,
    only_the_store_calls_engines,
    no_hidden_cycle,
    telling_names,
    one_idea_a_file,
    public_names_only,
)
