"""`keyhouse tables`: show and change the version of a SQL engine's tables."""

from enum import StrEnum
from typing import Annotated

import typer

from keyhouse.advice import nearest
from keyhouse.cli.options import DryRun, Json, Yes, examples
from keyhouse.cli.output import show
from keyhouse.cli.terminal import confirm
from keyhouse.errors import UsageError


class Action(StrEnum):
    STATUS = "status"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"


@examples(
    "keyhouse tables status sqlite:bot.db",
    "keyhouse tables upgrade 'postgresql://host/bot?layout=rosey'",
    "keyhouse tables downgrade 'postgresql://host/bot?layout=rosey' --dry-run",
)
def tables(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="status|upgrade|downgrade",
            help="Show the version of the tables, or change it.",
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
            metavar="VERSION", help="The version to change to. [the last]", show_default=False
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Create, upgrade or drop the tables of a SQL engine.

    Uses Alembic migrations, in one transaction. An engine creates missing tables by itself;
    upgrades between versions run only with this command. `downgrade` without --to drops the tables
    with all their rows: it asks first.
    """
    from keyhouse.engines.sql import migrate

    known = [*migrate.versions(), "base" if action is Action.DOWNGRADE else "head"]
    if to is not None and to not in known:  # before a dry run reports it
        raise UsageError("Unknown version of the tables.", to=to, **nearest(to, known))
    before = migrate.current(url)
    after = before if action is Action.STATUS else _goal(action, to)
    if not dry_run:
        if action is Action.UPGRADE:
            migrate.upgrade(url, to or "head")
        elif action is Action.DOWNGRADE:
            if before is not None:
                confirm(
                    "Drop the tables and all their rows? This can't be undone."
                    if after is None
                    else f"Downgrade the tables to version {after}?",
                    yes=yes,
                )
            migrate.downgrade(url, to or "base")
        after = migrate.current(url)
    changed = {"before": before, "after": after, "dry_run": dry_run}
    show(changed, lambda _: _summary(before, after, dry_run), json=json)


def _goal(action: Action, to: str | None) -> str | None:
    from keyhouse.engines.sql import migrate

    if to is None or to in ("head", "base"):
        return migrate.versions()[-1] if action is Action.UPGRADE else None
    return to


def _summary(before: str | None, after: str | None, dry_run: bool) -> str:
    if before == after:
        return "There are no tables." if after is None else f"The tables are at version {after}."
    state = "dropped" if after is None else f"at version {after}"
    return f"The tables {'would be' if dry_run else 'are'} {state}; before: {before or 'none'}."
