"""`keyhouse migrate`: apply pending migrations to every space."""

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from keyhouse.cli.options import DryRun, Json, SpaceNames, StoreName, SystemName, Yes, examples
from keyhouse.cli.output import Part, Report, number, show
from keyhouse.cli.spaces import Target, targets
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, store_option, store_url
from keyhouse.cli.terminal import ProgressLine, confirm, interruptible
from keyhouse.engine import Engine
from keyhouse.errors import EngineError, KeyhouseError, UsageError
from keyhouse.schema import Migration
from keyhouse.service.system import System
from keyhouse.store import build_indexes, declared_indexes, unbuilt_indexes, version
from keyhouse.store import migrate as migrate_store

MIGRATIONS_PENDING = 5
"""Exit code of a dry run that found pending migrations, or indexes to build."""

MIGRATION_FAILED = 1
"""Exit code if a space could not be migrated."""

_SHOWN = 20


class Behind(msgspec.Struct, frozen=True):
    """A space with pending migrations: its version, and the version of this code."""

    space: str
    version: int
    newest: int


class Step(msgspec.Struct, frozen=True):
    """One migration of one space: records read, and rows written (or to be written)."""

    space: str
    id: int
    description: str
    records: int
    rows: int
    duration_ms: int


class Built(msgspec.Struct, frozen=True):
    """A derived row that was built in one space, and the records that were read for it."""

    space: str
    index: str
    records: int


class Unbuilt(msgspec.Struct, frozen=True):
    """A derived row that one space lacks for some records."""

    space: str
    index: str


class Failed(msgspec.Struct, frozen=True):
    """A space that could not be migrated, and the reason."""

    space: str
    reason: str


class Migrated(msgspec.Struct, frozen=True):
    """`unbuilt` leaves out spaces with pending migrations: these may build their indexes. Of a dry
    run that would `reindex`, it has all derived rows."""

    spaces: int
    behind: list[Behind]
    steps: list[Step]
    dry_run: bool
    indexes: list[Built] = []
    unbuilt: list[Unbuilt] = []
    failed: list[Failed] = []
    reindex: bool = False


class Pending(msgspec.Struct, frozen=True):
    spaces: int
    behind: list[Behind]
    targets: list[Target]


