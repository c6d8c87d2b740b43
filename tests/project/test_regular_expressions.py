"""No regular expression of the package takes more than linear time, of whatever text.

Patterns are those in the source, and those in the modules once they are imported; types of requests
and templates of keys have some too. Steps are counted (`regex_steps`), so no clock decides.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import msgspec
import pytest

from keyhouse.service.registry import load_system, system_names
from tests.project.package_source import Source, package_sources
from tests.project.regex_steps import GROWTH_MAX, growth

SEARCHES: Final = ("search", "sub", "subn", "split", "findall", "finditer")
SCRIPTS: Final = {"keyhouse.engines.sql.migrations.env"}
"""Modules that run when they are imported."""
FLAGS: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.ASCII


class Found(NamedTuple):
    """A pattern. `is_search`: it is searched, not matched from the start to the end."""

    pattern: str
    flags: int
    is_search: bool


def in_source(source: Source) -> Iterator[tuple[str, Found]]:
    """Yield the patterns that a module writes as one text in a call of `re`."""
    for node in source.nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=name),
                args=[ast.Constant(value=str() | bytes() as pattern), *_],
            ) if name in (*SEARCHES, "match", "fullmatch"):
                flags = [
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute) and each.attr.isupper()
                ]
                number = sum(int(re.RegexFlag[each]) for each in flags)
                yield source.at(node.lineno), Found(_text(pattern), number, name in SEARCHES)


def in_module(source: Source) -> Iterator[tuple[str, Found]]:
    """Yield the patterns that a module holds, by their names."""
    if source.module in SCRIPTS:
        return
    text = source.path.read_text()
    for name, value in vars(importlib.import_module(source.module)).items():
        for found in _patterns(value):
            is_search = any(f"{name}.{each}(" in text for each in SEARCHES)
            yield f"{source.module}.{name}", found._replace(is_search=found.is_search or is_search)


def _patterns(value: Any) -> Iterator[Found]:
    owner = getattr(value, "__self__", None)
    if isinstance(value, re.Pattern):
        yield Found(_text(value.pattern), value.flags & FLAGS, False)
    elif isinstance(owner, re.Pattern):
        yield Found(_text(owner.pattern), owner.flags & FLAGS, value.__name__ in SEARCHES)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _patterns(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _patterns(each)
    elif get_origin(value) is Annotated:
        for each in get_args(value):
            if isinstance(each, msgspec.Meta) and each.pattern is not None:
                yield Found(each.pattern, 0, True)


def _text(pattern: str | bytes) -> str:
    return pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern


def in_templates() -> Iterator[tuple[str, Found]]:
    for name in system_names():
        for schema in load_system(name).schemas:
            for _, declared in schema.declared():
                template = declared.template
                yield f"{name}: {template}", Found(template.pattern, re.DOTALL, False)


def all_patterns() -> dict[Found, str]:
    """Return each pattern once, with a place that has it."""
    found: dict[Found, str] = {}
    for place, pattern in in_templates():
        found.setdefault(pattern, place)
    for source in package_sources():
        for place, pattern in (*in_source(source), *in_module(source)):
            found.setdefault(pattern, place)
    return found


PLANTED: Final = {
    "(a+)+": False,
    r"\s*\s*x": False,
    r"\s+$": True,
    r"(.*?)[\s_]*(\d{1,3})": False,
    r"(?:\w+\s*)*!": False,
    "(?:a|aa)*b": False,
}
LINEAR: Final = {
    "[a-z]+": False,
    "a*+b": False,
    r"[\w-]+(?:\.[\w-]+)*": False,
    r"\d{1,3}": True,
    r"(?:[^;]*;)*x": False,
}


@pytest.mark.parametrize(("pattern", "is_search"), [*PLANTED.items(), *LINEAR.items()])
def test_the_count_of_steps_tells_linear_patterns_from_others(
    pattern: str, is_search: bool
) -> None:
    worst, text = growth(pattern, 0, is_search=is_search)
    assert (worst > GROWTH_MAX) is (pattern in PLANTED), (worst, text)


def test_no_pattern_takes_more_than_linear_time() -> None:
    """Names of folders took the square of their length, in two patterns."""
    found = all_patterns()
    assert len(found) > 150, "patterns of modules, functions, types and keys are found"
    slow = {
        f"{place}: {each.pattern}": (round(worst, 1), text)
        for each, place in found.items()
        for worst, text in [growth(each.pattern, each.flags, is_search=each.is_search)]
        if worst > GROWTH_MAX
    }
    assert slow == {}
