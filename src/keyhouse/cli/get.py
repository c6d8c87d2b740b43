"""`keyhouse get`: one value."""

import asyncio
from typing import Any

from keyhouse.cli.options import Json, Key, SystemName, Where, examples, spread
from keyhouse.cli.output import show_json, show_value


@examples(
    "keyhouse get rosey theme --space trivia --store sqlite:bot.db",
    "keyhouse get rosey theme --space trivia --service nats://127.0.0.1:4222",
    "keyhouse get streamkit cust_12345_streamkit_notes_ideas --json",
)
@spread
def get(system: SystemName, key: Key, where: Where, json: Json = False) -> None:
    """Print the value of a key, without private members.

    A pipe gets the value alone, as one line of JSON; --json adds the revision and the expiry. Exit code 3: nothing there.
    """
    row = asyncio.run(_get(system, key, where))
    if row.unreadable:
        from keyhouse.errors import UnreadableError

        raise UnreadableError(
            "The row can't be read; `keyhouse explain` shows it.", key=key, reason=row.unreadable
        )
    if json:
        show_json(row)
        return
    expiry = f", expires {row.expires}" if row.expires else ""
    show_value(
        row.value,
        f"{row.what}, revision {row.revision}{expiry}" if row.revision else f"{row.what}{expiry}",
    )


async def _get(system: str, key: str, where: Where) -> Any:
    from keyhouse.cli.access import reached, selected_by_key
    from keyhouse.cli.rows import AbsentError

    place, _ = selected_by_key(system, key, where)
    async with reached(system, place, where) as access:
        if (row := await access.get(key)) is None:
            raise AbsentError(
                "There is no such row, or it has expired.", key=key, space=place.space
            )
        return row
