"""Key locks: serialise the operations of one tenant per key, in the order in which they arrive.

A client may publish a `set`, wait for nothing, and `get` the key: it must read its own write. So a
read or write of a key waits for earlier writes of that key, and an operation over many keys waits
for all earlier writes of the tenant. Other operations run concurrently. The order holds within one
process; processes that share the load each have their own.

Writes of one key that wait for an earlier one form a group and share a commit, so that a thousand
increments of one key cost a few syncs. Each is applied after the one before it and has its own
result or error. A read that waits for a group closes it: later writes form the next group, and the
read does not see them. A write whose result contains its revision (a compare-and-set) is never
part of a group, because a later write of the same commit would have the same revision.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.store import Transaction

__all__ = ["KeyLocks", "PendingWrite"]

R = TypeVar("R")

Work = Callable[[Transaction], Awaitable[Any]]
Transact = Callable[[Work], Awaitable[Any]]


class KeyLocks:
    """The writes in flight of one tenant: the latest of each key."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: dict[str, PendingWrite] = {}

    @property
    def are_free(self) -> bool:
        return not self._writes

    def is_written(self, key: str) -> bool:
        """Return whether a write of the key is in flight."""
        return key in self._writes

    async def wait_for(self, keys: Iterable[str]) -> None:
        """Wait for earlier writes of these keys."""
        for key in keys:
            if (write := self._writes.get(key)) is not None:
                await write.finished()

    async def wait_for_all(self) -> None:
        """Wait for all earlier writes."""
        for write in list(self._writes.values()):
            write.is_open = False
        for write in list(self._writes.values()):
            await write.finished()

    def write(self, *keys: str) -> "PendingWrite":
        """`with locks.write(key) as earlier:` registers a write, which must first wait until those
        `earlier` finish."""
        return PendingWrite(self._writes, keys)

    async def write_grouped(
        self, key: str, work: Callable[[Transaction], Awaitable[R]], transact: Transact
    ) -> R:
        """Run `work` in a transaction after earlier writes of the key, together with others that
        wait for them; return its result."""
        latest = self._writes.get(key)
        if isinstance(latest, _WriteGroup) and latest.is_open:
            return await latest.add(work)  # type: ignore[no-any-return]
        group = _WriteGroup(self._writes, (key,))
        with group as earlier:
            result = group.add(work)
            try:
                for write in earlier:
                    await write.finished()
            finally:
                group.is_open = False
                await group.run(transact)
        return await result  # type: ignore[no-any-return]


class PendingWrite(msgspec.Struct, eq=False):
    """A write, in flight until its block is left. (A Struct is made at half the cost.)

    `future` is created for the first waiter: most writes have none. `is_open`: further writes may
    join, since it is a group that has not started.
    """

    writes: "dict[str, PendingWrite]"
    keys: tuple[str, ...]
    is_open: bool = False
    is_finished: bool = False
    future: asyncio.Future[None] | None = None

    def __enter__(self) -> "list[PendingWrite]":
        writes = self.writes
        earlier = []
        for key in self.keys:
            if (write := writes.get(key, self)) is not self:
                earlier.append(write)
            writes[key] = self
        return earlier

    def __exit__(self, *_: object) -> None:
        writes = self.writes
        for key in self.keys:
            if writes.get(key) is self:
                del writes[key]
        self.is_finished = True
        if self.future is not None:
            self.future.set_result(None)

    async def finished(self) -> None:
        """Wait until it is finished. Later writes do not join a group that a read waits for."""
        self.is_open = False
        if self.is_finished:
            return
        if self.future is None:
            self.future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self.future)


class _WriteGroup(PendingWrite):
    """Writes of one key that wait for the same earlier write, and then share a commit."""

    is_open: bool = True
    members: list[tuple[Work, asyncio.Future[Any]]] = []

    def add(self, work: Work) -> "asyncio.Future[Any]":
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.members.append((work, result))
        return result

    async def run(self, transact: Transact) -> None:
        """Run all members in one transaction. If that is rejected as a whole, such as by a quota,
        run each in its own."""
        try:
            if len(self.members) > 1 and await self._run_together(transact):
                return
            for work, result in self.members:
                await _run_alone(transact, work, result)
        except BaseException as error:
            for _, result in self.members:
                if not result.done():
                    result.set_exception(error)
            if not isinstance(error, Exception):
                raise

    async def _run_together(self, transact: Transact) -> bool:
        """Return False if the transaction was rejected and nothing was written."""
        outcomes: list[Any] = []

        async def work(tx: Transaction) -> None:
            outcomes.clear()  # of an earlier attempt, which lost a race
            for member, _ in self.members:
                try:
                    outcomes.append(await member(tx))
                except KeyhouseError as error:  # the transaction holds nothing of this member
                    outcomes.append(error)

        try:
            await transact(work)
        except KeyhouseError as error:
            if error.status >= 500:
                raise
            return False
        for (_, result), outcome in zip(self.members, outcomes, strict=True):
            if result.cancelled():
                continue
            if isinstance(outcome, KeyhouseError):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
        return True


async def _run_alone(transact: Transact, work: Work, result: "asyncio.Future[Any]") -> None:
    try:
        outcome = await transact(work)
    except KeyhouseError as error:
        if not result.cancelled():
            result.set_exception(error)
    else:
        if not result.cancelled():
            result.set_result(outcome)
