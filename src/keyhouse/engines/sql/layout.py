"""Table, column and index names of a SQL database, and its time format.

A layout renames the engine's own tables; it is never a copy, and the engine's promises do not
depend on it.
"""

import msgspec

from keyhouse.layout import SqlLayout as Layout
from keyhouse.layout import find_layouts

__all__ = ["Layout", "in_quotes", "layout_of", "quoted"]


def layout_of(system: str) -> Layout:
    """Return a system's declared layout, or the default one under the system's name."""
    return find_layouts(system).sql or Layout.named(system)


def quoted(name: str) -> str:
    """Quote a name for a statement."""
    return '"' + name.replace('"', '""') + '"'


def in_quotes(layout: Layout) -> Layout:
    """Return the layout with every name quoted."""
    names = {
        name: quoted(value)
        for name, value in msgspec.structs.asdict(layout).items()
        if isinstance(value, str)
    }
    return msgspec.structs.replace(layout, **names)
