"""Shell completion of spaces and keys, from a store in a local file.

Completion creates nothing, contacts no server, and hides every error: it offers nothing instead.

Bash needs help with keys: it splits words at `:` and `=`, so that `idx:clip:ta` arrives as five
words. `join_bash_words` joins them before the command line is parsed, and removes from each offer
the part that bash already has, since bash replaces only the last of these words. If COMP_WORDBREAKS
excludes `:`, nothing needs joining.
"""

import asyncio
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from itertools import islice
from typing import Any

import typer

_OFFERED_MAX = 50
_LOCAL = ("sqlite:",)


def complete_space(ctx: typer.Context, incomplete: str) -> list[str]:
    return _offers(ctx, _spaces, incomplete)


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    return _offers(ctx, _keys, incomplete)


def _offers(ctx: typer.Context, read: Any, incomplete: str) -> list[str]:
    with suppress(Exception):  # the shell has no place to show an error
        from keyhouse.cli.target import store_url

        given = ctx.params
        url = store_url(given.get("system"), given.get("store"))
        if url.startswith(_LOCAL):
            return list(islice(asyncio.run(read(url, given, incomplete)), _OFFERED_MAX))
    return []


async def _spaces(url: str, given: dict[str, Any], incomplete: str) -> list[str]:
    from keyhouse.cli.target import engine_at
    from keyhouse.store import stored_spaces

    async with engine_at(url, existing=True) as engine:
        return [space async for space in stored_spaces(engine) if space.startswith(incomplete)]


async def _keys(url: str, given: dict[str, Any], incomplete: str) -> list[str]:
    from keyhouse.cli.spaces import target_of_space
    from keyhouse.cli.systems import load_system
    from keyhouse.cli.target import engine_at
    from keyhouse.keys import Span

    target = target_of_space(load_system(given["system"]), given.get("space"))
    async with engine_at(url, existing=True) as engine:
        page = await target.store(engine).row_page(
            Span.prefix(incomplete), limit=_OFFERED_MAX, keys_only=True
        )
        return [row.key for row in page.rows]


# Bash


@contextmanager
def join_bash_words() -> Iterator[None]:
    """Wrap the whole program. Does nothing unless bash asks for completions."""
    if "COMP_WORDS" not in os.environ:
        yield
        return
    words, current, known = rejoin(
        _split(os.environ["COMP_WORDS"]), int(os.environ.get("COMP_CWORD", "0"))
    )
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(words), str(current)
    offers = io.StringIO()
    try:
        with redirect_stdout(offers):
            yield
    finally:
        for offer in offers.getvalue().splitlines():
            print(offer.removeprefix(known), file=sys.stdout)


def rejoin(words: list[str], current: int) -> tuple[list[str], int, str]:
    """Return the words as typed, the index of the current one, and the part of it that bash has."""
    joined: list[str] = []
    at, known, glued = None, "", False
    for index, word in enumerate(words):
        is_break = bool(re.fullmatch(r"[:=]+", word))
        if joined and (is_break or glued):
            joined[-1] += word
        else:
            joined.append(word)
        glued = is_break
        if index == current:
            at, known = len(joined) - 1, joined[-1] if is_break else joined[-1].removesuffix(word)
    return joined, len(joined) if at is None else at, known


def _split(text: str) -> list[str]:
    """Split a command line; an unclosed quote is part of its word."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
