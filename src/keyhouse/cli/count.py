"""`keyhouse count`: how many rows there are."""

import asyncio
from typing import Any

from keyhouse.cli.options import DataFolder, Json, Only, Prefix, SpaceName, StoreUrl, SystemName, examples
from keyhouse.cli.output import show_json


@examples(
    "keyhouse count rosey --space trivia --store sqlite:bot.db",
    "keyhouse count audiobooks --only book --space main",
)
def count(
    system: SystemName,
    prefix: Prefix = "",
    only: Only = None,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Count the rows of a space, by reading every key."""
    from keyhouse.cli.query import Query

    query = Query(system=system, prefix=prefix, only=only, space=space, store=store, data=data)
    rows = asyncio.run(_count(query))
    if json:
        show_json({"space": query.place.space, "prefix": prefix, "only": only, "rows": rows})
    else:
        print(rows)


async def _count(query: Any) -> int:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.query import counted

    async with opened(query.url, existing=True) as engine:
        return await counted(query, engine)
