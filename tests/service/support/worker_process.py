"""Processes that share limits, as workers of one host do, and obey a test."""

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from keyhouse import ManualClock, Record, Schema, Space, Template, TextSegment, open_engine
from keyhouse.errors import QuotaError
from keyhouse.service.limit_table import LimitTable
from keyhouse.service.rates import SharedRateLimiter
from keyhouse.service.shared_limit import SharedLimit
from keyhouse.service.usage import Quota, Usage
from keyhouse.store import Store, Transaction

ITEM: Record[Any] = Record(Any, Template("{key}", key=TextSegment(chars_max=100)), name="item")
SCHEMA = Schema("items", ITEM, space=Space("a tenant"))


class WorkerProcess:
    """One process. `start` starts a command, `result` waits for its result."""

    def __init__(self, context: Any, folder: Path, number: int) -> None:
        self.connection, other = context.Pipe()
        self.process = context.Process(target=obey, args=(folder, number, other), daemon=True)
        self.process.start()
        other.close()
        assert self.result() == "open"

    def start(self, command: str, *arguments: Any) -> None:
        self.connection.send((command, arguments))

    def result(self) -> Any:
        assert self.connection.poll(60), "the process does not answer"
        return self.connection.recv()

    def run(self, command: str, *arguments: Any) -> Any:
        self.start(command, *arguments)
        return self.result()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def workers(folder: Path, count: int) -> Iterator[list[WorkerProcess]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    running = [WorkerProcess(context, folder, number) for number in range(count)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()


def all_run(running: list[WorkerProcess], command: str, *arguments: Any) -> list[Any]:
    """Run a command in all processes at once."""
    for each in running:
        each.start(command, *arguments)
    return [each.result() for each in running]


def obey(folder: Path, number: int, connection: Connection) -> None:
    commands = Commands(LimitTable.open(folder, 3), number, connection)
    connection.send("open")
    while True:
        command, arguments = connection.recv()
        connection.send(getattr(commands, command)(*arguments))


class Commands:
    def __init__(self, table: LimitTable, number: int, connection: Connection) -> None:
        self.table = table
        self.number = number
        self.connection = connection
        self.clock = ManualClock()

    def requests(self, tenant: str, count: int, burst: int) -> int:
        """Return how many requests of a tenant are within its rate, in no time at all."""
        shared = SharedLimit("rates", self.table.slots("rates"))
        rates = SharedRateLimiter(shared, 1, burst=burst, clock=self.clock)
        return sum(not rates.take(tenant) for _ in range(count))

    def hold(self, tenant: str, count: int, most: int) -> int:
        """Return how many places a tenant gets."""
        slots = self.table.slots("streams")
        return sum(slots.hold(tenant, most) for _ in range(count))

    def release(self, tenant: str, count: int) -> None:
        for _ in range(count):
            self.table.slots("streams").release(tenant)

    def lock(self, tenant: str) -> None:
        """Stop in the middle of an update, until the process is killed."""
        with self.table.slots("rates").locked(tenant, self.clock.now()) as slot:
            slot.set(2**61, kept_until=0)
            self.connection.send("locked")
            threading.Event().wait()

    def fill(self, url: str, quota: Quota, count: int) -> int:
        """Return how many keys of a tenant were written within the quota."""

        async def fill() -> int:
            engine = await open_engine(url)
            usage = Usage(Store(SCHEMA, engine, "ann"), quota)
            try:
                return await filled(usage, f"{self.number}", count)
            finally:
                await engine.close()

        return asyncio.run(fill())


async def filled(usage: Usage, name: str, count: int) -> int:
    """Write keys until the quota rejects one; return how many."""
    for number in range(count):
        try:
            await usage.transact(partial(_put, f"{name}-{number}"))
        except QuotaError:
            return number
    return count


async def _put(key: str, tx: Transaction) -> None:
    await tx.put(ITEM, 1, key=key)
