"""`keyhouse sweep`: what has expired, off the disk."""

import asyncio
from typing import Any

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable


@examples("keyhouse sweep --store sqlite:bot.db", "keyhouse sweep rosey --data data --json")
def sweep(
    system: SystemOrNone = None, store: StoreUrl = None, data: DataFolder = None, json: Json = False
) -> None:
    """Remove the rows that have expired, while others write.

    Of all spaces, a few at a time. They are invisible already: this gives their room back, and prunes what is kept for
    watches. A running service does it by itself.
    """
    from keyhouse.cli.output import number, show_json

    with stoppable("What was removed is removed. Run it again for the rest."):
        rows = asyncio.run(_sweep(system, store, data))
    if json:
        show_json({"rows": rows})
    else:
        print(f"Removed {number(rows, 'expired row')}.")


async def _sweep(system: str | None, store: str | None, data: Any) -> int:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.store import sweep

    with Line() as line:
        async with opened(url_of(system, store, data), existing=True) as engine:
            return await sweep(
                engine, on_progress=lambda rows: line.say(f"{number(rows, 'row')} removed")
            )
