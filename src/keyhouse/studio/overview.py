"""The pages of systems and spaces: what is served, where it is stored, and how much there is."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.schema.description import SchemaText, describe, space_text
from keyhouse.service.served_engine import ServedEngine
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.diagram import Diagram, diagram
from keyhouse.studio.figures import CallFigures, operation_figures
from keyhouse.studio.space_size import (
    COUNT_SECONDS,
    NewestRevision,
    SpaceSize,
    count,
    count_by_record,
    newest_revision,
)

SPACES_PAGE: Final = 50

Readiness = Callable[[], Awaitable[Any]]


class SystemLine(msgspec.Struct, kw_only=True):
    """A system. `why` says why it is not ready. `operations` are engine calls since the start.
    `docs` is the path of its API reference, if it has one here."""

    name: str
    title: str
    about: str
    engine: str
    is_durable: bool
    is_ready: bool
    why: str
    records: int
    size: SpaceSize
    operations: int
    per_second: float
    docs: str


class Landing(msgspec.Struct):
    """The systems."""

    systems: list[SystemLine]


class SpaceLine(msgspec.Struct):
    """`newest` is the revision of the newest change. `operations` and `errors` are those of this
    process; null if the service does not count them by tenant."""

    name: str
    size: SpaceSize
    newest: NewestRevision
    records: list[str]
    operations: int | None = None
    errors: int | None = None


class SpaceList(msgspec.Struct, kw_only=True):
    system: str
    title: str
    about: str
    engine: str
    is_durable: bool
    space_is: list[str]
    spaces: list[SpaceLine]
    after: str
    next: str


class SpacesQuery(msgspec.Struct, forbid_unknown_fields=True):
    after: str = ""


class Rate(msgspec.Struct):
    """Operations per second that a tenant may send, how many at once, and how many of these now."""

    per_second: float
    burst: int
    left: int


class SpaceUse(msgspec.Struct):
    """The use of a space in this process: operations, errors by code, quota (null: none) and
    rate."""

    operations: list[CallFigures]
    errors: dict[str, int]
    quota_keys: int | None
    quota_bytes: int | None
    rate: Rate | None


class SpacePage(msgspec.Struct, kw_only=True):
    """`other` are rows of no template, and of the store itself."""

    system: str
    engine: str
    space: str
    size: SpaceSize
    newest: NewestRevision
    records: list["RecordLine"]
    other: SpaceSize
    use: SpaceUse | None = None


class RecordLine(msgspec.Struct):
    """A record, with `derived` kinds of derived rows. `size` is that of the records, and
    `derived_size` that of the derived ones."""

    name: str
    kind: str
    key: str
    derived: int
    doc: str
    size: SpaceSize
    derived_size: SpaceSize


class SizeQuery(msgspec.Struct, forbid_unknown_fields=True):
    count: str = ""


class SchemaPage(msgspec.Struct, kw_only=True):
    system: str
    title: str
    about: str
    schemas: list[SchemaText]
    diagrams: list[Diagram]


class Overview:
    def __init__(self, catalog: SystemCatalog, readiness: Readiness | None) -> None:
        self._catalog = catalog
        self._readiness = readiness
        self._rates = OperationRates()

    async def landing(self, caller: Caller) -> Landing:
        """List the systems that are served."""
        health: Mapping[str, Any] = {}
        if self._readiness is not None:
            health = (await self._readiness()).systems
        systems = self._catalog.systems.values()
        lines: list[SystemLine] = []
        for each in systems:
            deadline = perf_counter() + COUNT_SECONDS / len(systems)
            lines.append(self._line(each, health, await self._size(each, deadline)))
        return Landing(lines)

    async def _size(self, system: StudioSystem, deadline: float) -> SpaceSize:
        """Count the rows of all spaces, until the deadline."""
        total, is_late = SpaceSize(), False
        async for space in self._catalog.spaces(system):
            if is_late:
                total.is_exact = False
                break
            size = await count(self._catalog.stores(system, space)[0], deadline)
            total.rows, total.bytes = total.rows + size.rows, total.bytes + size.bytes
            if not size.is_exact:
                total.is_exact = False
                break
            is_late = perf_counter() > deadline
        return total

    async def system(self, system: str, query: SpacesQuery, caller: Caller) -> SpaceList:
        """List the spaces of a system with their sizes."""
        served = self._catalog.system(system)
        names: list[str] = []
        async for space in self._catalog.spaces(served, query.after):
            names.append(space)
            if len(names) > SPACES_PAGE:
                break
        shown = sorted(names)[:SPACES_PAGE]
        deadline = perf_counter() + COUNT_SECONDS
        return SpaceList(
            system=system,
            title=served.title,
            about=served.about,
            engine=served.engine,
            is_durable=served.is_durable,
            space_is=[space_text(schema.space) for schema in served.schemas],
            spaces=[await self._space_line(served, name, deadline) for name in shown],
            after=query.after,
            next=shown[-1] if len(names) > SPACES_PAGE else "",
        )

    async def space(self, system: str, space: str, query: SizeQuery, caller: Caller) -> SpacePage:
        """One space: its records, and its size."""
        served = self._catalog.system(system)
        stores = await self._catalog.stored(served, space)
        deadline = float("inf") if query.count == "all" else perf_counter() + COUNT_SECONDS
        sizes = await count_by_record(stores, deadline)
        return SpacePage(
            system=system,
            engine=served.engine,
            space=space,
            size=sizes.total,
            newest=sizes.newest,
            records=[
                RecordLine(
                    each.name,
                    each.kind,
                    each.key,
                    len(each.derived),
                    each.doc,
                    sizes.of(each.name),
                    sizes.of(each.name, derived=True),
                )
                for store in stores
                for each in describe(store.schema).records
            ],
            other=sizes.other,
            use=space_use(served, space),
        )

    async def schema(self, system: str, caller: Caller) -> SchemaPage:
        """The keyspace document of a system."""
        served = self._catalog.system(system)
        texts = [describe(schema) for schema in served.schemas]
        return SchemaPage(
            system=system,
            title=served.title,
            about=served.about,
            schemas=texts,
            diagrams=[diagram(text) for text in texts],
        )

    def _line(self, system: StudioSystem, health: Mapping[str, Any], size: SpaceSize) -> SystemLine:
        state = health.get(system.name)
        operations = sum(
            sum(timing.steps)
            for engine in system.engines
            if isinstance(engine, ServedEngine)
            for timing in (engine.reads, engine.scans, engine.commits)
        )
        return SystemLine(
            name=system.name,
            title=system.title or system.name,
            about=system.about,
            engine=system.engine,
            is_durable=system.is_durable,
            is_ready=state is None or state.ready,
            why="" if state is None else state.why or "",
            records=sum(len(schema.records) for schema in system.schemas),
            size=size,
            operations=operations,
            per_second=self._rates.rate(system.name, operations),
            docs=system.docs,
        )

    async def _space_line(self, system: StudioSystem, space: str, deadline: float) -> SpaceLine:
        stores = self._catalog.stores(system, space)
        records = [each.name for store in stores for each in store.schema.records]
        size = await count(stores[0], deadline)
        line = SpaceLine(space, size, await newest_revision(stores[0], deadline), records)
        figures = system.figures
        if figures is not None and figures.has_tenants:
            timings = figures.operations(space).values()
            line.operations = sum(sum(each.steps) for kind in timings for each in kind)
            line.errors = sum(figures.errors(space).values())
        return line


def space_use(system: StudioSystem, space: str) -> SpaceUse | None:
    """Return how a space is used; None if the service does not tell."""
    figures = system.figures
    if figures is None:
        return None
    tenant = figures.has_tenants
    rates = figures.rates
    return SpaceUse(
        operation_figures(system, space) if tenant else [],
        figures.errors(space) if tenant else {},
        figures.quota.keys or None,
        figures.quota.bytes or None,
        None if rates is None else Rate(rates.per_second, rates.burst, rates.left(space)),
    )


class OperationRates:
    """Operations per second between two looks at a page, a second apart at least; at the first one,
    since the start."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._samples: dict[str, tuple[float, int, float]] = {}

    def rate(self, name: str, operations: int) -> float:
        now = self._clock()
        since, before, rate = self._samples.get(name, (self._start, 0, 0.0))
        if now - since >= 1:
            rate = round((operations - before) / (now - since), 1)
            self._samples[name] = (now, operations, rate)
        return rate
