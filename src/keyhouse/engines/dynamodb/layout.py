"""Attribute names of a DynamoDB table, and which documents are stored flat.

A layout renames the engine's own table; it is never a copy, and the engine's promises do not depend
on it. It knows members of JSON documents by name, and no schema.
"""

from keyhouse.layout import DynamodbLayout as Layout
from keyhouse.layout import IndexedPath as Path
from keyhouse.layout import find_layouts

__all__ = ["Layout", "Path", "layout_of"]


def layout_of(system: str) -> Layout:
    """Return a system's declared layout, or the default one."""
    return find_layouts(system).dynamodb or Layout()
