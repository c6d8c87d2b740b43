"""The systems by name. One is imported, and its declarations proved, when it is asked for and not before."""

from importlib import import_module
from importlib.machinery import PathFinder
from inspect import getdoc
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from keyhouse.errors import UsageError
from keyhouse.schema import Schema

__all__ = ["NAMES", "System", "has_service", "load", "load_remote", "load_service"]

_TITLES: Final = {
    "rosey": "Plugin storage over NATS",
    "streamkit": "Streamer configuration API",
    "audiobooks": "Audiobook library",
    "playlist": "Playlist and catalog service",
    "history": "Viewing history",
}

NAMES: Final = tuple(_TITLES)


class System(msgspec.Struct, frozen=True):
    """What a system is, in words, and its keyspace: one schema, or one for each of its buckets."""

    name: str
    title: str
    doc: str
    schemas: tuple[Schema, ...]


def load(name: str) -> System:
    """The system of that name; UsageError, with the names there are, when there is none."""
    if name not in _TITLES:
        raise UsageError("No such system.", system=name, known=list(NAMES))
    package = import_module(f"keyhouse.systems.{name}")
    return System(name, _TITLES[name], getdoc(package) or "", package.SCHEMAS)


def has_service(name: str) -> bool:
    """Whether the system can be served, and not only stored. Nothing of it is imported."""
    return _has(name, "service")


def load_service(name: str) -> ModuleType:
    """The module of the system that has `part(context) -> Part`; UsageError when there is no such system, or no service."""
    if name not in _TITLES:
        raise UsageError("No such system.", system=name, known=list(NAMES))
    if not has_service(name):
        served = [known for known in NAMES if has_service(known)]
        raise UsageError(
            "This system has no service yet: it can be stored, not served.",
            system=name,
            served=served,
        )
    return import_module(f"keyhouse.systems.{name}.service")


def load_remote(name: str) -> ModuleType:
    """The module of the system that has `connect(url, space, token) -> Remote`; UsageError when its service can't be asked
    so. ImportError names the extra that it needs."""
    if not _has(name, "remote"):
        asked = [known for known in NAMES if _has(known, "remote")]
        raise UsageError(
            "The service of this system can't be asked here: name its rows.",
            system=name,
            asked=asked,
        )
    try:
        return import_module(f"keyhouse.systems.{name}.remote")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"To ask a service needs {error.name}: pip install 'keyhouse[client]'"
        ) from error


def _has(name: str, module: str) -> bool:
    return (
        name in _TITLES
        and PathFinder.find_spec(module, [str(Path(__file__).parent / name)]) is not None
    )
