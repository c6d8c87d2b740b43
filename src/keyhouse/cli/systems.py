"""Load what the SYSTEM argument names: a system that ships with Keyhouse, or the caller's own
schema as `module:NAME`. KEYHOUSE_SYSTEM is its default: see `options.Command`."""

import asyncio
import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import typer

from keyhouse.advice import nearest, systems_line
from keyhouse.errors import KeyhouseError
from keyhouse.layout import register_layouts
from keyhouse.schema import Schema
from keyhouse.service import registry
from keyhouse.service.registry import system_names
from keyhouse.service.schema_service.system import SchemaSystem
from keyhouse.service.system import System

__all__ = [
    "check_system",
    "find_modules_beside",
    "load_object",
    "load_system",
    "own_system",
    "schemas_beside",
    "served_name",
]

_PACKAGE: Final = str(Path(__file__).parents[1])
_LIBRARY: Final = sysconfig.get_path("stdlib")


def load_system(name: str) -> System:
    """Load a system, or make one of the caller's schema. Exits with 2 if the name is unknown.

    With `@PREFIX` after its name, its schemas have this text in front of all keys.
    """
    name, at, prefix = name.partition("@")
    if at:
        return load_system(name).under(prefix)
    if ":" in name:
        loaded = load_object(name)
        if isinstance(loaded, System):
            return own_system(loaded)
        if not isinstance(loaded, Schema):
            raise typer.BadParameter(
                f"{name!r} is neither a Schema nor a System but a {type(loaded).__name__}."
                f"{schemas_beside(name)}"
            )
        return SchemaSystem(loaded)
    check_system(name)
    return registry.load_system(name)


def own_system(system: System) -> System:
    """Return a system that need not be installed, after its layouts can be found by its name."""
    register_layouts(lambda name: system.layouts if name == system.name else None)
    return system


def served_name(name: str) -> str:
    """Return the name under which `keyhouse serve` serves a system: a schema has its own name."""
    return load_system(name).name if ":" in name else name


def check_system(name: str) -> None:
    """Exit with code 2 unless this is the name of a system or has the form module:NAME."""
    if name.partition("@")[0] not in system_names() and ":" not in name.partition("@")[0]:
        like = nearest(name, system_names()).get("nearest")
        advice = f" Did you mean {like}?" if like else ""
        if line := systems_line(name.partition("@")[0]):
            advice = f" To install it: {line}."
        installed = f"{', '.join(system_names())}, or " if system_names() else ""
        raise typer.BadParameter(
            f"{name!r} is not an installed system.{advice} Use {installed}your own schema as"
            " module:NAME, as in board:BOARD."
        )


def find_modules_beside(config: Path | None) -> None:
    """Also import modules from the folder of a settings file, which names them in `systems`. It is
    the last folder that is looked at: nothing in it hides another module."""
    if config is not None and (folder := str(config.absolute().parent)) not in sys.path:
        sys.path.append(folder)


def load_object(name: str) -> Any:
    """Import `module:NAME`, also from the working directory and from the folder of the settings
    file. Exits with 2 if that fails."""
    module_name, _, attribute = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        stem = Path(module_name).stem
        raise typer.BadParameter(
            f"{name!r} names a file: name its module, as in {stem}:{attribute}, in the folder of"
            f" {stem}.py."
        )
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    if named := os.environ.get("KEYHOUSE_CONFIG"):
        find_modules_beside(Path(named))
    module = _imported(name, module_name)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise typer.BadParameter(
            f"{name!r} was not found: {error}.{schemas_beside(name)}"
        ) from None


def schemas_beside(name: str) -> str:
    """Return the sentence with the schemas of the module of `module:NAME`; empty if it has none."""
    module = name.partition(":")[0]
    schemas = [
        known for known, each in vars(sys.modules[module]).items() if isinstance(each, Schema)
    ]
    return f" It has {', '.join(f'{module}:{known}' for known in schemas)}." if schemas else ""


def _imported(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        top = module_name.partition(".")[0]
        hint = f" Run this in the folder of {top}.py." if error.name == top else ""
        raise typer.BadParameter(f"{name!r} was not found: {error}.{hint}") from None
    except KeyhouseError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        reason = f"{type(error).__name__}: {error}"
        raise typer.BadParameter(
            f"{name!r} can't be imported: {_place(error, frames)}{reason}.{_advice(frames)}"
        ) from None


def _place(error: Exception, frames: traceback.StackSummary) -> str:
    """Return the file and line of the caller's code that failed, with a colon."""
    if isinstance(error, SyntaxError):  # its text has both
        return ""
    own = [frame for frame in frames if not frame.filename.startswith(("<", _PACKAGE, _LIBRARY))]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""


def _advice(frames: traceback.StackSummary) -> str:
    """Return what to do about a module that runs its program when it is imported."""
    if frames[-1].filename != asyncio.runners.__file__:
        return ""
    return ' Write `if __name__ == "__main__":` above it: importing the module runs it too.'
