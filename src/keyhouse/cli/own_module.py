"""Import `module:NAME`, the caller's schema or service. Errors are one sentence, exit code 2."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import typer

from keyhouse.errors import KeyhouseError
from keyhouse.schema import Schema

__all__ = ["load_object"]

_PACKAGE: Final = str(Path(__file__).parents[1])


def load_object(name: str) -> Any:
    """Import `module:NAME`, also from the working directory. Exits with 2 if that fails."""
    module_name, _, attribute = name.partition(":")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    module = _imported(name, module_name)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        schemas = [known for known, value in vars(module).items() if isinstance(value, Schema)]
        has = f" It has {', '.join(f'{module_name}:{known}' for known in schemas)}."
        raise typer.BadParameter(
            f"{name!r} was not found: {error}.{has if schemas else ''}"
        ) from None


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
        reason = f"{type(error).__name__}: {error}"
        raise typer.BadParameter(f"{name!r} can't be imported: {_place(error)}{reason}.") from None


def _place(error: Exception) -> str:
    """Return the file and line of the caller's code that failed, with a colon."""
    if isinstance(error, SyntaxError):  # its text has both
        return ""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE)) and "importlib" not in frame.filename
    ]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}: " if frames else ""
