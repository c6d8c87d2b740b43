"""`keyhouse get`: one value."""

import asyncio
from typing import Any

from keyhouse.cli.options import DataFolder, Json, Key, SpaceName, StoreUrl, SystemName, examples
from keyhouse.cli.output import show_json, show_value


@examples(
    "keyhouse get rosey theme --space trivia --store sqlite:bot.db",
    "keyhouse get streamkit cust_12345_streamkit_notes_ideas --json",
)
def get(
    system: SystemName,
    key: Key,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Print the value of a key, without private members.

    A pipe gets the value alone, as one line of JSON; --json adds the revision and the expiry. Exit code 3: nothing there.
    """
    row = asyncio.run(_get(system, key, space, store, data))
    if row.unreadable:
        from keyhouse.errors import UnreadableError

        raise UnreadableError("The row can't be read; `keyhouse explain` shows it.", key=key, reason=row.unreadable)
    if json:
        show_json(row)
        return
    expiry = f", expires {row.expires}" if row.expires else ""
    show_value(row.value, f"{row.what}, revision {row.revision}{expiry}")


async def _get(system: str, key: str, space: str | None, store: str | None, data: Any) -> Any:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.place import place_of_key, url_of
    from keyhouse.cli.rows import AbsentError, shown
    from keyhouse.cli.target import target

    place, _ = place_of_key(target(system), key, space)
    async with opened(url_of(system, store, data), existing=True) as engine:
        [row] = await engine.read(place.space, (key,))
        if row is None:
            raise AbsentError("There is no such row, or it has expired.", key=key, space=place.space)
        return shown(place.schema, place.space, row)
