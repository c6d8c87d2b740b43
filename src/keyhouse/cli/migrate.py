"""`keyhouse migrate`: the rows of every space, brought to the version that this code writes."""

import asyncio
from typing import Any

import typer

from keyhouse.cli.options import DataFolder, DryRun, Json, StoreUrl, SystemName, Yes, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import Spaces, stoppable

PENDING = 5
"""The exit code of a dry run that found something to do."""


@examples(
    "keyhouse migrate audiobooks --store sqlite:library.db --dry-run",
    "keyhouse migrate audiobooks --store sqlite:library.db --yes",
)
def migrate(
    system: SystemName,
    space: Spaces = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Apply the migrations that spaces have not had, in order.

    It says what each one did. First it names the spaces that are behind, and asks: there is no way back but a backup.
    Killed, it is run again and goes on where its last commit left it. Exit code 5: a dry run found something to do.
    """
    from keyhouse.cli.migrating import report
    from keyhouse.cli.output import show_json, show_reports

    with stoppable("Run the same command again: it goes on where its last commit left it."):
        done = asyncio.run(_migrate(system, store, data, space, dry_run, yes))
    if json:
        show_json(done)
    else:
        show_reports([report(done)])
    if dry_run and done.behind:
        raise typer.Exit(PENDING)


async def _migrate(
    system: str, store: str | None, data: Any, spaces: list[str] | None, dry_run: bool, yes: bool
) -> Any:
    from keyhouse.cli.asking import ask
    from keyhouse.cli.migrating import migrate_all, pending, question
    from keyhouse.cli.opening import opened
    from keyhouse.cli.place import url_of
    from keyhouse.cli.target import target

    with Line() as line:
        async with opened(url_of(system, store, data), existing=True) as engine:
            found = await pending(target(system), engine, spaces)
            if found.behind and not dry_run:
                ask(question(found), yes=yes)
            return await migrate_all(found, engine, dry_run=dry_run, say=line.say)
