"""What a command works on: one of the systems by its name, or a schema of the caller's own as `module:NAME`."""

import importlib
import os
import sys

import msgspec
import typer

from keyhouse.schema import Schema

SYSTEM_HELP = "One of the systems (see --help), or a schema of your own as module:NAME."


class Target(msgspec.Struct, frozen=True):
    name: str
    title: str
    doc: str
    schemas: tuple[Schema, ...]


def target(name: str) -> Target:
    """Usage error, exit code 2, when there is none of that name."""
    return _own(name) if ":" in name else _system(name)


def system_names() -> list[str]:
    from keyhouse.systems import registry

    return list(registry.NAMES)


def _system(name: str) -> Target:
    from keyhouse.systems import registry

    if name not in registry.NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(registry.NAMES)}, nor of the form module:NAME.")
    system = registry.load(name)
    return Target(system.name, system.title, system.doc, tuple(system.schemas))


def _own(name: str) -> Target:
    module_name, _, attribute = name.partition(":")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    try:
        schema = getattr(importlib.import_module(module_name), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise typer.BadParameter(f"{name!r} can't be found: {error}.") from None
    if not isinstance(schema, Schema):
        raise typer.BadParameter(f"{name!r} is not a Schema, but a {type(schema).__name__}.")
    return Target(schema.name, schema.name.capitalize(), schema.doc, (schema,))
