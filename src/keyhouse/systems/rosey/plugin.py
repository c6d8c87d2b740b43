"""One plugin's keys: what each operation does, as calls of the store. Knows no subject, and no message but its body.

Every answer is JSON that is put together here: a stored value goes out as the bytes that it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from keyhouse.engine import Engine
from keyhouse.errors import (
    CounterError,
    LimitError,
    MissingFieldError,
    RecordError,
    UnreadableError,
)
from keyhouse.limits import COUNTER_MAX, PAGE_ROWS_MAX
from keyhouse.schema import Compact, compact
from keyhouse.store import Store, Transaction
from keyhouse.systems.rosey import requests as asked
from keyhouse.systems.rosey.limits import PLUGIN_BATCH_KEYS_MAX, PLUGIN_VALUE_BYTES_MAX
from keyhouse.systems.rosey.quota import Account, Quota
from keyhouse.systems.rosey.schema import SCHEMAS, VALUE
from keyhouse.systems.rosey.turns import Turns

__all__ = ["Plugin"]

T = TypeVar("T")

_OK: Final = b'{"success":true}'
_ABSENT: Final = b'{"success":true,"exists":false}'
_ENVELOPE_BYTES: Final = 512
_SCAN_ROWS: Final = 100
_COUNT_ROWS: Final = 1_000

_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_build = VALUE.template.build


class Plugin:
    def __init__(self, name: str, engine: Engine, quota: Quota, reply_bytes_max: int) -> None:
        self.name = name
        self.store = Store(SCHEMAS[0], engine, name)
        self.turns = Turns()
        self.account = Account(self.store, quota) if quota else None
        self._reply_bytes_max = reply_bytes_max - _ENVELOPE_BYTES

    # Reading

    async def get(self, body: asked.Get) -> bytes:
        key = _build({"key": body.key})
        if not self.turns.quiet:
            await self.turns.after_writes_of((key,))
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

    async def mget(self, body: asked.Mget) -> bytes:
        keys = [_build({"key": key}) for key in dict.fromkeys(_given(body.keys))]
        _refuse_many(len(keys))
        await self.turns.after_writes_of(keys)
        tx = Transaction(self.store.engine, self.store.space, self.store.binding)
        await tx.prefetch(keys)
        found: dict[str, msgspec.Raw] = {}
        for key in keys:
            if (written := await tx.row(key)) is not None:
                _check_stored(key, written[0])
                found[key] = msgspec.Raw(written[0])
        answer = {
            "success": True,
            "values": found,
            "missing": [key for key in keys if key not in found],
        }
        return self._fitting(_encode(answer))

    async def list(self, body: asked.List) -> bytes:
        await self.turns.after_all_writes()
        limit = min(body.limit, PAGE_ROWS_MAX)
        keys, cursor = await self._keys(body, limit)
        fitting = self._count_that_fits(len(_encode(key)) + 1 for key in keys)
        if fitting < len(keys):
            self._refuse_none(fitting)
            keys, cursor = await self._keys(body, fitting)
        answer = {
            "success": True,
            "keys": keys,
            "count": len(keys),
            "truncated": cursor is not None,
        }
        return _encode(answer if cursor is None else answer | {"cursor": cursor})

    async def scan(self, body: asked.Scan) -> bytes:
        await self.turns.after_all_writes()
        left, room, cursor = min(body.limit, PAGE_ROWS_MAX), self._reply_bytes_max, body.cursor
        parts: list[bytes] = []
        while left:
            page = await self.store.page(
                VALUE, limit=min(left, _SCAN_ROWS), cursor=cursor, prefix=body.prefix or None
            )
            shown = [
                _encode({"key": e.key, "value": e.record, "revision": e.revision})
                for e in page.entries
            ]
            fitting = self._count_that_fits((len(each) + 1 for each in shown), room)
            parts += shown[:fitting]
            if fitting < len(shown):
                self._refuse_none(len(parts))
                if fitting:
                    page = await self.store.page(
                        VALUE, limit=fitting, cursor=cursor, prefix=body.prefix or None
                    )
                    cursor = page.cursor
                break
            room -= sum(len(each) + 1 for each in shown)
            left -= len(shown)
            cursor = page.cursor
            if cursor is None:
                break
            await asyncio.sleep(0)
        more = b"" if cursor is None else b',"cursor":%b' % _encode(cursor)
        truncated = b"false" if cursor is None else b"true"
        head = b'{"success":true,"entries":[%b],"count":%d,"truncated":%b%b}'
        return head % (b",".join(parts), len(parts), truncated, more)

    async def count(self, body: asked.Count) -> bytes:
        await self.turns.after_all_writes()
        total, cursor = 0, None
        while True:
            keys, cursor = await self.store.keys(
                VALUE, limit=_COUNT_ROWS, cursor=cursor, prefix=body.prefix or None
            )
            total += len(keys)
            if cursor is None:
                return b'{"success":true,"count":%d}' % total
            await asyncio.sleep(0)

    # Writing

    async def set(self, body: asked.Set) -> bytes:
        key = _given(body.key)
        value = _compact(body.value)
        if self.account is not None:
            await self._commit(
                [_build({"key": key})], lambda tx: tx.put(VALUE, value, ttl=body.ttl, key=key)
            )
            return _OK
        with self.turns.write(key) as earlier:
            for write in earlier:
                await write.ended()
            await self.store.put(VALUE, value, ttl=body.ttl, key=key)
        return _OK

    async def delete(self, body: asked.Delete) -> bytes:
        key = _build({"key": body.key})
        deleted, _ = await self._commit([key], lambda tx: tx.delete(VALUE, key=key))
        return b'{"success":true,"deleted":%b}' % (b"true" if deleted else b"false")

    async def incr(self, body: asked.Incr) -> bytes:
        key = _build({"key": body.key})
        value, _ = await self._commit([key], lambda tx: _incremented(tx, key, body.by, body.ttl))
        return b'{"success":true,"value":%d}' % value

    async def cas(self, body: asked.Cas) -> bytes:
        key = _build({"key": body.key})
        value = _compact(body.value)
        expect: Any = body.revision
        _, revision = await self._commit(
            [key], lambda tx: tx.put(VALUE, value, ttl=body.ttl, expect=expect, key=key)
        )
        return b'{"success":true,"revision":%d}' % revision

    async def touch(self, body: asked.Touch) -> bytes:
        key = _build({"key": body.key})
        touched, _ = await self._commit([key], lambda tx: _touched(tx, key, body.ttl))
        return b'{"success":true,"exists":%b}' % (b"true" if touched else b"false")

    async def batch(self, body: asked.Batch) -> bytes:
        ops = [_checked(op) for op in _given(body.ops)]
        _refuse_many(len(ops))
        keys = list(dict.fromkeys(str(op.key) for op in ops))

        async def work(tx: Transaction) -> list[dict[str, Any]]:
            return [await _applied(tx, op) for op in ops]

        results, revision = await self._commit(keys, work)
        answer = {"success": True, "results": results}
        return self._fitting(_encode(answer | {"revision": revision} if revision else answer))

    async def _commit(
        self, keys: Sequence[str], work: Callable[[Transaction], Awaitable[T]]
    ) -> tuple[T, int]:
        """What `work` gave, and the revision of its commit (0: it wrote nothing)."""

        async def whole(tx: Transaction) -> tuple[T, Transaction]:
            return await work(tx), tx

        with self.turns.write(*keys) as earlier:
            for write in earlier:
                await write.ended()
            if self.account is None:
                result, tx = await self.store.transact(whole)
            else:
                result, tx = await self.account.transact(keys, whole)
            return result, tx.revision

    # Answers that fit

    async def _keys(self, body: asked.List, limit: int) -> tuple[Sequence[str], str | None]:
        return await self.store.keys(
            VALUE, limit=limit, cursor=body.cursor, prefix=body.prefix or None
        )

    def _count_that_fits(self, sizes: Any, room: int | None = None) -> int:
        left = self._reply_bytes_max if room is None else room
        count = 0
        for size in sizes:
            left -= size
            if left < 0:
                return count
            count += 1
        return count

    def _refuse_none(self, count: int) -> None:
        """A page without anything, and with more behind it, would be asked for again and again."""
        if not count:
            raise LimitError(
                "Not even the first of them fits into an answer: see reply_bytes_max.",
                limit=self._reply_bytes_max,
            )

    def _fitting(self, answer: bytes) -> bytes:
        if len(answer) > self._reply_bytes_max:
            raise LimitError(
                "The answer would be too large: ask for less.",
                bytes=len(answer),
                limit=self._reply_bytes_max,
            )
        return answer


def _given(value: Any) -> Any:
    """What `Body` has seen to be there."""
    assert value is not UNSET
    return value


def _refuse_many(count: int) -> None:
    if count > PLUGIN_BATCH_KEYS_MAX:
        raise LimitError(
            "Too many keys or operations in one request.", count=count, limit=PLUGIN_BATCH_KEYS_MAX
        )


def _compact(value: Any) -> Compact:
    """The value as it is stored, of what was read from a body; LimitError when it is too large."""
    document = compact(value)
    if len(document.text) > PLUGIN_VALUE_BYTES_MAX:
        raise LimitError(
            "The value is larger than 64 KiB.",
            bytes=len(document.text),
            limit=PLUGIN_VALUE_BYTES_MAX,
        )
    return document


def _check_stored(key: str, value: bytes) -> None:
    """A row that somebody has written by hand may not be JSON; it must not spoil an answer."""
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


def _checked(op: asked.Operation) -> asked.Operation:
    if op.op is UNSET:
        raise MissingFieldError("Missing required field.", field="op")
    required = asked.OPERATION_REQUIRED.get(op.op)
    if required is None:
        raise RecordError(
            "There is no such operation in a batch.", op=op.op, known=list(asked.OPERATION_REQUIRED)
        )
    for name in required:
        if getattr(op, name) is UNSET:
            raise MissingFieldError("Missing required field.", field=name, op=op.op)
    _build({"key": op.key})
    if op.value is not UNSET:
        op.value = _compact(op.value)
    return op


async def _applied(tx: Transaction, op: asked.Operation) -> dict[str, Any]:
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
