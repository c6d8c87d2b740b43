"""docs/api.md: every public name of the package, from its signature and docstring.

Signatures are read from the source, so that they look alike on every version of Python.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from types import FunctionType
from typing import Any, Final

import keyhouse

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Open": ("open_store", "open_engine", "load_system"),
    "Read and write": (
        *("Store", "Transaction", "Entry", "RecordPage", "Event", "UnreadableRow"),
        "RemoteStore",
    ),
    "Declare": (
        *(
            "Schema",
            "Space",
            "Record",
            "Index",
            "Unique",
            "First",
            "Summary",
            "RecordCount",
            "Counter",
        ),
        *("Log", "LogState", "FoldResult", "Owner", "Reference", "Meta", "Migration"),
        *("Operation", "operation"),
    ),
    "Expiry": ("fixed", "sliding", "per_write", "at_field"),
    "Key fields": (
        *("Template", "TextSegment", "NormalizedText", "Integer", "FixedPoint", "Day", "Timestamp"),
        *("Descending", "Ulid", "Choice", "OptionalSegment", "Regex", "NATS", "SECONDS"),
        *("MILLISECONDS", "Span", "normal"),
    ),
    "Logs": ("fold", "prune"),
    "Work on a whole space": (
        *("migrate", "reindex", "run_job", "sweep", "verify", "Finding", "resume_deletions"),
        *("KeyRing", "reseal"),
    ),
    "Time and ids": ("Clock", "SystemClock", "ManualClock", "IdSource", "UlidSource"),
    "Errors": ("KeyhouseError",),
}
"""Public names in the order of the page. Names that are not listed are at its end."""

SERVICES: Final[dict[str, tuple[str, ...]]] = {"keyhouse.auth": ("mint",)}
"""Names of other packages, for programs beside a service; their extra is `serve`."""

METHODS: Final[dict[str, tuple[str, ...] | None]] = {
    "Clock": None,
    "IdSource": None,
    "KeyRing": None,
    "ManualClock": None,
    "Schema": ("under", "replacing"),
    "Store": None,
    "Transaction": (
        "get",
        "get_each",
        "entry",
        "lookup",
        "put",
        "update",
        "delete",
        "add",
        "append",
        "restore",
        "rewrite",
    ),
}
"""Classes whose methods are on the page; None: all that are public."""

_NOTE: Final = "<!-- Made by `make docs` from the code: change it there. -->\n"
_ABOUT: Final = """\
All names of the package `keyhouse`, from their signatures and docstrings. The
[guides](guides/README.md) show how to use them, and [declaring](declaring.md) has an example of
each. Errors are in `keyhouse.errors`: see [errors](errors.md). `keyhouse.sync` has the same verbs
[without `await`](guides/sync.md).
"""


def api_page() -> str:
    """Return the page."""
    listed = {name for names in GROUPS.values() for name in names}
    further = tuple(name for name in keyhouse.__all__ if name not in listed)
    groups = GROUPS | ({"Further names": further} if further else {})
    lines = ["# API reference\n", _NOTE, _ABOUT]
    for title, names in groups.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _entry(name)
    lines.append("## Beside a service\n")
    for package, names in SERVICES.items():
        for name in names:
            lines += _entry(name, package)
    return "\n".join(lines).rstrip("\n") + "\n"


def _entry(name: str, package: str = "keyhouse") -> list[str]:
    value: Any = getattr(import_module(package), name)
    lines = [f"### {name}\n" if package == "keyhouse" else f"### {package}.{name}\n"]
    if isinstance(value, FunctionType):
        return [*lines, f"```python\n{signature(value, name)}\n```\n", text_of(value)]
    if not isinstance(value, type):
        return [*lines, constant_text(value, name)]
    if (shown := class_signature(value)) is not None:
        lines.append(f"```python\n{shown}\n```\n")
    lines.append(text_of(value))
    if name in METHODS:
        for method in methods(value, METHODS[name]):
            short = signature(method, f"{name}.{method.__name__}")
            lines += [f"#### {name}.{method.__name__}\n", f"```python\n{short}\n```\n"]
            lines.append(text_of(method))
    return lines


def methods(kind: type, names: tuple[str, ...] | None) -> Iterator[FunctionType]:
    """Iterate over the public methods in the order of their names."""
    for name, found in inspect.getmembers(kind):
        function = inspect.unwrap(getattr(found, "__func__", found))
        if not isinstance(function, FunctionType) or name.startswith("_"):
            continue
        if names is None or name in names:
            yield function


def signature(function: Any, shown: str) -> str:
    """Return the call of a function with its types, wrapped."""
    node = _node(inspect.unwrap(function))
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if node.args.posonlyargs and node.args.posonlyargs[0].arg in ("self", "cls"):
        del node.args.posonlyargs[0]
    elif node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[0]
    parts = [*_arguments(node.args)]
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) and not _iterates(node) else ""
    result = f" -> {_source(node.returns)}" if node.returns and node.name != "__init__" else ""
    one_line = f"{prefix}{shown}({', '.join(parts)}){result}"
    if len(one_line) <= 100:
        return one_line
    inside = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{shown}(\n{inside}){result}"


def _iterates(node: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Yield) for each in ast.walk(node))


def _arguments(found: ast.arguments) -> Iterator[str]:
    """Iterate over the arguments as they are written."""
    places = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(places) - len(found.defaults)) + [*found.defaults]
    for place, (argument, default) in enumerate(zip(places, defaults, strict=True), 1):
        yield _argument(argument, default)
        if place == len(found.posonlyargs):
            yield "/"
    if found.vararg is not None and found.vararg.arg != "positional":  # which rejects what it gets
        yield f"*{_argument(found.vararg, None)}"
    elif found.kwonlyargs:
        yield "*"
    for argument, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        yield _argument(argument, default)
    if found.kwarg is not None:
        yield f"**{_argument(found.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_source(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return argument.arg + kind
    return f"{argument.arg}{kind}{' = ' if kind else '='}{_source(default)}"


def class_signature(kind: type) -> str | None:
    """Return the call that makes one: by `__init__`, or by the members of a Struct."""
    for base in kind.__mro__:
        made = base.__dict__.get("__init__")
        if isinstance(made, FunctionType) and base.__module__.startswith("keyhouse"):
            if base.__name__ == "KeyhouseError":
                return None
            return signature(made, kind.__name__)
    if not hasattr(kind, "__struct_fields__"):
        return None
    fields = [
        _source(node)
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("keyhouse")
        for node in _node(base).body
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in _source(node.annotation)
    ]
    inside = "".join(f"    {field}\n" for field in fields)
    return f"class {kind.__name__}:\n{inside}".rstrip("\n")


def text_of(value: Any) -> str:
    """Return the docstring as Markdown."""
    return _markdown(inspect.cleandoc(value.__doc__ or "")) + "\n"


def constant_text(value: Any, name: str) -> str:
    """Return the text below the assignment of a constant, or its type's."""
    module = sys.modules[type(value).__module__]
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        match node, after:
            case (
                ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if found == name:
                return _markdown(inspect.cleandoc(text)) + "\n"
    return text_of(type(value))


def _markdown(text: str) -> str:
    """Return paragraphs and lists wrapped, and tables of the docstring as they are."""
    parts = []
    for paragraph in text.split("\n\n"):
        if "\n" in paragraph and re.search(r"^\S+ {2,}\S", paragraph, re.MULTILINE):
            parts.append(f"```text\n{paragraph}\n```")
        elif paragraph.startswith("    "):
            parts.append(f"```python\n{textwrap.dedent(paragraph)}\n```")
        elif paragraph.startswith("- "):
            items = re.split(r"^- ", paragraph, flags=re.MULTILINE)[1:]
            parts.append("\n".join(_item(item) for item in items))
        else:
            parts.append(textwrap.fill(" ".join(paragraph.split()), 100, break_on_hyphens=False))
    return "\n\n".join(parts)


def _item(text: str) -> str:
    return textwrap.fill(
        f"- {' '.join(text.split())}", 100, subsequent_indent="  ", break_on_hyphens=False
    )


def _source(node: ast.AST) -> str:
    """Return the text of a node, with the quotes of the formatter."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def _node(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
