"""The spaces of a store that hold somebody's rows: without those that Keyhouse reserves."""

from collections.abc import AsyncIterator

from keyhouse.engine import ReadView
from keyhouse.schema.space import RESERVED_SPACES

__all__ = ["stored_spaces"]


async def stored_spaces(view: ReadView) -> AsyncIterator[str]:
    """Iterate over the spaces that hold rows, in order."""
    async for space in view.spaces():
        if space not in RESERVED_SPACES:
            yield space
