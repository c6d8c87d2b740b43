"""Operations on one plugin's keys, over its store. Knows no subject, and of a message only its
body.

Replies are assembled here as JSON: a stored value is sent as the bytes it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from keyhouse.advice import nearest
from keyhouse.engine import Engine, Row
from keyhouse.errors import (
    CounterError,
    LimitError,
    MissingFieldError,
    RecordError,
    UnreadableError,
)
from keyhouse.limits import COUNTER_MAX, PAGE_ROWS_MAX
from keyhouse.schema import Compact, compact
from keyhouse.service.key_locks import KeyLocks
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.store import Transaction, rows_while
from keyhouse_rosey import messages
from keyhouse_rosey.limits import (
    PLUGIN_BATCH_KEYS_MAX,
    PLUGIN_LONG_READS_MAX,
    PLUGIN_VALUE_BYTES_MAX,
)
from keyhouse_rosey.schema import SCHEMAS, VALUE

T = TypeVar("T")

_OK: Final = b'{"success":true}'
_ABSENT: Final = b'{"success":true,"exists":false}'
_ENVELOPE_BYTES: Final = 512

_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_build = VALUE.template.build


class Plugin(Tenant):
    def __init__(self, name: str, engine: Engine, quota: Quota, reply_bytes_max: int) -> None:
        super().__init__(name, SCHEMAS[0], engine, quota)
        self.locks = KeyLocks()
        self._long_reads = asyncio.Semaphore(PLUGIN_LONG_READS_MAX)
        self._reply_bytes_max = reply_bytes_max - _ENVELOPE_BYTES

    @property
    def is_busy(self) -> bool:
        return not self.locks.are_free or super().is_busy

    # Reading

    async def get(self, body: messages.Get) -> bytes:
        key = _build({"key": body.key})
        if not self.locks.are_free:
            await self.locks.wait_for((key,))
        row = await self.store.row(key)
        if row is None:
            return _ABSENT
        _check_stored(key, row.value)
        if body.revision:
            return b'{"success":true,"exists":true,"value":%b,"revision":%d}' % (
                row.value,
                row.revision,
            )
        return b'{"success":true,"exists":true,"value":%b}' % row.value

    async def mget(self, body: messages.Mget) -> bytes:
        keys = [_build({"key": key}) for key in dict.fromkeys(_required(body.keys))]
        _check_count(len(keys))
        await self.locks.wait_for(keys)
        values: dict[str, msgspec.Raw] = {}
        size = 0
        async with self._long_reads, aclosing(self.store.rows_in_pages(keys)) as pages:
            async for page in pages:
                for row in page:
                    if row is not None:
                        _check_stored(row.key, row.value)
                        values[row.key] = msgspec.Raw(row.value)
                        size += len(row.key) + len(row.value)
                self._check_size(size)
        reply = _encode(
            {
                "success": True,
                "values": values,
                "missing": [key for key in keys if key not in values],
            }
        )
        self._check_size(len(reply))
        return reply

    async def list(self, body: messages.List) -> bytes:
        entries, end = await self._page(body, lambda row: _encode(row.key), keys_only=True)
        return b'{"success":true,"keys":[%b],%b' % (b",".join(entries), end)

    async def scan(self, body: messages.ScanRequest) -> bytes:
        entries, end = await self._page(body, _scanned)
        return b'{"success":true,"entries":[%b],%b' % (b",".join(entries), end)

    async def count(self, body: messages.CountRequest) -> bytes:
        await self.locks.wait_for_all()
        async with self._long_reads:
            count = await self.store.count(VALUE, prefix=body.prefix or None)
        return b'{"success":true,"count":%d}' % count

    # Writing

    async def set(self, body: messages.Set) -> bytes:
        key: Any = body.key
        value = _compact(body.value)
        if self.usage is None and not self.locks.is_written(key):
            with self.locks.write(key):
                await self.store.put(VALUE, value, ttl=body.ttl, key=key)
        else:
            await self._write(
                _build({"key": key}), lambda tx: tx.put(VALUE, value, ttl=body.ttl, key=key)
            )
        return _OK

    async def delete(self, body: messages.DeleteRequest) -> bytes:
        key = _build({"key": body.key})
        deleted = await self._write(key, lambda tx: tx.delete(VALUE, key=key))
        return b'{"success":true,"deleted":%b}' % (b"true" if deleted else b"false")

    async def incr(self, body: messages.Incr) -> bytes:
        key = _build({"key": body.key})
        value = await self._write(key, lambda tx: _incremented(tx, key, body.by, body.ttl))
        return b'{"success":true,"value":%d}' % value

    async def cas(self, body: messages.Cas) -> bytes:
        key = _build({"key": body.key})
        value = _compact(body.value)
        expect: Any = body.revision
        _, revision = await self._commit(
            [key], lambda tx: tx.put(VALUE, value, ttl=body.ttl, expect=expect, key=key)
        )
        return b'{"success":true,"revision":%d}' % revision

    async def touch(self, body: messages.Touch) -> bytes:
        key = _build({"key": body.key})
        touched = await self._write(key, lambda tx: _touched(tx, key, body.ttl))
        return b'{"success":true,"exists":%b}' % (b"true" if touched else b"false")

    async def batch(self, body: messages.PluginBatchRequest) -> bytes:
        ops = [_checked(op) for op in _required(body.ops)]
        _check_count(len(ops))
        keys = list(dict.fromkeys(str(op.key) for op in ops))

        async def work(tx: Transaction) -> list[dict[str, Any]]:
            return [await _applied(tx, op) for op in ops]

        results, revision = await self._commit(keys, work)
        reply = {"success": True, "results": results}
        encoded = _encode(reply | {"revision": revision} if revision else reply)
        self._check_size(len(encoded))
        return encoded

    async def _write(self, key: str, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Return the result of `work` on one key. It may share its commit with other writes of the
        key, but not where there is a quota: each is within the quota or not."""
        if self.usage is None and self.locks.is_written(key):
            return await self.locks.write_grouped(key, work, self._result)
        return (await self._commit([key], work))[0]

    async def _result(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return (await self.transact(work))[0]

    async def _commit(
        self, keys: Sequence[str], work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[T, int]:
        """Return the result of `work` and the revision of its commit; 0 if it wrote nothing."""
        with self.locks.write(*keys) as earlier:
            for write in earlier:
                await write.finished()
            return await self.transact(work)

    # Replies of limited size

    async def _page(
        self, body: messages.List, encode: Callable[[Row], bytes | None], *, keys_only: bool = False
    ) -> tuple[Sequence[bytes], bytes]:
        """Return the encoded items that fit into a reply, and the rest of the reply behind them.

        `encode` returns None for a row that is skipped.
        """
        await self.locks.wait_for_all()
        items: list[bytes] = []
        left = self._reply_bytes_max

        def fits(row: Row) -> bool:
            nonlocal left
            if (item := encode(row)) is None:
                return True
            left -= len(item) + 1
            if left >= 0:
                items.append(item)
            return left >= 0

        async with self._long_reads:
            _, cursor = await rows_while(
                self.store,
                VALUE,
                fits,
                limit=min(body.limit, PAGE_ROWS_MAX),
                cursor=body.cursor,
                prefix=body.prefix or None,
                keys_only=keys_only,
            )
        if left < 0 and not items:  # an empty page would make a client request it forever
            raise LimitError(
                "Not even the first item fits into a reply: see reply_bytes_max.",
                limit=self._reply_bytes_max,
            )
        if cursor is None:
            return items, b'"count":%d,"truncated":false}' % len(items)
        return items, b'"count":%d,"truncated":true,"cursor":%b}' % (len(items), _encode(cursor))

    def _check_size(self, size: int) -> None:
        if size > self._reply_bytes_max:
            raise LimitError(
                "The reply would be too large: request fewer keys.",
                bytes=size,
                limit=self._reply_bytes_max,
            )


def _required(value: Any) -> Any:
    """Return a field whose presence `Body` has checked."""
    assert value is not UNSET
    return value


def _check_count(count: int) -> None:
    if count > PLUGIN_BATCH_KEYS_MAX:
        raise LimitError(
            "Too many keys or operations in one request.", count=count, limit=PLUGIN_BATCH_KEYS_MAX
        )


def _compact(value: Any) -> Compact:
    """Return the value as it is stored; LimitError if it is too large."""
    document = compact(value)
    if len(document.text) > PLUGIN_VALUE_BYTES_MAX:
        raise LimitError(
            "Value size exceeds 64KB limit.",
            bytes=len(document.text),
            limit=PLUGIN_VALUE_BYTES_MAX,
        )
    return document


def _scanned(row: Row) -> bytes | None:
    """Encode an entry of a scan; None for a row of another program that is not JSON."""
    try:
        _check_stored(row.key, row.value)
    except UnreadableError:
        return None
    return b'{"key":%b,"value":%b,"revision":%d}' % (_encode(row.key), row.value, row.revision)


def _check_stored(key: str, value: bytes) -> None:
    """Raise UnreadableError for a row that is not JSON, such as one written by hand: it must not
    corrupt a reply."""
    try:
        _check_json(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(
            "A stored value is not JSON; see `keyhouse verify`.", key=key, reason=str(error)
        ) from None


async def _incremented(tx: Transaction, key: str, by: int, ttl: int | None) -> int:
    entry = await tx.entry(VALUE, key=key)
    value = 0 if entry is None else entry.record
    if type(value) is not int:
        raise CounterError("The value is not a whole number.", key=key)
    total = value + by
    if abs(total) > COUNTER_MAX:
        raise CounterError("The counter would overflow.", key=key, limit=COUNTER_MAX)
    if ttl is None:
        await tx.restore(VALUE, total, expires=None if entry is None else entry.expires, key=key)
    else:
        await tx.put(VALUE, total, ttl=ttl, key=key)
    return total


async def _touched(tx: Transaction, key: str, ttl: Any) -> bool:
    entry = await tx.entry(VALUE, key=key)
    if entry is None:
        return False
    await tx.put(VALUE, entry.record, ttl=ttl, key=key)
    return True


def _checked(op: messages.BatchedOperation) -> messages.BatchedOperation:
    if op.op is UNSET:
        raise MissingFieldError("Missing required field: op")
    required = messages.BATCHED.get(op.op)
    if required is None:
        raise RecordError(
            "No such operation in a batch.", op=op.op, **nearest(op.op, messages.BATCHED)
        )
    for name in required:
        if getattr(op, name) is UNSET:
            raise MissingFieldError(f"Missing required field: {name}", op=op.op)
    _build({"key": op.key})
    if op.value is not UNSET:
        op.value = _compact(op.value)
    return op


async def _applied(tx: Transaction, op: messages.BatchedOperation) -> dict[str, Any]:
    key: Any = op.key
    ttl: Any = None if op.ttl is UNSET else op.ttl
    if op.op == "delete":
        return {"deleted": await tx.delete(VALUE, key=key)}
    if op.op == "incr":
        return {"value": await _incremented(tx, key, op.by, ttl)}
    if op.op == "touch":
        return {"exists": await _touched(tx, key, ttl)}
    expect: Any = op.revision
    if op.op == "cas":
        await tx.put(VALUE, op.value, ttl=ttl, expect=expect, key=key)
    else:
        await tx.put(VALUE, op.value, ttl=ttl, key=key)
    return {}
