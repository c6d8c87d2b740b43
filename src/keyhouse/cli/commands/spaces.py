"""`keyhouse spaces`: list the spaces that hold rows."""

import asyncio
from pathlib import Path

from keyhouse.cli.options import DataFolder, JsonLines, OptionalSystem, StoreUrl, examples


@examples(
    "keyhouse spaces --store sqlite:bot.db",
    "keyhouse spaces rosey --data data",
)
def spaces(
    system: OptionalSystem = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """List the spaces that hold rows, in order.

    With --store, SYSTEM may be left out.
    """
    asyncio.run(_spaces(system, store, data, json))


async def _spaces(system: str | None, store: str | None, data: Path | None, json: bool) -> None:
    from keyhouse.cli.output import one_line, show_line
    from keyhouse.cli.target import engine_at, store_url

    async with engine_at(store_url(system, store, data), existing=True) as engine:
        async for space in engine.spaces():
            if json:
                show_line({"space": space})
            else:
                print(one_line(space))
