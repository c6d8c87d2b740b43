"""How rows look natively in a DynamoDB table: what attributes are called, and which documents lie flat.

A layout is the engine's own table under other names, never a copy. Whatever it says, the engine keeps the same promise. It
knows members of JSON documents by their names, and nothing of the schema that they come from.
"""

from keyhouse.layout import DynamodbLayout as Layout
from keyhouse.layout import IndexedPath as Path
from keyhouse.layout import find_layouts

__all__ = ["Layout", "Path", "layout_of"]


def layout_of(system: str) -> Layout:
    """The layout that a system's document asks for, or else the usual one."""
    return find_layouts(system).dynamodb or Layout()
