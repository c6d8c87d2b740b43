"""`keyhouse delete`: delete a record, many records, or a whole space, with their derived rows."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated

import msgspec
import typer

from keyhouse.cli.completion import complete_key
from keyhouse.cli.options import (
    AnyStore,
    DryRun,
    Json,
    Location,
    SpaceName,
    SystemName,
    Token,
    Yes,
    examples,
    expected_revision,
)
from keyhouse.cli.output import number, show
from keyhouse.cli.spaces import Target, target_of_space
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, find_service_url, store_url
from keyhouse.cli.terminal import ProgressLine, confirm
from keyhouse.engine import Engine
from keyhouse.engines.url import public_url
from keyhouse.errors import NotFoundError, UsageError
from keyhouse.keys import Span
from keyhouse.store import BulkDelete, BulkDeleteResult

_KEYS_SHOWN = 3


class Deletion(msgspec.Struct, frozen=True):
    """The arguments of the command."""

    system: str
    key: str | None
    prefix: str | None
    whole_space: bool
    forget: bool
    expect: str | None
    location: Location


class Deleted(msgspec.Struct, frozen=True):
    """`left`: records that could not be read, and were not deleted. `forgotten`: no trace is left
    of the space."""

    space: str
    records: int
    left: int = 0
    dry_run: bool = False
    forgotten: bool = False


@examples(
    "keyhouse delete rosey theme --space trivia --store sqlite:bot.db",
    "keyhouse delete rosey --prefix game_ --space trivia --dry-run",
    "keyhouse delete rosey --whole-space --space trivia --yes",
    "keyhouse delete board:BOARD --forget --space ann --store keyhouse-data",
)
def delete(
    system: SystemName,
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="The key of a record.", autocompletion=complete_key),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Delete all records whose keys start with this text."),
    ] = None,
    whole_space: Annotated[
        bool, typer.Option("--whole-space", help="Delete every row of the space.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Erase the whole space without a trace, also from the change log and the files.",
        ),
    ] = False,
    expect: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Only if the record is at this revision.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Delete records with their derived rows, or a whole space.

    A record and its derived rows are deleted in one commit; many records in several. Asks for
    confirmation. If interrupted, some records are deleted completely: run it again for the rest.
    Exit code 3: not found.
    """
    location = Location(space, store, token)
    deletion = Deletion(system, key, prefix, whole_space or forget, forget, expect, location)
    deleted = asyncio.run(_delete(deletion, dry_run=dry_run, yes=yes))
    show(deleted, _summary, json=json)


def _summary(deleted: Deleted) -> str:
    records = number(deleted.records, "record")
    if deleted.forgotten:
        return f"Erased the space {deleted.space}: {records}, and every trace of it."
    if deleted.dry_run:
        return f"Would delete {records} and all derived rows. Nothing was deleted."
    left = (
        f" {number(deleted.left, 'unreadable record')} left: see keyhouse verify."
        if deleted.left
        else ""
    )
    return f"Deleted {records} and all derived rows.{left}"


async def _delete(deletion: Deletion, *, dry_run: bool, yes: bool) -> Deleted:
    """Change nothing before the user confirms."""
    chosen = [deletion.key is not None, deletion.prefix is not None, deletion.whole_space]
    if chosen.count(True) != 1:
        raise UsageError("Name what to delete: a KEY, --prefix TEXT, --whole-space, or --forget.")
    if deletion.expect is not None and deletion.key is None:
        raise UsageError("--expect needs a KEY.")
    if deletion.key is not None:
        return await _delete_one(deletion, deletion.key, dry_run=dry_run, yes=yes)
    if (service := find_service_url(deletion.location.store)) is not None:
        raise UsageError(
            "A service deletes one record at a time: give a KEY, or the URL of the engine or the"
            " data folder as --store.",
            service=public_url(service),
        )
    url = store_url(deletion.system, deletion.location.store)
    target = target_of_space(load_system(deletion.system), deletion.location.space)
    async with engine_at(url, existing=True) as engine:
        return await _delete_many(
            deletion, target, engine, public_url(url), dry_run=dry_run, yes=yes
        )


async def _delete_one(deletion: Deletion, key: str, *, dry_run: bool, yes: bool) -> Deleted:
    from keyhouse.cli.access import check_writable, open_access, select_key

    target, match = select_key(deletion.system, key, deletion.location)
    check_writable(target, match, key)
    async with open_access(deletion.system, target, deletion.location) as access:
        if await access.get(key) is None:
            raise NotFoundError("No row at this key, or it expired.", key=key, space=target.space)
        if dry_run:
            return Deleted(target.space, 1, dry_run=True)
        where = f"the space {target.space} of {access.location}"
        confirm(f"Delete {key} and its derived rows in {where}?", yes=yes)
        existed = await access.delete(key, match, expected_revision(deletion.expect))
        return Deleted(target.space, int(existed))


async def _delete_many(
    deletion: Deletion, target: Target, engine: Engine, location: str, *, dry_run: bool, yes: bool
) -> Deleted:
    from keyhouse.cli.access import reject_newer
    from keyhouse.cli.rows import prefix_span

    span = prefix_span(deletion.prefix) if deletion.prefix is not None else Span()
    await reject_newer(target.store(engine))
    with ProgressLine() as line:
        job = BulkDelete(
            target.schema,
            engine,
            target.space,
            lambda records: line.update(f"{number(records, 'record')} deleted"),
        )
        count, first = 0, list[str]()
        async for row, _ in job.records(span):
            count += 1
            first += [row.key] if count <= _KEYS_SHOWN else []
        if dry_run or (not count and not deletion.whole_space):
            return Deleted(target.space, count, dry_run=dry_run)
        records = (
            f"{number(count, 'record')} ({', '.join(first)}{', …' if count > _KEYS_SHOWN else ''})"
        )
        where = f"the space {target.space} of {location}"
        verb = "Erase" if deletion.forget else "Delete"
        confirm(
            f"{verb} everything in {where}: {records if count else 'no record'},"
            " and every other row?"
            if deletion.whole_space
            else f"Delete {records} and their derived rows in {where}?",
            yes=yes,
        )
        if deletion.forget:
            await target.store(engine).forget()
            return Deleted(target.space, count, forgotten=True)
        done = await _run(job, job.empty() if deletion.whole_space else job.run(span), line)
    return Deleted(target.space, done.records, done.left)


async def _run(
    job: BulkDelete, work: Coroutine[None, None, BulkDeleteResult], line: ProgressLine
) -> BulkDeleteResult:
    """Run the job. On Ctrl-C, finish the commit in flight and report exactly what was deleted."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        job.stop()
        done = await running
        line.print(
            f"{number(done.records, 'record')} deleted with all derived rows; the rest is "
            "unchanged. Run the same command again for the rest."
        )
        raise
