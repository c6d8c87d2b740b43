"""aiocache on a store: its decorators, locks and compare-and-set, without a Redis server.

    async with open_store(CACHES, "sqlite:cache.db", "main") as store:
        cache = KeyhouseCache(store, ttl=60)
        await cache.set("a", {"n": 1})

Values are text or bytes, as the serializer makes them (JSON by default, as for Redis). Keys over
200 bytes are hashed in keys; records hold them in full.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiocache.base import BaseCache
from aiocache.serializers import BaseSerializer, JsonSerializer
from msgspec import Struct

from keyhouse.adapters.name_segment import HASHED, NAME_BYTES_MAX, name_segment
from keyhouse.errors import RevisionError
from keyhouse.schema import Meta, Record, Schema, Space, per_write
from keyhouse.store import Store, Transaction

__all__ = ["CACHES", "KeyhouseCache"]


class CachedValue(Struct, kw_only=True):
    """A cached value as its serializer made it; bytes are in base64."""

    key: str
    value: str
    is_bytes: bool = False


VALUE: Final = Record(
    CachedValue,
    "value:{name}",
    name="value",
    fields={"name": lambda stored: name_segment(stored.key)},
    expiry=per_write(),
)
CACHES: Final = Schema("caches", VALUE, meta=Meta(), space=Space("a cache"))


class KeyhouseCache(BaseCache):  # type: ignore[misc]  # the library has no types
    """An aiocache cache on a store of the schema `CACHES`."""

    NAME = "keyhouse"

    def __init__(
        self, store: Store, *, serializer: BaseSerializer | None = None, **options: Any
    ) -> None:
        super().__init__(serializer=serializer or JsonSerializer(), **options)
        self.store = store

    def build_key(self, key: Any, namespace: str | None = None) -> str:
        return str(super().build_key(key, namespace=namespace))

    async def _get(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        stored = await self.store.get(VALUE, name=name_segment(key))
        return None if stored is None else _loaded(stored, encoding)

    async def _gets(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return await self._get(key, encoding=encoding)

    async def _multi_get(
        self, keys: list[str], encoding: str | None = "utf-8", _conn: Any = None
    ) -> list[Any]:
        values = await self.store.get_many(VALUE, [{"name": name_segment(key)} for key in keys])
        return [None if stored is None else _loaded(stored, encoding) for stored in values]

    async def _set(
        self,
        key: str,
        value: Any,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> Any:
        stored = _dumped(key, value)
        if _cas_token is None:
            await self.store.put(VALUE, stored, ttl=ttl or None)
            return True

        async def work(tx: Transaction) -> Any:
            found = await tx.get(VALUE, name=name_segment(key))
            if found != _dumped(key, _cas_token):
                return 0
            await tx.put(VALUE, stored, ttl=ttl or None)
            return True

        return await self.store.transact(work)

    async def _multi_set(
        self, pairs: Iterable[tuple[str, Any]], ttl: float | None = None, _conn: Any = None
    ) -> bool:
        values = [_dumped(key, value) for key, value in pairs]

        async def work(tx: Transaction) -> bool:
            for stored in values:
                await tx.put(VALUE, stored, ttl=ttl or None)
            return True

        return await self.store.transact(work)

    async def _add(self, key: str, value: Any, ttl: float | None = None, _conn: Any = None) -> bool:
        try:
            await self.store.put(VALUE, _dumped(key, value), ttl=ttl or None, expect=None)
        except RevisionError:
            raise ValueError(f"Key {key} already exists, use .set to update the value") from None
        return True

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self.store.get(VALUE, name=name_segment(key)) is not None

    async def _increment(self, key: str, delta: int, _conn: Any = None) -> int:
        async def work(tx: Transaction) -> int:
            entry = await tx.entry(VALUE, name=name_segment(key))
            try:
                number = delta if entry is None else int(_loaded(entry.record, "utf-8")) + delta
            except ValueError:
                raise TypeError("Value is not an integer") from None
            expires = None if entry is None else entry.expires
            await tx.restore(VALUE, _dumped(key, number), expires=expires)
            return number

        return await self.store.transact(work)

    async def _expire(self, key: str, ttl: float, _conn: Any = None) -> bool:
        async def work(tx: Transaction) -> bool:
            stored = await tx.get(VALUE, name=name_segment(key))
            if stored is not None:
                await tx.put(VALUE, stored, ttl=ttl or None)
            return stored is not None

        return await self.store.transact(work)

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return int(await self.store.delete(VALUE, name=name_segment(key)))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        if not namespace:
            await self.store.clear()
            return True
        prefixes = [HASHED]  # long keys are found by the text in their records
        if len(namespace.encode()) <= NAME_BYTES_MAX and not namespace.startswith(HASHED):
            prefixes.append(namespace)
        for prefix in prefixes:
            async for entry in self.store.scan(VALUE, prefix=prefix):
                if entry.record.key.startswith(namespace):
                    await self.store.delete(VALUE, **entry.fields)
        return True

    async def _raw(
        self, command: str, *arguments: Any, encoding: Any = None, _conn: Any = None, **named: Any
    ) -> Any:
        """Call a method of the store: `await cache.raw("count", VALUE)`."""
        method: Callable[..., Any] = getattr(self.store, command)
        return await method(*arguments, **named)

    async def _redlock_release(self, key: str, value: Any) -> int:
        async def work(tx: Transaction) -> int:
            stored = await tx.get(VALUE, name=name_segment(key))
            if stored != _dumped(key, value):
                return 0
            return int(await tx.delete(VALUE, name=name_segment(key)))

        return await self.store.transact(work)


def _dumped(key: str, value: Any) -> CachedValue:
    match value:
        case bytes() | bytearray():
            return CachedValue(key=key, value=b64encode(value).decode(), is_bytes=True)
        case str():
            return CachedValue(key=key, value=value)
        case int() | float():
            return CachedValue(key=key, value=str(value))
    raise TypeError(
        f"A cached value is text, bytes or a number, not {type(value).__name__}: use a serializer."
    )


def _loaded(stored: CachedValue, encoding: str | None) -> Any:
    """Return text if the serializer has an encoding, else bytes."""
    if stored.is_bytes:
        data = b64decode(stored.value)
        return data if encoding is None else data.decode(encoding)
    return stored.value if encoding is not None else stored.value.encode()
