"""`keyhouse restore`: a store made to be what a backup says, on whatever engine, and proved to be it."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, DryRun, Json, StoreUrl, Yes, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable


@examples(
    "keyhouse restore --store sqlite:new.db --from library.jsonl",
    "keyhouse restore --store postgresql://host/library --from library.jsonl",
    "keyhouse restore --store sqlite:library.db --from library.jsonl --replace",
)
def restore(
    system: SystemOrNone = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="The backup.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="The store may hold other rows: they are deleted. It asks."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Make a store hold what a backup holds, and prove it.

    Counts and digests of both must be the same at the end. The whole file is checked before the first row is
    written. A store that holds other rows is refused, unless --replace says that they may go. Cut off, it is run again
    and goes on. Programs that write to the store must be stopped: a `keyhouse serve` on its folder is refused.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports
    from keyhouse.errors import UsageError

    if source is None:
        raise UsageError("Name the backup: --from FILE.")
    with stoppable(
        "The restore has not ended, and the store is not to be used. Run the same command again: it goes on."
    ):
        moved = asyncio.run(_restore(system, store, data, source, replace, dry_run, yes))
    if json:
        show_json(moved)
    elif dry_run:
        text = f"{number(moved.rows, 'row')} of {number(moved.spaces, 'space')}. The file is whole; nothing was written."
        show_reports([Report("To restore", text)])
    else:
        text = f"{number(moved.rows, 'row')} of {number(len(moved.spaces), 'space')}, the same in file and store"
        show_reports([Report("Restored", f"{text}; {moved.written:,} written.")])


async def _restore(
    system: str | None,
    store: str | None,
    data: Any,
    source: Path,
    replace: bool,
    dry_run: bool,
    yes: bool,
) -> Any:
    from keyhouse import SystemClock
    from keyhouse.cli.asking import ask
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.cli.restoring import Plan, plan_of, question, served_by_nobody
    from keyhouse.engines.registry import public_url
    from keyhouse.store import MoveProgress, read_backup, restore

    url = url_of(system, store, data)
    with Line() as line, opened_file(source, "rb") as file:
        kept = read_backup(
            file, SystemClock(), lambda rows: line.say(f"checking: {number(rows, 'row')}")
        )
        plan: Plan = plan_of(kept)
        if dry_run:
            return plan
        if replace:
            line.clear()
            ask(question(plan, public_url(url)), yes=yes)

        def report(progress: MoveProgress) -> None:
            line.say(
                f"{progress.phase} {progress.space}: {progress.rows:,} of {number(plan.rows, 'row')}"
            )

        with served_by_nobody(url):
            async with opened(url) as engine:
                return await restore(engine, kept, replace=replace, on_progress=report)
