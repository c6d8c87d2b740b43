"""The rules about code inside a module: its name and size, errors, limits, patches, private names.

They are rules like those of `layers.py`, which has the list of all.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.project.layer_tables import (
    COMPARES_NUMBERS,
    MEANINGLESS_NAMES,
    PUBLIC_BY_DOCUMENTATION,
    PUBLIC_ONLY,
    USES_PRIVATE_NAMES,
)
from tests.project.package_source import Source, last_name

FILE_LINES_MAX = 550
_PRIVATE: Final = re.compile("_[A-Za-z]")
_BY_NAME: Final = {"getattr", "setattr", "hasattr", "delattr", "object"}
"""Functions that take the name of an attribute as text; the last one is `patch.object`."""


def meaningful_module_names(source: Source) -> Iterator[str]:
    """A module is named by what it contains."""
    for part in source.module.split("."):
        if part.strip("_").lower() in MEANINGLESS_NAMES:
            yield f"{source.at(1)} is named {part}, which says nothing: use a noun for its content"


def file_size(source: Source) -> Iterator[str]:
    """A file holds one idea."""
    lines = len(source.path.read_text().splitlines())
    if lines > FILE_LINES_MAX:
        yield (
            f"{source.at(lines)} has {lines} lines, over {FILE_LINES_MAX}: move the second idea "
            "in it to another file"
        )


SEARCHES_MESSAGES = {"keyhouse.settings.parser": "takes the path of a setting from msgspec's text"}
"""Modules outside an engine's `error_map` that search an error's message, with the reason."""


def errors_by_type_not_by_message(source: Source) -> Iterator[str]:
    """An error is chosen by its type; only an engine's `error_map` may search a driver's text."""
    if source.path.stem == "error_map" or source.module in SEARCHES_MESSAGES:
        return
    texts = {
        target.id
        for node in source.nodes
        if isinstance(node, ast.Assign) and _is_error_text(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in source.nodes:
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[searched]) if (
                _is_error_text(searched)
                or (isinstance(searched, ast.Name) and searched.id in texts)
            ):
                yield (
                    f"{source.at(node.lineno)} searches the text of an error: "
                    "catch its type, or translate it in the engine's error_map"
                )


def _is_error_text(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in ("error", "e", "exception", "cause")
        case ast.BoolOp(values=[first, *_]):
            return _is_error_text(first)
    return False


def limits_have_names(source: Source) -> Iterator[str]:
    """A number that rejects a caller is a named limit, not a literal."""
    for node in source.nodes:
        match node:
            case ast.If(test=test, body=[*_, ast.Raise()]) if (
                source.module not in COMPARES_NUMBERS and _compares_a_literal(test)
            ):
                yield (
                    f"{source.at(node.lineno)} rejects a caller by a literal: "
                    "name it in the limits of its package, or in the module"
                )
            case ast.Call(func=ast.Name(id="LimitError"), keywords=keywords):
                if any(
                    isinstance(each.value, ast.Constant) for each in keywords if _is_number(each)
                ):
                    yield (
                        f"{source.at(node.lineno)} rejects a caller by a literal: "
                        "name it in the limits of its package, with its unit and origin"
                    )


def _compares_a_literal(test: ast.expr) -> bool:
    """Return whether a condition compares with a number other than 0, 1 and 2, not of a status."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            numbers = [
                side.value
                for side in sides
                if isinstance(side, ast.Constant) and isinstance(side.value, int | float)
            ]
            is_status = any(last_name(side).startswith("status") for side in sides)
            if not is_status and any(number not in (0, 1, 2) for number in numbers):
                return True
    return False


def _is_number(keyword: ast.keyword) -> bool:
    return isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int | float)


def no_patching(source: Source) -> Iterator[str]:
    """No module assigns to an attribute of another one, or of a class that it imports: that changes
    it for the whole process."""
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in source.nodes:
        for name, attribute in _assigned_attributes(node):
            if name in imported:
                yield (
                    f"{source.at(getattr(node, 'lineno', 1))} assigns to {name}.{attribute}: "
                    "subclass or wrap it instead of patching it for the whole process"
                )


def _assigned_attributes(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the attributes that a statement sets, each with the name before the dot."""
    match node:
        case ast.Assign(targets=targets):
            pass
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets = [target]
        case ast.Call(
            func=ast.Name(id="setattr"), args=[ast.Name(id=name), ast.Constant(value=value), _]
        ):
            yield name, str(value)
            return
        case _:
            return
    for each in targets:
        match each:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                yield name, attribute


def private_names_stay_inside(source: Source) -> Iterator[str]:
    """A module uses no private names of other modules."""
    if source.module in USES_PRIVATE_NAMES:
        return
    own = {
        name
        for node in source.nodes
        for name in (
            getattr(node, "name", None),
            node.attr if isinstance(node, ast.Attribute) and _is_self(node.value) else None,
            node.target.id
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            else None,
        )
    }
    for node in source.nodes:
        match node:
            case ast.Attribute(value=value, attr=name) if (
                _PRIVATE.match(name)
                and name not in own | PUBLIC_BY_DOCUMENTATION
                and not _is_self(value)
            ):
                yield (
                    f"{source.at(node.lineno)} uses {ast.unparse(node)}, a private name of "
                    "another module: use or add a public one"
                )
            case (
                ast.Call(func=function, args=[ast.Constant(value=str(name)), *_])
                | ast.Call(func=function, args=[_, ast.Constant(value=str(name)), *_])
            ) if (
                last_name(function) in _BY_NAME
                and _PRIVATE.match(name.rpartition(".")[2])
                and name not in own
            ):
                yield (
                    f"{source.at(node.lineno)} names {name!r}, a private name of another module: "
                    "use or add a public one"
                )
    for line, module, imported in source.imports:
        is_test = "tests" in source.path.relative_to(source.root).parts
        is_reported = source.layer in PUBLIC_ONLY and module.startswith("keyhouse") and not is_test
        if imported is not None and _PRIVATE.match(imported) and not is_reported:
            yield (
                f"{source.at(line)} imports {imported}, a private name of {module}: "
                "use or add a public one"
            )


def _is_self(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            return True
    return False
