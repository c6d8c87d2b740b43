"""A process that writes until it is killed. A separate module, since new processes import it by
name.

Several tasks write concurrently, so that commits are grouped. After each acknowledged operation, a
line `TASK NUMBER` is written to a pipe. Some `WAYS` break durability, to show that the test can
fail.
"""

import asyncio
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from keyhouse.engine import Batch
from keyhouse.engines.sqlite import SqliteEngine, connections, engine
from keyhouse.engines.sqlite.writer import SqliteWriter
from keyhouse.engines.thread_commit_queue import TransactionGroup
from keyhouse.errors import KeyhouseError
from keyhouse.store import Store
from tests.store.support.shop_workload import OPERATIONS, SHOP, TASKS, operation, perform

CHECKPOINT_PAGES = 40
"""Few enough that a kill often hits a checkpoint."""

DISK_SECONDS = 0.005


def write(path: str, seed: str, way: str, acknowledgements: Connection) -> None:
    WAYS[way]()
    asyncio.run(_write(path, seed, acknowledgements.fileno()))


async def _write(path: str, seed: str, pipe: int) -> None:
    store = Store(SHOP, SqliteEngine.open(path), "shop")
    await asyncio.gather(*(_work(store, seed, task, pipe) for task in range(TASKS)))


async def _work(store: Store, seed: str, task: int, pipe: int) -> None:
    number = await store.get(OPERATIONS, task=f"t{task}") or 0
    while True:
        number += 1
        await perform(store, operation(seed, task, number))
        os.write(pipe, f"{task} {number}\n".encode())


def checkpoint_often() -> None:
    """Checkpoint all the time, as a busy file does occasionally. Not a weakness."""
    often = f"wal_autocheckpoint = {CHECKPOINT_PAGES}"
    connections.WRITER_SETTINGS = connections.WRITER_SETTINGS.replace(
        f"wal_autocheckpoint = {connections.CHECKPOINT_PAGES}", often
    )


def acknowledge_before_commit() -> None:
    """Slow down the commit like a disk: if it took no time, all kills could miss it."""

    class Hasty(SqliteWriter):
        def _on_loop(self, group: TransactionGroup) -> None:
            def commit(group: TransactionGroup) -> KeyhouseError | None:
                time.sleep(DISK_SECONDS)
                return self.make_durable(group)

            self.execute(group)
            group.settle()
            self._on_thread(commit, group)

    vars(engine)["SqliteWriter"] = Hasty


def write_derived_rows_apart() -> None:
    """Put index rows in a second commit, right after the first."""
    whole = SqliteEngine.commit

    async def commit(self: SqliteEngine, space: str, batch: Batch) -> int | None:
        derived = tuple(put for put in batch.puts if put.key.startswith("idx:"))
        others = tuple(put for put in batch.puts if put not in derived)
        revision = await whole(self, space, msgspec.structs.replace(batch, puts=others))
        if revision is not None and derived:
            await whole(self, space, Batch(puts=derived))
        return revision

    SqliteEngine.commit = commit  # type: ignore[method-assign]


WAYS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "often": checkpoint_often,
    "early": acknowledge_before_commit,
    "apart": write_derived_rows_apart,
}
