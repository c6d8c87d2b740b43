"""`keyhouse list`: list keys in order."""

import asyncio
import sys

from keyhouse.cli.options import JsonLines, Query, examples, renamed, spread


@renamed("--only", "--type")
@examples(
    "keyhouse list rosey --space trivia --store sqlite:bot.db",
    "keyhouse list audiobooks b: --space main --type book --limit 20",
    "keyhouse list rosey --space trivia --service nats://127.0.0.1:4222",
)
@spread
def list_(query: Query, json: JsonLines = False) -> None:
    """List the keys of a space, in order.

    All keys, or those with a prefix. In a pipe, one key per line; a terminal also shows the type,
    revision and expiry.
    """
    asyncio.run(_list(query, json))


async def _list(query: Query, json: bool) -> None:
    from keyhouse.cli.access import open_access, select_space
    from keyhouse.cli.rows import Listing

    columns = ("key", "what", "revision", "expires") if sys.stdout.isatty() else ("key",)
    target = select_space(query)
    async with open_access(query.system, target, query) as access:
        with Listing(columns, json=json) as listing:
            async for row in access.rows(query, keys_only=True):
                listing.add(row)
