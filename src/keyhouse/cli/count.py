"""`keyhouse count`: how many rows there are."""

import asyncio

from keyhouse.cli.options import Json, Selection, examples, spread
from keyhouse.cli.output import show_json


@examples(
    "keyhouse count rosey --space trivia --store sqlite:bot.db",
    "keyhouse count audiobooks --only book --space main",
)
@spread
def count(selection: Selection, json: Json = False) -> None:
    """Count the rows of a space, by reading every key."""
    space, rows = asyncio.run(_count(selection))
    if json:
        show_json(
            {"space": space, "prefix": selection.prefix, "only": selection.only, "rows": rows}
        )
    else:
        print(rows)


async def _count(selection: Selection) -> tuple[str, int]:
    from keyhouse.cli.access import reached, selected

    place = selected(selection)
    async with reached(selection.system, place, selection) as access:
        return place.space, await access.count(selection)
