"""py-key-value (`key_value.aio`) on a store: for FastMCP, and all that takes an AsyncKeyValue.

    async with open_store(KEY_VALUES, "sqlite:cache.db", "main") as store:
        cache = KeyhouseStore(store)
        await cache.put("a", {"n": 1}, collection="things", ttl=60)

`put_many` and `delete_many` are one commit each. Names over 64 bytes (collections) or 200 bytes
(keys) are hashed in keys; records hold them in full.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from key_value.aio._utils.managed_entry import ManagedEntry, load_from_json
from key_value.aio.stores.base import (
    SEED_DATA_TYPE,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
)
from msgspec import Struct

from keyhouse.adapters.name_segment import name_segment
from keyhouse.schema import Meta, Record, Schema, Space, per_write
from keyhouse.store import Store, Transaction

__all__ = ["KEY_VALUES", "KeyhouseStore"]

_COLLECTION_BYTES_MAX: Final = 64
_KEYS_MAX: Final = 10_000
"""Most keys and collections that one list returns, as in the library's other stores."""


class CollectionValue(Struct, kw_only=True):
    """A value with the names under which it was put."""

    collection: str
    key: str
    value: dict[str, Any]
    created_at: datetime | None = None
    expires_at: datetime | None = None


class Collection(Struct, kw_only=True):
    """A collection that was used."""

    collection: str


VALUE: Final = Record(
    CollectionValue,
    "value:{collection_name}:{key_name}",
    name="value",
    fields={
        "collection_name": lambda stored: _collection_name(stored.collection),
        "key_name": lambda stored: name_segment(stored.key),
    },
    expiry=per_write(),
)
COLLECTION: Final = Record(
    Collection,
    "collection:{collection_name}",
    fields={"collection_name": lambda stored: _collection_name(stored.collection)},
)
KEY_VALUES: Final = Schema(
    "key-values", VALUE, COLLECTION, meta=Meta(), space=Space("an application")
)


class KeyhouseStore(
    BaseDestroyStore,
    BaseDestroyCollectionStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
):
    """A py-key-value store on a Keyhouse store of the schema `KEY_VALUES`."""

    def __init__(
        self,
        store: Store,
        *,
        default_collection: str | None = None,
        seed: SEED_DATA_TYPE | None = None,
    ) -> None:
        self.store = store
        super().__init__(default_collection=default_collection, seed=seed, stable_api=True)

    async def _setup_collection(self, *, collection: str) -> None:
        await self.store.put(COLLECTION, Collection(collection=collection))

    async def _get_managed_entry(self, *, collection: str, key: str) -> ManagedEntry | None:
        stored = await self.store.get(VALUE, **_names(collection, key))
        return _managed(stored)

    async def _get_managed_entries(
        self, *, collection: str, keys: Sequence[str]
    ) -> list[ManagedEntry | None]:
        values = await self.store.get_many(VALUE, [_names(collection, key) for key in keys])
        return [_managed(stored) for stored in values]

    async def _put_managed_entry(
        self, *, collection: str, key: str, managed_entry: ManagedEntry
    ) -> None:
        stored = _stored(collection, key, managed_entry)
        await self.store.put(VALUE, stored, ttl=_ttl(managed_entry))

    async def _put_managed_entries(
        self,
        *,
        collection: str,
        keys: Sequence[str],
        managed_entries: Sequence[ManagedEntry],
        ttl: float | None,
        created_at: datetime,
        expires_at: datetime | None,
    ) -> None:
        entries = [
            (_stored(collection, key, entry), _ttl(entry))
            for key, entry in zip(keys, managed_entries, strict=True)
        ]

        async def work(tx: Transaction) -> None:
            for stored, seconds in entries:
                await tx.put(VALUE, stored, ttl=seconds)

        await self.store.transact(work)

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        return await self.store.delete(VALUE, **_names(collection, key))

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        async def work(tx: Transaction) -> int:
            return sum([await tx.delete(VALUE, **_names(collection, key)) for key in keys])

        return await self.store.transact(work)

    async def _get_collection_keys(self, *, collection: str, limit: int | None = None) -> list[str]:
        entries = self.store.scan(
            VALUE,
            limit=min(limit or _KEYS_MAX, _KEYS_MAX),
            collection_name=_collection_name(collection),
        )
        return [entry.record.key async for entry in entries]

    async def _get_collection_names(self, *, limit: int | None = None) -> list[str]:
        entries = self.store.scan(COLLECTION, limit=min(limit or _KEYS_MAX, _KEYS_MAX))
        return [entry.record.collection async for entry in entries]

    async def _delete_collection(self, *, collection: str) -> bool:
        name = _collection_name(collection)
        async for entry in self.store.scan(VALUE, collection_name=name):
            await self.store.delete(VALUE, **entry.fields)
        self._setup_collection_complete.pop(collection, None)
        return await self.store.delete(COLLECTION, collection_name=name)

    async def _delete_store(self) -> bool:
        await self.store.clear()
        self._setup_collection_complete.clear()
        return True


def _collection_name(collection: str) -> str:
    return name_segment(collection, bytes_max=_COLLECTION_BYTES_MAX)


def _names(collection: str, key: str) -> dict[str, Any]:
    return {"collection_name": _collection_name(collection), "key_name": name_segment(key)}


def _stored(collection: str, key: str, entry: ManagedEntry) -> CollectionValue:
    return CollectionValue(
        collection=collection,
        key=key,
        value=load_from_json(entry.value_as_json),  # raises the library's SerializationError
        created_at=entry.created_at,
        expires_at=entry.expires_at,
    )


def _managed(stored: CollectionValue | None) -> ManagedEntry | None:
    if stored is None:
        return None
    return ManagedEntry(
        value=stored.value, created_at=stored.created_at, expires_at=stored.expires_at
    )


def _ttl(entry: ManagedEntry) -> float | None:
    if entry.expires_at is None:
        return None
    start = entry.created_at or datetime.now(UTC)
    return max(0.001, (entry.expires_at - start).total_seconds())
