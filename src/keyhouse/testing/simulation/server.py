"""A simulated database: the engine in memory, behind a network and with a disk that can be lost.

A process sees what the contract of `keyhouse.engine` allows, and no more:

| event | commits in flight | calls meanwhile | watches |
|---|---|---|---|
| crash | a prefix of those that arrived is applied; all are unknown | UnavailableError | wait |
| partition of a process | those on their way are unknown | UnavailableError | wait |
| a lost request, a lost reply | unknown: not applied, applied | | |
| a late request | unknown, and applied some time after that | | |

Commits that arrive are applied in groups, as a group commit does, so requests that were sent in
one order may be applied in another. A read sees what is applied when it arrives. Each process is
given its own `SimulatedEngine`; the rows are those of one MemoryEngine.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeVar

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import (
    Batch,
    Capabilities,
    CaughtUp,
    Change,
    Page,
    Row,
    Span,
    check_limits,
)
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import ClosedError, KeyhouseError, UnavailableError, UnknownOutcomeError
from keyhouse.testing.faults import Killed

__all__ = ["Network", "SimulatedEngine", "SimulatedServer"]

T = TypeVar("T")

_UNAVAILABLE: Final = "The simulated server is not reachable."
_UNKNOWN: Final = "The simulated server did not confirm the commit."


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """The delays and losses of calls. Probabilities are of one commit; `delay_seconds` is the
    longest of one way, `timeout_seconds` how long a caller waits for a reply that was lost."""

    delay_seconds: float = 0.02
    slow: float = 0.02
    slow_seconds: float = 1.0
    lost_request: float = 0.01
    lost_reply: float = 0.02
    late_request: float = 0.01
    timeout_seconds: float = 2.0
    sync_seconds: float = 0.005


class SimulatedServer:
    """The database that all processes share. `note` gets a line for each event; `pending` are the
    commits that have arrived and are not durable."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        network: Network,
        note: Callable[[str, str], None],
        *,
        changes_kept: int,
    ) -> None:
        self.network = network
        self.rows = MemoryEngine(clock, changes_kept=changes_kept)
        self.note = note
        self._random = random
        self.pending: list[tuple[str, Batch, asyncio.Future[int | None]]] = []
        self._syncing: asyncio.TimerHandle | None = None
        self._up = asyncio.Event()
        self._up.set()

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    def calm(self) -> None:
        """From now on nothing is lost or slow."""
        self.network = Network(slow=0, lost_request=0, lost_reply=0, late_request=0)

    async def wait_up(self) -> None:
        await self._up.wait()

    async def commit(self, space: str, batch: Batch) -> int | None:
        """Apply a batch with the next group. Raises UnknownOutcomeError if the server crashes
        before."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int | None] = loop.create_future()
        self.pending.append((space, batch, done))
        if self._syncing is None:
            pause = self._random.uniform(0, self.network.sync_seconds)
            self._syncing = loop.call_later(pause, self._sync)
        return await done

    def _sync(self) -> None:
        self._syncing = None
        group, self.pending = self.pending, []
        for space, batch, done in group:
            self.apply(space, batch, done)

    def apply(self, space: str, batch: Batch, done: asyncio.Future[int | None]) -> None:
        try:
            revision = step(self.rows.commit(space, batch))
        except KeyhouseError as error:  # such as a counter that would overflow
            if not done.done():
                done.set_exception(error)
            return
        self.note("server", _batch_text(space, batch, revision))
        if not done.done():
            done.set_result(revision)

    def crash(self) -> None:
        """Stop. Of the pending commits a prefix is durable, and no caller learns which."""
        if not self.is_up:
            return
        self._up.clear()
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None
        group, self.pending = self.pending, []
        durable = self._random.randint(0, len(group))
        self.note("server", f"crashes; {durable} of {len(group)} pending commits are durable")
        for space, batch, done in group[:durable]:
            self.apply(space, batch, asyncio.get_running_loop().create_future())
            _fail(done, UnknownOutcomeError(_UNKNOWN))
        for _, _, done in group[durable:]:
            _fail(done, UnknownOutcomeError(_UNKNOWN))

    def restart(self) -> None:
        if not self.is_up:
            self.note("server", "is up again")
            self._up.set()


class SimulatedEngine:
    """The server as one process reaches it. `kill` ends the process: each call then raises Killed,
    a BaseException, so that no handler continues."""

    def __init__(self, server: SimulatedServer, process: str, random: Random) -> None:
        rows = server.rows
        self.clock = rows.clock
        self.capabilities: Capabilities = msgspec.structs.replace(
            rows.capabilities, name="simulated", durable=True, shared=True, snapshots=False
        )
        self._server = server
        self._rows = rows
        self._process = process
        self._random = random
        self._connected = asyncio.Event()
        self._connected.set()
        self._is_killed = False
        self._is_closed = False

    # Faults

    def kill(self) -> None:
        self._is_killed = True

    def disconnect(self) -> None:
        """Cut the process off from the server."""
        self._connected.clear()

    def reconnect(self) -> None:
        self._connected.set()

    # The contract

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return await self._ask(lambda: self._rows.read(space, keys, bytes_max=bytes_max))

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        return await self._ask(
            lambda: self._rows.scan(
                space, span, limit=limit, reverse=reverse, keys_only=keys_only, bytes_max=bytes_max
            )
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        check_limits(batch, self.capabilities)
        network, fate = self._server.network, self._random.random()
        await self._travel()
        if (fate := fate - network.lost_request) < 0:
            return await self._lost("request", batch)
        if (fate := fate - network.late_request) < 0:
            late = self._random.uniform(0, 3 * network.timeout_seconds)
            asyncio.get_running_loop().call_later(late, self._arrive_late, space, batch)
            return await self._lost("request for now", batch)
        revision = await self._server.commit(space, batch)
        self._check_alive()
        if fate < network.lost_reply:
            return await self._lost("reply", batch)
        await self._delay()
        if not self._connected.is_set():
            return await self._lost("reply", batch)
        return revision

    async def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        await self._travel()
        changes = self._rows.watch(space, span, since=since, caught_up=caught_up)
        try:
            async for change in changes:
                while not (self._connected.is_set() and self._server.is_up):
                    await self._connected.wait()
                    await self._server.wait_up()
                await self._delay()
                yield change
        finally:
            await changes.aclose()

    async def sweep(self, *, limit: int) -> int:
        return await self._ask(lambda: self._rows.sweep(limit=limit))

    async def forget(self, space: str, *, last: str | None = None) -> None:
        return await self._ask(lambda: self._rows.forget(space, last=last))

    async def spaces(self) -> AsyncIterator[str]:
        await self._travel()
        async for space in self._rows.spaces():
            yield space

    async def close(self) -> None:
        self._is_closed = True

    # The way there and back

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._travel()
        result = await call()
        await self._delay()
        if not self._connected.is_set():
            raise UnavailableError(_UNAVAILABLE)
        return result

    async def _travel(self) -> None:
        """Wait until the call arrives. Raises UnavailableError if it cannot."""
        self._check_alive()
        if self._is_closed:
            raise ClosedError("The engine is closed.")
        await self._delay()
        if not (self._connected.is_set() and self._server.is_up):
            await self._delay()
            raise UnavailableError(_UNAVAILABLE)

    async def _delay(self) -> None:
        network, random = self._server.network, self._random
        longest = network.slow_seconds if random.random() < network.slow else network.delay_seconds
        await asyncio.sleep(random.uniform(0, longest))
        self._check_alive()

    async def _lost(self, part: str, batch: Batch) -> int | None:
        self._server.note(self._process, f"loses the {part} of a commit ({_keys(batch)})")
        await asyncio.sleep(self._server.network.timeout_seconds)
        self._check_alive()
        raise UnknownOutcomeError(_UNKNOWN)

    def _arrive_late(self, space: str, batch: Batch) -> None:
        if self._server.is_up:
            nobody = asyncio.get_running_loop().create_future()
            nobody.add_done_callback(_ignore)
            self._server.apply(space, batch, nobody)

    def _check_alive(self) -> None:
        if self._is_killed:
            raise Killed


def step(work: Awaitable[T]) -> T:
    """Return the result of a coroutine that never waits, as all calls of the memory engine."""
    iterator = work.__await__()
    try:
        next(iterator)
    except StopIteration as stopped:
        result: T = stopped.value
        return result
    raise AssertionError("the engine in memory has waited")


def _fail(done: asyncio.Future[int | None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _ignore(done: asyncio.Future[int | None]) -> None:
    if not done.cancelled():
        done.exception()


def _batch_text(space: str, batch: Batch, revision: int | None) -> str:
    outcome = "a check fails" if revision is None else f"revision {revision}"
    return f"commit in {space}: {_keys(batch)}: {outcome}"


def _keys(batch: Batch) -> str:
    parts = [f"put {put.key}" for put in batch.puts]
    parts += [f"delete {key}" for key in batch.deletes]
    parts += [f"add {add.by} to {add.key}" for add in batch.adds]
    return ", ".join(parts) or "nothing"
