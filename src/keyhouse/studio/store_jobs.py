"""Work in progress in the stores, of any program: migrations, builds, deletions, moves, sweeps."""

from time import perf_counter

import msgspec

from keyhouse.errors import DataError, UnreadableError
from keyhouse.schema import JobState, Record
from keyhouse.store import Store, missing_indexes, unfinished_move, version
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.space_size import COUNT_SECONDS


class StoreJobLine(msgspec.Struct, kw_only=True):
    """A job in a space: `done` records were visited. `is_running`: its runner holds the lease;
    otherwise it was interrupted, and the next run continues it."""

    system: str
    space: str
    name: str
    done: int
    changed: int
    started: int
    is_running: bool


class SystemUpkeep(msgspec.Struct, kw_only=True):
    """Sweeps of expired rows in this process, and a move into the system's engine that has not
    ended."""

    system: str
    sweeps: int
    swept: int
    move_from: str = ""
    move_started: int | None = None


class UpkeepState(msgspec.Struct):
    """The version of a space's rows, what is to be migrated, and derived rows to be built."""

    version: int = 0
    known: int = 0
    pending: list[str] = []
    missing: list[str] = []
    problem: str = ""


class StoreJobs:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def lines(self) -> tuple[list[StoreJobLine], bool]:
        """Return the jobs of all spaces, and whether all spaces were looked at in the time that a
        page has."""
        lines: list[StoreJobLine] = []
        deadline = perf_counter() + COUNT_SECONDS
        for system in self._catalog.systems.values():
            if all(schema.meta is None for schema in system.schemas):
                continue
            async for space in self._catalog.spaces(system):
                if perf_counter() > deadline:
                    return lines, False
                for store in self._catalog.stores(system, space):
                    lines += await _jobs_of(system, store)
        return lines, True

    async def systems(self) -> list[SystemUpkeep]:
        upkeep: list[SystemUpkeep] = []
        for system in self._catalog.systems.values():
            figures = system.figures
            line = SystemUpkeep(
                system=system.name,
                sweeps=0 if figures is None else sum(figures.sweeps.steps),
                swept=0 if figures is None else figures.swept,
            )
            for engine in system.engines:
                try:
                    mark = await unfinished_move(engine)
                except UnreadableError:
                    line.move_from = "unknown"
                    continue
                if mark is not None:
                    line.move_from, line.move_started = mark.source, mark.started
            upkeep.append(line)
        return upkeep


async def space_state(stores: list[Store]) -> UpkeepState:
    """Return what is to be done in a space."""
    state = UpkeepState(pending=[], missing=[])
    for store in stores:
        try:
            at = await version(store)
        except DataError as error:
            state.problem = error.sentence
            continue
        if store.schema.meta is None:
            continue
        state.version, state.known = max(state.version, at), store.schema.version
        state.pending += [f"{each.id}: {each.description}" for each in store.schema.migrations[at:]]
        state.missing += [
            f"{derived.template.text} of {record.name}"
            for record, derived in await missing_indexes(store)
        ]
    return state


async def _jobs_of(system: StudioSystem, store: Store) -> list[StoreJobLine]:
    if store.schema.meta is None:
        return []
    job: Record[JobState] = store.schema.meta.job
    page = await store.page(job, limit=20, unreadable="skip")
    now = store.engine.clock.now()
    return [
        StoreJobLine(
            system=system.name,
            space=store.space,
            name=str(entry.fields["name"]),
            done=entry.record.done,
            changed=entry.record.changed,
            started=entry.record.started_at,
            is_running=entry.record.lease_until > now,
        )
        for entry in page.entries
        if not entry.record.finished
    ]
