"""The spaces of a whole store, each with the schema that it is of."""

from collections.abc import AsyncIterator, Sequence

from keyhouse.cli.place import Place, schemas_with
from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError
from keyhouse.service.system import System
from keyhouse.store import MARK_SPACE


async def places(
    system: System, engine: Engine, spaces: Sequence[str] | None
) -> AsyncIterator[Place]:
    """Those that are named, or all that hold a row. One that no schema of the system can have is passed over, unless it is
    named: then it is refused."""
    if spaces:
        for space in spaces:
            yield Place(schemas_with(system.schemas, space)[0], space)
        return
    async for space in engine.spaces():
        if space != MARK_SPACE and (place := place_of(system, space)) is not None:
            yield place


def place_of(system: System, space: str) -> Place | None:
    try:
        return Place(schemas_with(system.schemas, space)[0], space)
    except KeyFieldError:
        return None


async def strangers(system: System, engine: Engine) -> list[str]:
    """The spaces that hold rows, and are none of the system's."""
    found = [space async for space in engine.spaces()]
    return [space for space in found if space != MARK_SPACE and place_of(system, space) is None]
