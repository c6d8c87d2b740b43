"""Normalization sorts marks by insertion, in the square of their number: only the module that
bounds it calls it. Folding and lower case take linear time, and may be anywhere."""

import ast
from collections.abc import Iterator

from tests.project.package_source import Source, package_sources

NORMALIZER = "keyhouse.normalization"


def normalizing(source: Source) -> Iterator[str]:
    """Yield the places at which a module names `unicodedata.normalize`."""
    for node in source.nodes:
        match node:
            case ast.ImportFrom(module="unicodedata", names=names) if {"normalize", "*"} & {
                alias.name for alias in names
            }:
                yield source.at(node.lineno)
            case ast.Attribute(value=ast.Name(id="unicodedata"), attr="normalize"):
                yield source.at(node.lineno)


def test_only_the_bounded_normalizer_calls_the_one_of_python() -> None:
    """Keys, search and passwords called it before the length was checked."""
    places = {source.module: list(normalizing(source)) for source in package_sources()}
    found = places.pop(NORMALIZER)
    assert len(found) == 1, "the rule finds the one place that there is"
    assert not any(places.values()), places
