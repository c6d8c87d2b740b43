"""Recovery: finishes what a killed process has left half-done, in all spaces of a service.

That is deletions of owned rows, and the erasure of spaces (`forget`). Both are jobs with a lease: a
runner that lives keeps it, and when it was killed, the first process that finds the lease expired
continues. So the spaces are looked through when a process starts, and at an interval by one process
for all; a space whose work is leased again as soon as its lease expires.

Looking through many spaces takes a share of the time: after each one the task pauses.
"""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from keyhouse.errors import KeyFieldError, KeyhouseError, LeaseError
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.shared_task import SharedTask
from keyhouse.service.spec import Keyspace
from keyhouse.service.worker import ALONE, Worker
from keyhouse.store import Resumed, Store, can_be_interrupted, resume_interrupted, stored_spaces

__all__ = ["Recovery"]

RECOVERY_SECONDS: Final = 300.0
"""Interval between two looks through all spaces."""

PAUSE_SHARE: Final = 19
"""The pause after a space, as a multiple of the time that it took: at most 5% of a core is used."""

PAUSE_SECONDS_MAX: Final = 1.0

_LEASE_MARGIN_MS: Final = 100


class Recovery:
    """The background task of the service `name`. `keyspaces` are its schemas and their engines."""

    def __init__(
        self,
        name: str,
        keyspaces: Sequence[Keyspace],
        log: OperationLog,
        *,
        seconds: float = RECOVERY_SECONDS,
        worker: Worker = ALONE,
        is_shared: bool = True,
    ) -> None:
        self._name = name
        self._worker = worker
        self._is_shared = is_shared
        self._keyspaces = [each for each in keyspaces if can_be_interrupted(each.schema)]
        self._log = log
        self._seconds = seconds
        self._leased: dict[tuple[int, str], int] = {}

    async def run(self) -> None:
        """Look through the spaces until cancelled; return at once if nothing can be left there."""
        if self._keyspaces:
            if self._worker.is_first:
                await self._turn()
            task = SharedTask(
                self._keyspaces[0].engine,
                f"recovery:{self._name}",
                self._seconds,
                self._log,
                delay=self._seconds,
                is_shared=self._is_shared,
            )
            await task.run(self._turn)

    async def _turn(self) -> float:
        """Look through all spaces, and wait for the leases found there, at most until the next look
        is due: if this process is killed, another one looks again."""
        time = asyncio.get_running_loop().time
        await self.resume()
        until = time() + self._seconds
        while self._leased and (pause := until - time()) > 0:
            await asyncio.sleep(min(pause, self._seconds_to_lease()))
            await self._resume_leased()
        return max(0.0, until - time())

    async def resume(self) -> int:
        """Look through all spaces once; return the number of deletions and erasures finished."""
        resumed = 0
        for number, keyspace in enumerate(self._keyspaces):
            try:
                async for space in stored_spaces(keyspace.engine):
                    started = perf_counter()
                    resumed += await self._resume(number, space)
                    pause = PAUSE_SHARE * (perf_counter() - started)
                    await asyncio.sleep(min(pause, PAUSE_SECONDS_MAX))
            except KeyhouseError as error:
                self._log.task_failed("recovery", error)
        return resumed

    async def _resume_leased(self) -> None:
        for (number, space), lease_until in list(self._leased.items()):
            if lease_until <= self._keyspaces[number].engine.clock.now():
                await self._resume(number, space)

    async def _resume(self, number: int, space: str) -> int:
        """Finish the work of one space. A failure is logged; the next look may succeed."""
        keyspace = self._keyspaces[number]
        self._leased.pop((number, space), None)
        try:
            fixed: dict[str, Any] = dict(keyspace.fixed)
            key_ring = keyspace.key_ring
            store = Store(keyspace.schema, keyspace.engine, space, key_ring=key_ring, **fixed)
            resumed = await resume_interrupted(store)
        except KeyFieldError:
            return 0  # a space of another program
        except LeaseError:
            return 0  # another process was first
        except KeyhouseError as error:
            self._log.task_failed("recovery", error)
            return 0
        if resumed.lease_until is not None:
            self._leased[number, space] = resumed.lease_until
        done = resumed.deletions + resumed.forgotten
        if done:
            self._report(space, resumed)
        return done

    def _report(self, space: str, resumed: Resumed) -> None:
        if resumed.forgotten:  # its name is part of what was erased
            self._log.logger.info("interrupted erasure of a space finished")
        else:
            self._log.logger.info(
                "interrupted deletions finished", space=space, deletions=resumed.deletions
            )

    def _seconds_to_lease(self) -> float:
        waits = [
            lease_until - self._keyspaces[number].engine.clock.now() + _LEASE_MARGIN_MS
            for (number, _), lease_until in self._leased.items()
        ]
        return max(0.1, min(waits, default=3_600_000) / 1_000)
