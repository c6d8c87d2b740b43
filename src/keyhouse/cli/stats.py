"""`keyhouse stats`: what a store holds, in rows and bytes."""

import asyncio
from typing import Any

from keyhouse.cli.options import DataFolder, Json, SpaceName, StoreUrl, SystemName, examples
from keyhouse.cli.output import Part, Report, number, show_json, show_reports

_SPACES_SHOWN = 20


@examples(
    "keyhouse stats rosey --store sqlite:bot.db",
    "keyhouse stats audiobooks --space main --json",
)
def stats(
    system: SystemName,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Count rows and bytes per space and per template.

    It reads every row, while others write. Bytes are those of keys and values: what an engine needs on disk besides
    is its own.
    """
    counted = asyncio.run(_stats(system, space, store, data))
    if json:
        show_json(counted)
        return
    spaces = sorted(counted.spaces, key=lambda each: -each.bytes)
    more = len(spaces) - _SPACES_SHOWN
    largest = [
        (f"`{each.space}`", number(each.rows, "row"), _size(each.bytes))
        for each in spaces[:_SPACES_SHOWN]
    ]
    largest += [(f"and {more:,} more", "", "")] if more > 0 else []
    templates = [
        (
            f"`{each.template}`",
            each.what,
            number(each.rows, "row"),
            _size(each.bytes),
            _expiring(each.expiring),
        )
        for each in counted.templates
    ]
    text = (
        f"{number(counted.rows, 'row')} in {number(len(spaces), 'space')}, {_size(counted.bytes)}."
    )
    show_reports(
        [Report(system, text, [Part("Spaces", [*largest]), Part("Templates", [*templates])])]
    )


async def _stats(system: str, space: str | None, store: str | None, data: Any) -> Any:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.place import url_of
    from keyhouse.cli.progress import Line
    from keyhouse.cli.tally import tally
    from keyhouse.cli.target import target

    chosen = target(system)
    with Line() as line:
        async with opened(url_of(system, store, data), existing=True) as engine:
            return await tally(chosen, engine, space, lambda rows: line.say(number(rows, "row")))


def _size(count: int) -> str:
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1_024 and len(units) > 1:
        size /= 1_024
        units.pop(0)
    return f"{size:,.0f} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"


def _expiring(rows: int) -> str:
    return f"{rows:,} expire" if rows else ""
