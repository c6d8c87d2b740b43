"""`keyhouse restore`: make a store equal to a backup, on any engine, and verify it."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from keyhouse.cli.files import create_data_folder, open_file, require_unlocked
from keyhouse.cli.options import DryRun, Json, StoreName, SystemName, Yes, examples
from keyhouse.cli.output import Report, number, show
from keyhouse.cli.systems import check_system
from keyhouse.cli.target import data_folder, engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, confirm, interruptible
from keyhouse.clock import SystemClock
from keyhouse.engines.url import public_url
from keyhouse.schema import MILLISECONDS
from keyhouse.store import BackupReader, MoveProgress, read_backup
from keyhouse.store import restore as restore_store


class Plan(msgspec.Struct, frozen=True):
    """The contents of a backup. A plain export has no `made` and no `moment`."""

    rows: int
    spaces: int
    made: str | None
    moment: str | None
    sha256: str


@examples(
    "keyhouse restore audiobooks library.jsonl --store sqlite:new.db",
    "keyhouse restore audiobooks library.jsonl --store postgresql://host/library",
    "keyhouse restore rosey bot.jsonl --store sqlite:bot.db --replace",
)
def restore(
    system: SystemName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Delete other rows that the store holds. Asks for confirmation."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Make a store equal to a backup, and verify it.

    The whole file is checked before the first row is written, and counts and digests are compared
    at the end. A store with other rows is rejected without --replace. If interrupted, run it again:
    it resumes. Stop programs that write to the store first: a running `keyhouse serve` on its
    folder is detected.
    """
    check_system(system)
    with interruptible(
        "The restore is incomplete, and the store must not be used."
        " Run the same command again: it resumes."
    ):
        done = asyncio.run(
            _restore(
                store_url(system, store),
                file,
                replace,
                data_folder(store),
                dry_run=dry_run,
                yes=yes,
            )
        )
    show(done, _report, json=json)


def _report(done: Any) -> Report:
    if isinstance(done, Plan):
        what = f"{number(done.rows, 'row')} of {number(done.spaces, 'space')}"
        return Report("To restore", f"{what}. The file is valid; nothing was written.")
    what = f"{number(done.rows, 'row')} of {number(len(done.spaces), 'space')}"
    return Report("Restored", f"{what}, identical in file and store; {done.written:,} written.")


async def _restore(
    url: str, path: Path, replace: bool, folder: Path | None, *, dry_run: bool, yes: bool
) -> Any:
    with ProgressLine() as line, open_file(path, "rb") as file:
        backup = read_backup(
            file, SystemClock(), lambda rows: line.update(f"checking: {number(rows, 'row')}")
        )
        plan = plan_of(backup)
        if dry_run:
            return plan
        if replace:
            line.clear()
            confirm(_question(plan, public_url(url)), yes=yes)

        def report(progress: MoveProgress) -> None:
            rows = f"{progress.rows:,} of {number(plan.rows, 'row')}"
            line.update(f"{progress.phase} {progress.space}: {rows}")

        if folder is not None:
            create_data_folder(folder)
        with require_unlocked(url):
            async with engine_at(url) as engine:
                return await restore_store(engine, backup, replace=replace, on_progress=report)


def plan_of(backup: BackupReader) -> Plan:
    trailer = backup.trailer
    made = None if trailer.made is None else MILLISECONDS.format(trailer.made)
    return Plan(trailer.rows, len(backup.offsets), made, trailer.moment, trailer.sha256)


def _question(plan: Plan, store: str) -> str:
    made = f" of {plan.made}" if plan.made else ""
    what = f"{number(plan.rows, 'row')} of {number(plan.spaces, 'space')}"
    return f"Replace {store} by the backup{made} ({what})? Its other rows are deleted."
