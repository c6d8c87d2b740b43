"""`keyhouse tables`: the tables of a SQL database, which version they are, and from one to another."""

from enum import StrEnum
from typing import Annotated

import typer

from keyhouse.cli.asking import ask
from keyhouse.cli.options import DryRun, Json, Yes, examples
from keyhouse.cli.output import show_json


class Way(StrEnum):
    CURRENT = "current"
    UP = "up"
    DOWN = "down"


@examples(
    "keyhouse tables current sqlite:bot.db",
    "keyhouse tables up 'postgresql://owner@host/bot?layout=rosey'",
    "keyhouse tables down 'postgresql://owner@host/bot?layout=rosey' --dry-run",
)
def tables(
    way: Annotated[
        Way,
        typer.Argument(
            metavar="current|up|down",
            help="`current` says which version is there; `up` and `down` change it.",
        ),
    ],
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="A SQL engine: sqlite:data.db or postgresql://user@host/database"
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="Where to go; without it, all the way.", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make, upgrade or drop the tables of a SQL engine.

    It works by Alembic migrations. An engine makes its tables by itself where there are none; between versions, this
    command says when. All of it happens, or nothing. `down` without --to drops the tables with every row in them: it
    asks.
    """
    from keyhouse.engines.sql import migrate
    from keyhouse.errors import UsageError

    known = [*migrate.versions(), "base" if way is Way.DOWN else "head"]
    if to is not None and to not in known:  # before a dry run says that it would go there
        raise UsageError("There is no such version of the tables.", to=to, known=known)
    before = migrate.current(url)
    after = before if way is Way.CURRENT else _goal(way, to)
    if not dry_run:
        if way is Way.UP:
            migrate.upgrade(url, to or "head")
        elif way is Way.DOWN:
            if before is not None:
                ask(
                    "This drops the tables, and every row in them. Go on?"
                    if after is None
                    else "Go on?",
                    yes=yes,
                )
            migrate.downgrade(url, to or "base")
        after = migrate.current(url)
    if json:
        show_json({"before": before, "after": after, "dry_run": dry_run})
    else:
        print(_told(before, after, dry_run))


def _goal(way: Way, to: str | None) -> str | None:
    from keyhouse.engines.sql import migrate

    if to is None or to in ("head", "base"):
        return migrate.versions()[-1] if way is Way.UP else None
    return to


def _told(before: str | None, after: str | None, dry_run: bool) -> str:
    if before == after:
        return "There are no tables." if after is None else f"The tables are at version {after}."
    would = "would be" if dry_run else "are"
    return f"The tables {would} {'gone' if after is None else f'at version {after}'}; before: {before or 'none'}."