@examples(
    "keyhouse migrate audiobooks --store sqlite:library.db --dry-run",
    "keyhouse migrate audiobooks --store sqlite:library.db --yes",
    "keyhouse migrate recipes:BOX --store keyhouse-data --reindex",
)
def migrate(
    system: SystemName,
    space: SpaceNames = None,
    dry_run: DryRun = False,
    reindex: Annotated[
        bool,
        typer.Option("--reindex", help="Also build the derived rows of all records again."),
    ] = False,
    yes: Yes = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Apply pending migrations to each space, in order.

    Lists the spaces to migrate and asks first: only a backup can undo it. If it is interrupted or
    killed, run it again: it resumes after its last commit. A space whose step fails is reported,
    and the others are migrated. Exit code 1: a space failed. Exit code 5: a dry run found pending
    migrations, or indexes that are new in the declaration and not built.
    """
    with interruptible("Run the same command again: it resumes after its last commit."):
        done = asyncio.run(_migrate(system, store, space, dry_run, yes, reindex))
    again = f"keyhouse migrate {system}{store_option(store)} --reindex"
    show(done, lambda done: _report(done, again), json=json)
    if done.failed:
        raise typer.Exit(MIGRATION_FAILED)
    if dry_run and (done.behind or done.unbuilt):
        raise typer.Exit(MIGRATIONS_PENDING)


async def _migrate(
    system: str,
    store: str | None,
    spaces: list[str] | None,
    dry_run: bool,
    yes: bool,
    reindex: bool,
) -> Migrated:
    loaded = load_system(system)
    with ProgressLine() as line:
        async with engine_at(store_url(system, store), existing=True) as engine:
            pending = await find_pending(loaded, engine, spaces)
            if pending.behind and not dry_run:
                confirm(_question(pending), yes=yes)
            done = await _apply(pending, engine, dry_run=dry_run, on_progress=line.update)
            failed = [each.space for each in done.failed]
            if reindex and dry_run:
                every = [
                    Unbuilt(target.space, derived.template.text)
                    async for target in targets(loaded, engine, spaces)
                    for _, derived in declared_indexes(target.store(engine))
                ]
                return msgspec.structs.replace(done, unbuilt=every, reindex=True)
            if reindex:
                built = await _reindex(loaded, engine, spaces, line.update, skip=failed)
                done = msgspec.structs.replace(done, indexes=built)
            skip = [each.space for each in pending.behind] if dry_run else failed
            unbuilt = await find_unbuilt(loaded, engine, spaces, skip=skip)
            return msgspec.structs.replace(done, unbuilt=unbuilt)


async def find_pending(system: System, engine: Engine, spaces: Sequence[str] | None) -> Pending:
    """Return the spaces with pending migrations; NewerError if a space is newer than this code."""
    count, behind, pending = 0, list[Behind](), list[Target]()
    async for target in targets(system, engine, spaces):
        count += 1
        if (at := await version(target.store(engine))) < target.schema.version:
            behind.append(Behind(target.space, at, target.schema.version))
            pending.append(target)
    return Pending(count, behind, pending)


async def find_unbuilt(
    system: System,
    engine: Engine,
    spaces: Sequence[str] | None,
    *,
    skip: Sequence[str] = (),
    may_guess: bool = True,
) -> list[Unbuilt]:
    """Return the derived rows that spaces lack for some records, except in those to `skip`. See
    `unbuilt_indexes` for `may_guess`."""
    return [
        Unbuilt(target.space, derived.template.text)
        async for target in targets(system, engine, spaces)
        if target.schema.meta is not None and target.space not in skip
        for _, derived in await unbuilt_indexes(target.store(engine), may_guess=may_guess)
    ]


def _question(pending: Pending) -> str:
    names = ", ".join(each.space for each in pending.behind[:_SHOWN])
    more = f" and {len(pending.behind) - _SHOWN:,} more" if len(pending.behind) > _SHOWN else ""
    return (
        f"Migrate {number(len(pending.behind), 'space')} ({names}{more})? "
        "Only a backup can undo this."
    )


async def _apply(
    pending: Pending, engine: Engine, *, dry_run: bool, on_progress: Callable[[str], None]
) -> Migrated:
    steps: list[Step] = []
    failed: list[Failed] = []
    for target in pending.targets:

        def report(migration: Migration, records: int, space: str = target.space) -> None:
            step = f"{migration.id} {migration.description}"
            on_progress(f"{space}: {step}, {number(records, 'record')}")

        try:
            done = await migrate_store(target.store(engine), dry_run=dry_run, on_progress=report)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, EngineError):
            raise  # it would fail in every space
        except BaseException as error:  # a step is the user's code: it may raise anything
            failed.append(Failed(target.space, step_failure(error)))
            continue
        for each in done:
            of = each.migration
            steps.append(
                Step(target.space, of.id, of.description, each.records, each.rows, each.duration_ms)
            )
    return Migrated(pending.spaces, pending.behind, steps, dry_run, failed=failed)


def step_failure(error: BaseException) -> str:
    """Return the reason why a migration failed, with its record, and with the place in the code if
    Keyhouse did not raise it."""
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    if isinstance(error, KeyhouseError):
        return f"{error}{notes}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{where}{notes}"


async def _reindex(
    system: System,
    engine: Engine,
    spaces: list[str] | None,
    on_progress: Callable[[str], None],
    *,
    skip: Sequence[str] = (),
) -> list[Built]:
    """Build the derived rows of every space again, except of those to `skip`."""
    built: list[Built] = []
    async for target in targets(system, engine, spaces):
        if target.space in skip:
            continue
        if target.schema.meta is None:
            raise UsageError(
                "The schema has no job rows: declare it with meta=Meta(), or repair its derived"
                " rows with `keyhouse verify`.",
                schema=target.schema.name,
            )

        def report(record: Any, derived: Any, records: int, space: str = target.space) -> None:
            on_progress(f"{space}: {derived.template.text}, {number(records, 'record')}")

        for _, derived, records in await build_indexes(
            target.store(engine), again=True, on_progress=report
        ):
            built.append(Built(target.space, derived.template.text, records))
    return built


def _report(done: Migrated, build: str) -> Report:
    """Return the report. `build` is the command that builds indexes."""
    spaces = number(done.spaces, "space")
    built = [
        (f"`{each.space}`", f"`{each.index}`", number(each.records, "record"))
        for each in done.indexes
    ]
    unbuilt = [(f"`{each.space}`", f"`{each.index}`") for each in done.unbuilt]
    failed = [(f"`{each.space}`", each.reason) for each in done.failed]
    parts = [
        Part("Migrations", [_step_row(each) for each in done.steps], _SHOWN),
        Part("Failed", failed, _SHOWN),
        Part("Indexes", built, _SHOWN),
        Part("Indexes to build", unbuilt, _SHOWN),
    ]
    behind = f"{len(done.behind) - len(done.failed):,} of {spaces}"
    if done.behind and not done.dry_run:
        heading = "Not migrated" if done.failed else "Migrated"
        text = f"{behind} migrated."
    elif done.behind:
        heading, text = "To migrate", f"{behind} would be migrated."
    else:
        heading, text = "Checked", f"{spaces} checked: no pending migrations."
    if done.indexes:
        heading = "Migrated"
        text += f" {number(len(done.indexes), 'index', 'indexes')} built."
    if done.unbuilt:
        lacking = number(len({each.space for each in done.unbuilt}), "space")
        indexes = number(len(done.unbuilt), "index", "indexes")
        text += (
            f" {indexes} of {lacking} would be built again."
            if done.reindex
            else f" {indexes} to build in {lacking}: records written before are not listed."
        )
    if done.failed:
        text += (
            f" {number(len(done.failed), 'space')} failed and did not change: correct the step, or"
            " the record that it names, and run this again."
        )
    if done.dry_run:
        text += " Nothing was written."
    if done.unbuilt and not done.reindex:
        text += f"\nBuild: `{build}`"
    return Report(heading, text, parts)


def _step_row(step: Step) -> tuple[str, ...]:
    return (
        f"`{step.space}`",
        f"{step.id}. {step.description}",
        number(step.records, "record"),
        number(step.rows, "row"),
    )
