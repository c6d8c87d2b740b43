"""`keyhouse list`: keys, in order."""

import asyncio
import sys

from keyhouse.cli.options import JsonLines, Query, examples, spread


@examples(
    "keyhouse list rosey --space trivia --store sqlite:bot.db",
    "keyhouse list audiobooks b: --space main --only book --limit 20",
    "keyhouse list rosey --space trivia --service nats://127.0.0.1:4222",
)
@spread
def list_(query: Query, json: JsonLines = False) -> None:
    """List the keys of a space, in order.

    All of them, or those that start with a text. A pipe gets one key a line; a terminal is shown what each is as
    well.
    """
    asyncio.run(_list(query, json))


async def _list(query: Query, json: bool) -> None:
    from keyhouse.cli.access import reached, selected
    from keyhouse.cli.listing import Listing

    fields = ("key", "what", "revision", "expires") if sys.stdout.isatty() else ("key",)
    place = selected(query)
    async with reached(query.system, place, query) as access:
        with Listing(fields, json=json) as listing:
            async for row in access.rows(query, keys_only=True):
                listing.add(row)
