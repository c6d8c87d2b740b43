"""The served systems as the Studio sees them: names, schemas, engines and spaces."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError, NotFoundError
from keyhouse.schema import KeyMatch, Log, Record, Schema
from keyhouse.service.operator_figures import OperatorFigures
from keyhouse.service.spec import Keyspace
from keyhouse.store import Store, stored_spaces

__all__ = ["StudioSystem", "SystemCatalog"]

_STORES_CACHED_MAX: Final = 256


class StudioSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A system. `engine` is its engine's URL without secrets. `figures` tell how it is used.
    `docs` is the path of its API reference; empty if it has none here."""

    name: str
    title: str = ""
    about: str = ""
    engine: str = ""
    keyspaces: Sequence[Keyspace] = ()
    figures: OperatorFigures | None = None
    docs: str = ""

    @property
    def schemas(self) -> list[Schema]:
        return [each.schema for each in self.keyspaces]

    @property
    def engines(self) -> list[Engine]:
        return list({id(each.engine): each.engine for each in self.keyspaces}.values())

    @property
    def is_durable(self) -> bool:
        return all(engine.capabilities.durable for engine in self.engines)


class SystemCatalog:
    """All systems by name, and a Store for each of their spaces."""

    def __init__(self, systems: Iterable[StudioSystem]) -> None:
        self.systems: Mapping[str, StudioSystem] = {each.name: each for each in systems}
        self._stores: dict[tuple[str, str, int], Store] = {}

    def system(self, name: str) -> StudioSystem:
        """Raises NotFoundError if no such system is served."""
        found = self.systems.get(name)
        if found is None:
            raise NotFoundError(
                "No such system is served.", system=name, **nearest(name, self.systems)
            )
        return found

    async def spaces(self, system: StudioSystem, after: str = "") -> AsyncIterator[str]:
        """Yield the names of the system's spaces that hold rows, in order, after a name.

        An engine may hold others, such as buckets of other programs on the same NATS server.
        """
        seen: set[str] = set()
        for engine in system.engines:
            async for space in stored_spaces(engine):
                if space > after and space not in seen:
                    seen.add(space)
                    if self._is_space(system, space):
                        yield space

    def _is_space(self, system: StudioSystem, space: str) -> bool:
        try:
            return bool(self.stores(system, space))
        except NotFoundError:
            return False

    async def stored(self, system: StudioSystem, space: str) -> list[Store]:
        """Return the stores of a space that holds rows, or that a schema names. Raises
        NotFoundError if there is no such space."""
        stores = self.stores(system, space)
        for store in stores:
            if store.schema.space.name == space:
                return stores
            if (await store.row_page(limit=1, keys_only=True)).rows:
                return stores
        raise NotFoundError("The system has no such space.", system=system.name, space=space)

    def stores(self, system: StudioSystem, space: str) -> list[Store]:
        """Return a store for each schema that has this space. Raises NotFoundError if none has."""
        stores: list[Store] = []
        for number, keyspace in enumerate(system.keyspaces):
            try:
                stores.append(self._store(system, keyspace, number, space))
            except KeyFieldError:
                continue
        if not stores:
            raise NotFoundError("The system has no such space.", system=system.name, space=space)
        return stores

    def store(self, system: StudioSystem, space: str, record: str = "") -> Store:
        """Return the store of the space whose schema has this record, or the first one."""
        stores = self.stores(system, space)
        if not record:
            return stores[0]
        for store in stores:
            if any(each.name == record for each in store.schema.records):
                return store
        raise NotFoundError(
            "The space has no such record.",
            record=record,
            **nearest(record, [each.name for store in stores for each in store.schema.records]),
        )

    def find(self, system: StudioSystem, space: str, key: str) -> tuple[Store, KeyMatch | None]:
        """Return the store that a key belongs to, and its declaration; None if no template matches.

        Settings that the key repeats are those of the store.
        """
        stores = self.stores(system, space)
        for store in stores:
            found = store.schema.find(key)
            if found is None:
                continue
            fixed: dict[str, Any] = {
                name: value for name, value in found.fields.items() if name in store.schema.fixed
            }
            if fixed and store.find(key) is None:
                store = Store(store.schema, store.engine, space, key_ring=store.key_ring, **fixed)
            if (match := store.find(key)) is not None:
                return store, match
        return stores[0], None

    def _store(self, system: StudioSystem, keyspace: Keyspace, number: int, space: str) -> Store:
        key = (system.name, space, number)
        if key not in self._stores:
            while len(self._stores) >= _STORES_CACHED_MAX:
                del self._stores[next(iter(self._stores))]
            fixed: dict[str, Any] = dict(keyspace.fixed)
            self._stores[key] = Store(
                keyspace.schema, keyspace.engine, space, key_ring=keyspace.key_ring, **fixed
            )
        return self._stores[key]


def record_of(store: Store, name: str) -> Record[Any]:
    """Return a record of the store's schema. Raises NotFoundError if there is none."""
    for record in store.schema.records:
        if record.name == name:
            return record
    raise NotFoundError("The schema has no such record.", record=name)


def is_writable(store: Store, record: Record[Any]) -> bool:
    """Return whether people may write a record: not the events of a log, nor the store's own
    rows."""
    meta = store.schema.meta
    own = () if meta is None else tuple(each.name for each in meta.records)
    return not isinstance(record, Log) and record.name not in own


def is_editable(store: Store, match: KeyMatch) -> bool:
    """Return whether a key is of a record that people may write, and of no derived row."""
    return match.is_record and is_writable(store, match.record.declared)
