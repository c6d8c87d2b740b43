"""Migrations of many spaces: which are behind, and what was done in each."""

from collections.abc import Callable, Sequence

import msgspec

from keyhouse.cli.housing import places
from keyhouse.cli.output import Part, Report, number
from keyhouse.cli.place import Place
from keyhouse.engine import Engine
from keyhouse.schema import Migration
from keyhouse.service.system import System
from keyhouse.store import migrate, version

_SHOWN = 20


class Behind(msgspec.Struct, frozen=True):
    """A space, the version that it is at, and the one that the code writes."""

    space: str
    version: int
    newest: int


class Step(msgspec.Struct, frozen=True):
    """A migration of a space: how many records it looked at, and rows it wrote, or would write."""

    space: str
    id: int
    description: str
    records: int
    rows: int
    duration_ms: int


class Done(msgspec.Struct, frozen=True):
    spaces: int
    behind: list[Behind]
    steps: list[Step]
    dry_run: bool


class Pending(msgspec.Struct, frozen=True):
    spaces: int
    behind: list[Behind]
    places: list[Place]


async def pending(system: System, engine: Engine, spaces: Sequence[str] | None) -> Pending:
    """The spaces that are behind; NewerError when one is ahead of this code."""
    count, behind, todo = 0, list[Behind](), list[Place]()
    async for place in places(system, engine, spaces):
        count += 1
        if (
            place.schema.migrations
            and (at := await version(place.store(engine))) < place.schema.version
        ):
            behind.append(Behind(place.space, at, place.schema.version))
            todo.append(place)
    return Pending(count, behind, todo)


def question(found: Pending) -> str:
    names = ", ".join(each.space for each in found.behind[:_SHOWN])
    more = f" and {len(found.behind) - _SHOWN:,} more" if len(found.behind) > _SHOWN else ""
    return (
        f"{number(len(found.behind), 'space')} will be migrated ({names}{more}). "
        "There is no way back but a backup. Go on?"
    )


async def migrate_all(
    found: Pending, engine: Engine, *, dry_run: bool, say: Callable[[str], None]
) -> Done:
    steps: list[Step] = []
    for place in found.places:

        def told(migration: Migration, records: int, space: str = place.space) -> None:
            say(f"{space}: {migration.id} {migration.description}, {number(records, 'record')}")

        for each in await migrate(place.store(engine), dry_run=dry_run, on_progress=told):
            of = each.migration
            steps.append(
                Step(place.space, of.id, of.description, each.records, each.rows, each.duration_ms)
            )
    return Done(found.spaces, found.behind, steps, dry_run)


def report(done: Done) -> Report:
    where = number(done.spaces, "space")
    if not done.behind:
        return Report(
            "Migrated",
            f"{where} looked at: all are at the version that this code writes. Nothing to do.",
        )
    rows = [
        (
            f"`{step.space}`",
            f"{step.id}. {step.description}",
            number(step.records, "record"),
            number(step.rows, "row"),
        )
        for step in done.steps[:_SHOWN]
    ]
    if len(done.steps) > _SHOWN:
        rows.append((f"and {len(done.steps) - _SHOWN:,} more", "", "", ""))
    behind = number(len(done.behind), "space")
    text = (
        f"{behind} of {where} would be migrated. Nothing was written."
        if done.dry_run
        else f"{behind} of {where} migrated."
    )
    return Report("To migrate" if done.dry_run else "Migrated", text, [Part("Migrations", [*rows])])
