"""`keyhouse put`: write one record and its derived rows."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
import typer

from keyhouse.cli.options import (
    AnyStore,
    Json,
    Key,
    Location,
    SpaceName,
    SystemName,
    Token,
    examples,
    expected_revision,
)
from keyhouse.cli.output import Part, Report, show
from keyhouse.errors import UsageError
from keyhouse.limits import VALUE_BYTES_MAX

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


@examples(
    "keyhouse put rosey theme '\"dark\"' --space trivia --store sqlite:bot.db",
    "keyhouse put rosey greeting --text 'Hello there' --space trivia --ttl 24h",
    "keyhouse put rosey theme --file theme.json --space trivia --expect 17",
)
def put(
    system: SystemName,
    key: Key,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE", help="The value as JSON. Default: --file, or standard input."
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The value is text, not JSON.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the value from this file.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="Expire after 90 (seconds), 15m, 24h or 7d.")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="Only if the record is at this revision; `absent`: only if it does not exist.",
        ),
    ] = None,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Write a record and its derived rows in one commit.

    The value must have the record's type. Ids in the key, the version and timestamps may be left
    out; private members that are left out are unchanged. Exit code 4: unexpected revision.
    """
    content = read_value(value, file, sys.stdin, as_text=text)
    written = asyncio.run(
        _put(
            system,
            key,
            Location(space, store, token),
            content,
            parse_ttl(ttl),
            expected_revision(expect),
        )
    )
    expiry = f" It expires {written.expires}." if written.expires else ""
    rows = Part("Derived rows", [(each["kind"], f"`{each['key']}`") for each in written.derived])
    at = f" at revision {written.revision}" if written.revision else ""
    where = f"Stored in the space `{written.space}`{at}.{expiry}"
    show(written, lambda _: Report(key, where, [rows]), json=json)


async def _put(
    system: str, key: str, location: Location, content: bytes, ttl: int | None, expect: Any
) -> Any:
    from keyhouse import open_engine
    from keyhouse.cli.access import open_access, put_value, select_key

    target, match = select_key(system, key, location)

    async def preflight() -> None:
        store = target.store(await open_engine("memory:"))
        await put_value(target, store, match, key, content, ttl, expect)

    async with open_access(system, target, location, preflight=preflight) as access:
        return await access.put(key, match, content, ttl, expect)


def read_value(value: str | None, file: Path | None, stdin: TextIO, *, as_text: bool) -> bytes:
    """Return the JSON from the argument, the file or standard input; `as_text` quotes it."""
    from keyhouse.cli.files import open_file

    if value is not None and file is not None:
        raise UsageError("Give the value as an argument or with --file, not both.")
    if value is not None:
        content = value.encode(errors="surrogateescape")
    elif file is not None:
        with open_file(file, "rb") as opened:
            content = opened.read(4 * VALUE_BYTES_MAX)
    elif stdin.isatty():
        raise UsageError("Give a value: as an argument, with --file, or on standard input.")
    else:
        content = stdin.buffer.read(4 * VALUE_BYTES_MAX)
        if not content and not as_text:
            raise UsageError(
                "Standard input is empty: give a value there, as an argument, or with --file."
            )
    if not as_text:
        return content
    try:
        return msgspec.json.encode(content.decode())
    except UnicodeDecodeError:
        raise UsageError("The text is not UTF-8.") from None


def parse_ttl(text: str | None) -> int | None:
    """Return a time to live in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,12})([smhd]?)", text)
    if match is None:
        raise UsageError("A TTL is a number of seconds, or like 15m, 24h or 7d.", ttl=text)
    return int(match[1]) * _UNITS[match[2]]
