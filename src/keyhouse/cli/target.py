"""What a command works on: one of the systems by its name, or a schema of the caller's own as `module:NAME`."""

import importlib
import os
import sys
from typing import Any

import typer

from keyhouse.schema import Schema
from keyhouse.service.system import System
from keyhouse.systems.registry import NAMES, load_system

SYSTEM_HELP = f"A system ({', '.join(NAMES)}), or a schema of your own as module:NAME."


def system_names(incomplete: str) -> list[str]:
    """For the completion of a shell."""
    return [name for name in NAMES if name.startswith(incomplete)]


def target(name: str) -> System:
    """A system, or one made of the caller's schema. Usage error, exit code 2, when there is none of that name."""
    if ":" in name:
        return _own(name)
    if name not in NAMES:
        raise typer.BadParameter(
            f"{name!r} is none of {', '.join(NAMES)}, nor of the form module:NAME."
        )
    return load_system(name)


def own(name: str) -> Any:
    """What `module:NAME` names, in this folder or installed. Usage error, exit code 2, when there is none."""
    module_name, _, attribute = name.partition(":")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise typer.BadParameter(f"{name!r} can't be found: {error}.") from None


def _own(name: str) -> System:
    schema = own(name)
    if not isinstance(schema, Schema):
        raise typer.BadParameter(f"{name!r} is not a Schema, but a {type(schema).__name__}.")
    return System(schema.name, title=schema.name.capitalize(), doc=schema.doc, schemas=(schema,))
