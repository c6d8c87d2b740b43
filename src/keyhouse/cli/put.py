"""`keyhouse put`: one record, written through the store, so that its derived rows follow."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import Json, Key, SystemName, Where, examples, spread
from keyhouse.cli.output import Part, Report, show_json, show_reports


@examples(
    "keyhouse put rosey theme '\"dark\"' --space trivia --store sqlite:bot.db",
    "keyhouse put rosey greeting --text 'Hello there' --space trivia --ttl 24h",
    "keyhouse put rosey theme --file theme.json --space trivia --expect 17",
)
@spread
def put(
    system: SystemName,
    key: Key,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE", help="The value as JSON; without it, --file or standard input."
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The value is text, not JSON.")] = False,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Read the value from this file.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="Expire after 90, 15m, 24h or 7d.")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION", help="Only if it is at this revision; `absent`: only if it is new."
        ),
    ] = None,
    *,
    where: Where,
    json: Json = False,
) -> None:
    """Write a record, and the rows derived from it, in one commit.

    The value must have the record's type. What the key or the store says may be left out of it: ids that stand in the key,
    version and times. Private members that are left out stay as they are. Exit code 4: not at the revision expected.
    """
    from keyhouse.cli.value import expected, read_value, seconds

    content = read_value(value, file, sys.stdin, as_text=text)
    written = asyncio.run(_put(system, key, where, content, seconds(ttl), expected(expect)))
    if json:
        show_json(written)
        return
    expiry = f" It expires {written.expires}." if written.expires else ""
    rows = Part(
        "Rows derived from it", [(each["kind"], f"`{each['key']}`") for each in written.derived]
    )
    at = f" at revision {written.revision}" if written.revision else ""
    show_reports([Report(key, f"Stored in the space `{written.space}`{at}.{expiry}", [rows])])


async def _put(
    system: str, key: str, where: Where, content: bytes, ttl: int | None, expect: Any
) -> Any:
    from keyhouse import open_engine
    from keyhouse.cli.access import reached, selected_by_key
    from keyhouse.cli.writing import put_value

    place, found = selected_by_key(system, key, where)

    async def rehearse() -> None:
        await put_value(
            place, place.store(await open_engine("memory:")), found, key, content, ttl, expect
        )

    async with reached(system, place, where, rehearse=rehearse) as access:
        return await access.put(key, found, content, ttl, expect)
