"""The push that runs in a channel, as a row that all processes share: one runs at a time, whichever
process it was started in, and any process can cancel it.

    row                         next
    -------------------------   -----------------------------------------------------------------
    absent, or expired          start                                      -> present
    present                     an item was sent: progress, a later end    -> present
                                cancel, in any process                     -> `is_cancelled`
                                the push has ended                         -> absent
                                its process died: nobody renews it         -> expired

An item that the channel took is counted in the commit that records the progress, so that a killed
process loses no count of what it had recorded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from keyhouse.errors import NotFoundError, UnavailableError
from keyhouse.service.background_task import retrying
from keyhouse.store import Transaction
from keyhouse.systems.playlist.errors import ApplyRunningError
from keyhouse.systems.playlist.schema import CHANNEL_PUSH, ApplyMode, ChannelPush
from keyhouse.systems.playlist.statistics import ChannelStatistics, QueuedItem
from keyhouse.systems.playlist.stores import PlaylistStores, readable

__all__ = ["ChannelPushes"]

LEASE_SECONDS: Final = 30.0


class ChannelPushes:
    """`pace_seconds` is the longest time that one item may take."""

    def __init__(
        self,
        stores: PlaylistStores,
        statistics: ChannelStatistics,
        *,
        channel: str,
        pace_seconds: float,
    ) -> None:
        self._stores = stores
        self._store = stores.analytics
        self._statistics = statistics
        self._channel = channel
        self._lease_seconds = LEASE_SECONDS + pace_seconds

    async def running(self) -> ChannelPush | None:
        """Return the push that runs now, in any process."""
        return await readable(self._store, CHANNEL_PUSH, channel=self._channel)

    async def start(
        self, apply_id: str, playlist_id: str, mode: ApplyMode, total: int
    ) -> ChannelPush:
        """Record a push that starts. Raises ApplyRunningError while another one runs."""
        push = ChannelPush(
            apply_id=apply_id,
            playlist_id=playlist_id,
            mode=mode,
            total=total,
            started_at=self._stores.now_text(),
            expires_at=self._stores.now_text(self._lease_seconds),
        )

        async def work(tx: Transaction) -> None:
            other = await tx.get(CHANNEL_PUSH, channel=self._channel)
            if other is not None:
                raise ApplyRunningError(
                    "A playlist is being pushed: wait for its end, or cancel it.",
                    apply_id=other.apply_id,
                )
            await tx.put(CHANNEL_PUSH, push, channel=self._channel)

        await self._store.transact(work)
        return push

    async def may_continue(self, push: ChannelPush) -> bool:
        """Return whether nobody has cancelled the push, and no other one has taken its place."""
        stored = await self.running()
        if stored is None:
            return True  # it expired, and the next step records it again
        return stored.apply_id == push.apply_id and not stored.is_cancelled

    async def advance(
        self, push: ChannelPush, *, done: int, enqueued: int, added: Sequence[QueuedItem] = ()
    ) -> None:
        """Record the progress and count the items that were added, in one commit, exactly once.
        Waits for a store that is away; raises UnavailableError if that takes too long."""

        async def work(tx: Transaction) -> None:
            await self._statistics.count_queued(tx, added)
            stored = await tx.get(CHANNEL_PUSH, channel=self._channel)
            if stored is not None and stored.apply_id != push.apply_id:
                return
            renewed = msgspec.structs.replace(
                stored or push,
                done=done,
                enqueued_count=enqueued,
                expires_at=self._stores.now_text(self._lease_seconds),
            )
            await tx.put(CHANNEL_PUSH, renewed, channel=self._channel)

        await self._commit(work, f"{push.apply_id}:{done}")

    async def end(self, push: ChannelPush, *, is_applied: bool) -> None:
        """Remove the row, and count the push if all of it was sent."""

        async def work(tx: Transaction) -> None:
            if is_applied:
                await self._statistics.count_applied(tx, push.playlist_id)
            stored = await tx.get(CHANNEL_PUSH, channel=self._channel)
            if stored is not None and stored.apply_id == push.apply_id:
                await tx.delete(CHANNEL_PUSH, channel=self._channel)

        await self._commit(work, f"{push.apply_id}:end")

    async def cancel(self, apply_id: str) -> None:
        """Stop a push after the item that is being added. Raises NotFoundError without one."""

        async def work(tx: Transaction) -> None:
            stored = await tx.get(CHANNEL_PUSH, channel=self._channel)
            if stored is None or stored.apply_id != apply_id:
                raise NotFoundError("No such push is running.", apply_id=apply_id)
            stored.is_cancelled = True
            await tx.put(CHANNEL_PUSH, stored, channel=self._channel)

        await self._store.transact(work)

    async def _commit(self, work: Callable[[Transaction], Awaitable[None]], batch_id: str) -> None:
        try:
            async with asyncio.timeout(self._lease_seconds):
                await retrying(lambda: self._store.transact(work, batch_id=batch_id))
        except TimeoutError:
            raise UnavailableError("The store is unavailable: the push was stopped.") from None
