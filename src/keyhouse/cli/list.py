"""`keyhouse list`: keys, in order."""

import asyncio
import sys
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, JsonLines, Only, Prefix, SpaceName, StoreUrl, SystemName, examples

Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than this many.")]
After = Annotated[str | None, typer.Option(metavar="KEY", help="Go on behind this key.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="From the last to the first.")]


@examples(
    "keyhouse list rosey --space trivia --store sqlite:bot.db",
    "keyhouse list audiobooks b: --space main --only book --limit 20",
)
def list_(
    system: SystemName,
    prefix: Prefix = "",
    only: Only = None,
    limit: Limit = None,
    after: After = None,
    reverse: Reverse = False,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """List the keys of a space, in order.

    All of them, or those that start with a text. A pipe gets one key a line; a terminal is shown what each is as
    well.
    """
    asyncio.run(
        _list(
            json,
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


async def _list(json: bool, **query: Any) -> None:
    from keyhouse.cli.listing import Listing
    from keyhouse.cli.opening import opened
    from keyhouse.cli.query import Query, found

    asked = Query(**query)
    fields = ("key", "what", "revision", "expires") if sys.stdout.isatty() else ("key",)
    async with opened(asked.url, existing=True) as engine:
        with Listing(fields, json=json) as listing:
            async for row in found(asked, engine, keys_only=True):
                listing.add(row)
