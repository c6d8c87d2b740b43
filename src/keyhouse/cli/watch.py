"""`keyhouse watch`: changes as they happen."""

import asyncio
import sys
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, JsonLines, Only, Prefix, SpaceName, StoreUrl, SystemName, examples


@examples(
    "keyhouse watch rosey --space trivia --store sqlite:bot.db",
    "keyhouse watch rosey game_ --space trivia --json | jq .value",
    "keyhouse watch rosey --space trivia --since 17 --count 10",
)
def watch(
    system: SystemName,
    prefix: Prefix = "",
    only: Only = None,
    since: Annotated[int | None, typer.Option(min=0, metavar="REVISION", help="First what changed after this.")] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after this many changes.")] = None,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """Show the changes of a space as they are committed.

    Whoever writes, until Ctrl-C. Nothing is missed and nothing comes twice. An expiry shows when the row is swept.
    """
    asyncio.run(
        _watch(since, count, json, system=system, prefix=prefix, only=only, space=space, store=store, data=data)
    )


async def _watch(since: int | None, count: int | None, json: bool, **query: Any) -> None:
    from contextlib import aclosing

    from keyhouse.cli.listing import Listing
    from keyhouse.cli.opening import opened
    from keyhouse.cli.output import one_line
    from keyhouse.cli.query import Query
    from keyhouse.cli.rows import filter_of, shown_change

    asked = Query(**query)
    place = asked.place
    passes, seen = filter_of(place.schema, asked.only), 0
    async with opened(asked.url, existing=True) as engine:
        start = since if since is not None else (await engine.scan(place.space, asked.span, limit=1)).revision
        print(
            f"Watching {one_line(place.space)} from revision {start} on; Ctrl-C ends it.", file=sys.stderr, flush=True
        )
        with Listing(("revision", "change", "key", "value"), json=json, live=True) as listing:
            async with aclosing(engine.watch(place.space, asked.span, since=start)) as changes:
                async for change in changes:
                    if not passes(change.key):
                        continue
                    listing.add(shown_change(place.schema, place.space, change))
                    seen += 1
                    if seen == count:
                        return
