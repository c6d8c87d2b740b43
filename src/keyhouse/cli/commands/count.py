"""`keyhouse count`: count the rows of a space."""

import asyncio

from keyhouse.cli.options import Json, Selection, examples, renamed, spread
from keyhouse.cli.output import show_json


@renamed("--only", "--type")
@examples(
    "keyhouse count rosey --space trivia --store sqlite:bot.db",
    "keyhouse count audiobooks --type book --space main",
)
@spread
def count(selection: Selection, json: Json = False) -> None:
    """Count the rows of a space. Reads every key."""
    space, rows = asyncio.run(_count(selection))
    if json:
        show_json(
            {"space": space, "prefix": selection.prefix, "type": selection.type, "rows": rows}
        )
    else:
        print(rows)


async def _count(selection: Selection) -> tuple[str, int]:
    from keyhouse.cli.access import open_access, select_space

    target = select_space(selection)
    async with open_access(selection.system, target, selection) as access:
        return target.space, await access.count(selection)
