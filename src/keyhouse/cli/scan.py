"""`keyhouse scan`: keys with their values, in order."""

import asyncio
from typing import Annotated, Any

import typer

from keyhouse.cli.list import After, Limit, Reverse
from keyhouse.cli.options import DataFolder, JsonLines, Only, Prefix, SpaceName, StoreUrl, SystemName, examples


@examples(
    "keyhouse scan rosey game_ --space trivia --store sqlite:bot.db",
    "keyhouse scan audiobooks idx:book:tag:fantasy: --resolve --space main",
    "keyhouse scan rosey --space trivia --json | jq .value",
)
def scan(
    system: SystemName,
    prefix: Prefix = "",
    only: Only = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Of a derived row, show the records that it leads to, in its order.")
    ] = False,
    limit: Limit = None,
    after: After = None,
    reverse: Reverse = False,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """Show the keys of a space with their values, in order.

    All of them, or those that start with a text; without private members. A pipe gets key and value with a tab
    between them; a terminal is shown the start of long values.
    """
    asyncio.run(
        _scan(
            json,
            resolve,
            system=system,
            prefix=prefix,
            only=only,
            limit=limit,
            after=after,
            reverse=reverse,
            space=space,
            store=store,
            data=data,
        )
    )


async def _scan(json: bool, resolve: bool, **query: Any) -> None:
    from keyhouse.cli.listing import Listing
    from keyhouse.cli.opening import opened
    from keyhouse.cli.query import Query, found

    asked = Query(**query)
    async with opened(asked.url, existing=True) as engine:
        with Listing(("key", "value"), json=json) as listing:
            async for row in found(asked, engine, resolve=resolve):
                listing.add(row)
