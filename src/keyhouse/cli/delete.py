"""`keyhouse delete`: a record, many of them, or a whole space; with all that follows from them."""

import asyncio
from typing import Annotated, Any

import typer

from keyhouse.cli.completion import complete_key
from keyhouse.cli.options import DryRun, Json, SystemName, Where, Yes, examples, spread
from keyhouse.cli.output import number, show_json


@examples(
    "keyhouse delete rosey theme --space trivia --store sqlite:bot.db",
    "keyhouse delete rosey --prefix game_ --space trivia --dry-run",
    "keyhouse delete rosey --whole-space --space trivia --yes",
)
@spread
def delete(
    system: SystemName,
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="The key of a record.", autocompletion=complete_key),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="All records whose keys start with this text."),
    ] = None,
    whole_space: Annotated[
        bool, typer.Option("--whole-space", help="All that the space holds.")
    ] = False,
    expect: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Only if the record is at this revision.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    where: Where,
    json: Json = False,
) -> None:
    """Delete a record with its derived rows, many, or a space.

    A record goes with all rows derived from it, in one commit; many records some at a time. It says what goes, and
    asks. Cut off, it has deleted some records whole; run again, it goes on. Exit code 3: not there.
    """
    from keyhouse.cli.removing import Choice, remove

    choice = Choice(system, key, prefix, whole_space, expect, where)
    removed = asyncio.run(remove(choice, dry_run=dry_run, yes=yes))
    if json:
        show_json(removed)
    else:
        print(_told(removed))


def _told(removed: Any) -> str:
    if removed.dry_run:
        return f"{number(removed.records, 'record')} would go, with all derived rows. Nothing was deleted."
    left = (
        f" {number(removed.left, 'record')} can't be read, and stay: see keyhouse verify."
        if removed.left
        else ""
    )
    return f"Deleted {number(removed.records, 'record')}, with all derived rows.{left}"
