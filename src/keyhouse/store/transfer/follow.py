"""Apply the changes of a source to a target, while the source is being written.

Each space is watched from the revision at which it was copied. All changes pass through one bounded
queue: many changes become one commit, and a slow target exerts backpressure on the watches instead
of filling the memory. It need not be exact: the comparison at the end of the move finds what was
missed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Final

from keyhouse.engine import Change, Engine, Put, Span
from keyhouse.errors import UnavailableError, WatchExpiredError
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.transfer.bulk_writer import BulkWriter

QUEUE_CHANGES: Final = 2_000
DISCOVER_SECONDS: Final = 1.0
"""Interval of looking for new spaces in the source, and the pause before a broken watch restarts.
"""


class Follower:
    """Watches of all spaces, and the task that applies their changes.

    `copy` copies a whole space; `applied` is called with the number of changes written to a space.
    """

    def __init__(
        self,
        source: Engine,
        target: Engine,
        copy: Callable[[str], Awaitable[object]],
        applied: Callable[[str, int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._copy = copy
        self._applied = applied
        self._queue: asyncio.Queue[tuple[str, Change]] = asyncio.Queue(QUEUE_CHANGES)

    async def run(self, revisions: Mapping[str, int], switch: asyncio.Event) -> None:
        """Follow until the switch is set.

        `revisions` are the spaces already copied, with their revisions from before.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    space: group.create_task(self._watch(space, since))
                    for space, since in revisions.items()
                }
                applying = group.create_task(self._apply())
                while not switch.is_set():
                    async for space in stored_spaces(self._source):
                        if space not in tasks:
                            tasks[space] = group.create_task(self._watch(space, None))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(switch.wait(), DISCOVER_SECONDS)
                for task in (*tasks.values(), applying):
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _watch(self, space: str, since: int | None) -> None:
        while True:
            if since is None:
                since = (await self._source.scan(space, Span(), limit=1, keys_only=True)).revision
                await self._copy(space)
            try:
                async with aclosing(self._source.watch(space, Span(), since=since)) as changes:
                    async for change in changes:
                        await self._queue.put((space, change))
            except WatchExpiredError:
                since = None
            except UnavailableError:
                since = None
                await asyncio.sleep(DISCOVER_SECONDS)

    async def _apply(self) -> None:
        while True:
            newest: dict[str, dict[str, Change]] = {}
            space, change = await self._queue.get()
            newest.setdefault(space, {})[change.key] = change
            while not self._queue.empty():
                space, change = self._queue.get_nowait()
                newest.setdefault(space, {})[change.key] = change
            await asyncio.gather(
                *(self._write(space, changes) for space, changes in newest.items())
            )

    async def _write(self, space: str, changes: dict[str, Change]) -> None:
        writes = BulkWriter(self._target, space)
        for change in changes.values():
            if change.value is None:
                await writes.delete(change.key)
            else:
                await writes.put(Put(change.key, change.value, change.expires))
        await writes.flush()
        self._applied(space, len(changes))
