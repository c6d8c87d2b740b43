"""What the shell offers behind Tab for spaces and keys, when the store is named and lies in a file.

A completion never makes anything, never asks a server, and never says why it has nothing to offer.
"""

import asyncio
from contextlib import suppress
from itertools import islice
from typing import Any

import typer

_OFFERED_MAX = 50
_QUICK = ("sqlite:",)


def complete_space(ctx: typer.Context, incomplete: str) -> list[str]:
    return _offered(ctx, _spaces, incomplete)


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    return _offered(ctx, _keys, incomplete)


def _offered(ctx: typer.Context, look: Any, incomplete: str) -> list[str]:
    """An error of any kind is nothing to offer: there is nobody to tell it to."""
    with suppress(Exception):
        from keyhouse.cli.place import url_of

        named = ctx.params
        url = url_of(named.get("system"), named.get("store"), named.get("data"))
        if url.startswith(_QUICK):
            return list(islice(asyncio.run(look(url, named, incomplete)), _OFFERED_MAX))
    return []


async def _spaces(url: str, named: dict[str, Any], incomplete: str) -> list[str]:
    from keyhouse.cli.opening import opened

    async with opened(url, existing=True) as engine:
        return [space async for space in engine.spaces() if space.startswith(incomplete)]


async def _keys(url: str, named: dict[str, Any], incomplete: str) -> list[str]:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.place import place_of_space
    from keyhouse.cli.target import target
    from keyhouse.keys import Span

    place = place_of_space(target(named["system"]), named.get("space"))
    async with opened(url, existing=True) as engine:
        page = await engine.scan(
            place.space, Span.prefix(incomplete), limit=_OFFERED_MAX, keys_only=True
        )
        return [row.key for row in page.rows]
