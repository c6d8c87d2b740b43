"""The log of a watch: the tail of the mirror's entries.

Nothing is buffered for a watcher, however slow it is: `engines.watch_loop` has the loop. A reload
replaces the mirror while a watch delivers its page, so an entry is known by its sequence.
"""

import asyncio
from collections.abc import Callable

from keyhouse.clock import Clock
from keyhouse.engine import Change, Span
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import Mirror, MirrorState
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.engines.watch_loop import LogPage
from keyhouse.errors import UnavailableError


class MirrorLog:
    """The changes of one space, for one watch."""

    reconnects = True

    def __init__(
        self, bucket: Bucket, space: str, span: Span, clock: Clock, check_open: Callable[[], None]
    ) -> None:
        self._bucket = bucket
        self._space = space
        self._span = span
        self._clock = clock
        self._check_open = check_open

    async def start(self, since: int | None) -> int:
        await until_available(self._bucket.sync)
        return self._bucket.mirror.position

    def wakeup(self) -> asyncio.Event:
        return self._bucket.mirror.next_change()

    async def page(self, position: int) -> LogPage[tuple[str, Entry]]:
        mirror = await self._mirror()
        entries = [
            (key, entry)
            for key, entry in mirror.changes_since(self._space, position)
            if key in self._span
        ]
        return LogPage(entries, max(position, mirror.position), mirror.horizon)

    async def change(self, entry: tuple[str, Entry]) -> Change | None:
        key, change = entry
        mirror = self._bucket.mirror
        if mirror.state is not MirrorState.SERVING:
            mirror = await self._mirror()
        newest = mirror.entry(self._space, key)
        if newest is None:  # a tombstone may have been pruned meanwhile
            return Change(key, change.revision, None) if change.is_tombstone else None
        if newest.sequence != change.sequence:
            return None
        if not change.is_live(self._clock.now()):
            return Change(key, change.revision, None)
        value = mirror.values.get(change.sequence)
        if value is None:
            value = await self._value(change)
        return None if value is None else Change(key, change.revision, value, change.expires)

    def leave(self) -> None:
        pass

    async def _mirror(self) -> Mirror:
        """Return the mirror as soon as it serves."""
        while True:
            self._check_open()
            mirror = self._bucket.mirror
            if mirror.state is MirrorState.SERVING:
                return mirror
            await mirror.next_change().wait()

    async def _value(self, entry: Entry) -> bytes | None:
        """Return the entry's value, waiting as long as the server is unavailable."""
        while True:
            try:
                return await until_available(lambda: self._bucket.value(entry))
            except UnavailableError:
                self._check_open()
