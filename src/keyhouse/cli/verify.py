"""`keyhouse verify`: does every derived row agree with its record? What does not is shown, and repaired when asked."""

import asyncio
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, JsonLines, StoreUrl, SystemName, Yes, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import Spaces, stoppable

FOUND = 5
"""The exit code when something is not as it should be, and was not repaired."""

_DROPS = "Rows that can't be read, or that no template knows, will be deleted for good. Go on?"


@examples(
    "keyhouse verify audiobooks --store sqlite:library.db",
    "keyhouse verify audiobooks --space main --repair --store sqlite:library.db",
)
def verify(
    system: SystemName,
    space: Spaces = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what follows from records.")
    ] = False,
    drop: Annotated[
        bool,
        typer.Option(
            "--drop", help="Delete rows that can't be read, or are of no template. It asks."
        ),
    ] = False,
    yes: Yes = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """Find the rows that are missing, wrong or left over; mend them.

    It compares every row with the records, while others write. With --repair, each is repaired in one commit with what it
    was compared with. With --json: a line for each finding, and a last one with the sums. Exit code 5: something was
    found, and is not repaired.
    """
    from keyhouse.cli.asking import ask

    if drop:
        ask(_DROPS, yes=yes)
    with stoppable("What was repaired stays repaired. Run it again to look at the rest."):
        left = asyncio.run(_verify(system, store, data, space, repair, drop, json))
    if left:
        raise typer.Exit(FOUND)


async def _verify(
    system: str,
    store: str | None,
    data: Any,
    spaces: list[str] | None,
    repair: bool,
    drop: bool,
    json: bool,
) -> int:
    from keyhouse.cli.findings import Findings
    from keyhouse.cli.housing import places, strangers
    from keyhouse.cli.opening import opened
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.cli.target import target
    from keyhouse.store import verify

    chosen, findings = target(system), Findings(as_json=json)
    with Line() as line:
        async with opened(url_of(system, store, data), existing=True) as engine:
            async for place in places(chosen, engine, spaces):
                findings.enter(place.space)

                def seen(rows: int, space: str = place.space) -> None:
                    findings.read(rows)
                    line.say(
                        f"{space}: {number(findings.rows, 'row')}, {number(findings.count, 'finding')}"
                    )

                async for found in verify(
                    place.store(engine), repair=repair, drop=drop, on_progress=seen
                ):
                    line.clear()
                    findings.add(found)
            others = await strangers(chosen, engine) if not spaces else []
    findings.end(others)
    return findings.left
