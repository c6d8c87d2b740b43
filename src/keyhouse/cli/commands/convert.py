"""`keyhouse convert`: give the keys of existing rows another prefix, or none."""

import asyncio
from typing import Annotated

import msgspec
import typer

from keyhouse.cli.options import Json, SpaceNames, StoreName, SystemName, Yes, examples
from keyhouse.cli.output import Report, number, show
from keyhouse.cli.terminal import ProgressLine, confirm, interruptible

CONFLICTS = 1
"""Exit code when a row was left at its old key."""


class Converted(msgspec.Struct, frozen=True):
    """One space: the rows that have new keys, and the keys that were left."""

    space: str
    moved: int
    conflicts: list[str]


@examples(
    "keyhouse convert recipes:BOX --to 'tenant:{tenant}:' --store sqlite:box.db",
    "keyhouse convert 'recipes:BOX@tenant:{tenant}:' --to '' --store sqlite:b.db",
)
def convert(
    system: SystemName,
    to: Annotated[
        str, typer.Option("--to", metavar="PREFIX", help="The text before all new keys; '': none.")
    ],
    space: SpaceNames = None,
    yes: Yes = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Give the keys of all rows another prefix, or none.

    SYSTEM@PREFIX names the prefix that they have. Stop the programs that use the store first. If it
    is interrupted, run it again: it continues, after a kill within 15 seconds. Rows whose new key
    has a different value are left and listed. Exit code 1: some were left.
    """
    with interruptible("Run the same command again: it continues."):
        done = asyncio.run(_convert(system, to, store, space, yes))
    show(done, _report, json=json)
    if any(each.conflicts for each in done):
        raise typer.Exit(CONFLICTS)


def _report(done: list[Converted]) -> Report:
    moved = sum(each.moved for each in done)
    left = [
        f"Left, because the new key has a different value: {each.space}, {key}"
        for each in done
        for key in each.conflicts
    ]
    text = f"{number(len(done), 'space')}, {number(moved, 'row')} moved."
    return Report("Converted", "\n\n".join([text, *left]))


async def _convert(
    name: str, to: str, store: str | None, spaces: list[str] | None, yes: bool
) -> list[Converted]:
    from keyhouse.cli.spaces import targets
    from keyhouse.cli.systems import load_system
    from keyhouse.cli.target import engine_at, store_url
    from keyhouse.store import convert_prefix

    system = load_system(name)
    plain = load_system(name.partition("@")[0])
    schemas = dict(zip(system.schemas, (plain.under(to) if to else plain).schemas, strict=True))
    done: list[Converted] = []
    with ProgressLine() as line:
        async with engine_at(store_url(name, store), existing=True) as engine:
            found = [target async for target in targets(system, engine, spaces)]
            if found:
                question = f"Give all rows of {number(len(found), 'space')} new keys?"
                confirm(f"{question} Programs that use the store must be stopped.", yes=yes)
            for target in found:

                def report(rows: int, space: str = target.space) -> None:
                    line.update(f"{space}: {number(rows, 'row')} moved")

                converted = await convert_prefix(
                    engine,
                    target.space,
                    target.schema,
                    schemas[target.schema],
                    on_progress=report,
                )
                done.append(Converted(target.space, converted.moved, converted.conflicts))
    return done
