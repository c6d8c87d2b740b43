"""The systems by name. One is imported, and its declarations proved, when it is asked for and not before."""

from importlib import import_module
from inspect import getdoc
from typing import Final

import msgspec

from keyhouse.errors import UsageError
from keyhouse.schema import Schema

__all__ = ["NAMES", "System", "load"]

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
