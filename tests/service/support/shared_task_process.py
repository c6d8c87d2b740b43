"""A process that shares a task on a SQLite file, until it is killed. A separate
module, since new processes import it by name."""

import asyncio
import os
from pathlib import Path

from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask

LEASE_SECONDS = 0.5


def share(path: str, log: str, hang: str) -> None:
    """Each run is a line of the log with the process; it hangs while that file exists."""

    async def main() -> None:
        async def work() -> float:
            with Path(log).open("a") as file:
                file.write(f"{os.getpid()}\n")
            while Path(hang).exists():
                await asyncio.sleep(0.01)
            return 0.02

        task = SharedTask(
            SqliteEngine.open(path),
            "test",
            0.02,
            OperationLog("test", 1),
            lease_seconds=LEASE_SECONDS,
        )
        await task.run(work)

    asyncio.run(main())
