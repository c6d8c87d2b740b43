"""How rows look natively in a SQL database: what tables, columns and indexes are called, and how times are written.

A layout is the engine's own table under other names, never a copy. Whatever it says, the engine keeps the same promise.
"""

import msgspec

from keyhouse.layout import SqlLayout as Layout
from keyhouse.layout import find_layouts

__all__ = ["Layout", "in_quotes", "layout_of", "quoted"]


def layout_of(system: str) -> Layout:
    """The layout that a system's document asks for, or else the usual one under the system's name."""
    return find_layouts(system).sql or Layout.named(system)


def quoted(name: str) -> str:
    """A name as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


def in_quotes(layout: Layout) -> Layout:
    """The same layout with every name as it stands in a statement."""
    names = {
        name: quoted(value)
        for name, value in msgspec.structs.asdict(layout).items()
        if isinstance(value, str)
    }
    return msgspec.structs.replace(layout, **names)
