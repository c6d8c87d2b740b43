"""`keyhouse get`: print one value."""

import asyncio
from typing import Any

from keyhouse.cli.options import (
    AnyStore,
    Json,
    Key,
    Location,
    SpaceName,
    SystemName,
    Token,
    examples,
)
from keyhouse.cli.output import show_json, show_value


@examples(
    "keyhouse get rosey theme --space trivia --store sqlite:bot.db",
    "keyhouse get rosey theme --space trivia --store nats://127.0.0.1:4222",
    "keyhouse get streamkit cust_12345_streamkit_notes_ideas --json",
)
def get(
    system: SystemName,
    key: Key,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Print the value of a key, without private members.

    In a pipe, the value is one line of JSON; --json adds its revision and expiry. Exit code 3: not
    found.
    """
    row = asyncio.run(_get(system, key, Location(space, store, token)))
    if row.unreadable:
        from keyhouse.errors import UnreadableError

        raise UnreadableError(
            "The row can't be decoded; `keyhouse explain` shows it.", key=key, reason=row.unreadable
        )
    if json:
        show_json(row)
        return
    expiry = f", expires {row.expires}" if row.expires else ""
    revision = f", revision {row.revision}" if row.revision else ""
    show_value(row.value, f"{row.what}{revision}{expiry}")


async def _get(system: str, key: str, location: Location) -> Any:
    from keyhouse.cli.access import open_access, select_key
    from keyhouse.errors import NotFoundError

    target, _ = select_key(system, key, location)
    async with open_access(system, target, location) as access:
        if (row := await access.get(key)) is None:
            raise NotFoundError("No row at this key, or it expired.", key=key, space=target.space)
        return row
