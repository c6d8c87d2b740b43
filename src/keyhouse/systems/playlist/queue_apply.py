"""Pushing a playlist to the channel's queue, item by item, at the pace of the channel.

    mode               before the additions             position
    ----------------   ------------------------------   ---------------------------------
    append             nothing                          the end
    insert_next        nothing                          next, the last item first
    preserve_current   all but the current are removed  the end
    hard_replace       the queue is cleared             the end

One push runs at a time in a channel. It can be cancelled between two items; what was added stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal
from uuid import uuid4

import msgspec

from keyhouse.systems.playlist.catalog import CatalogItem
from keyhouse.systems.playlist.catalog_access import CatalogAccess
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.channel_events import ChannelEvents, apply_event
from keyhouse.systems.playlist.channel_pushes import ChannelPushes
from keyhouse.systems.playlist.errors import RobotUnavailableError
from keyhouse.systems.playlist.messages import ApplyReply, FailedItem
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.robot import Robot
from keyhouse.systems.playlist.schema import ApplyMode, ChannelPush
from keyhouse.systems.playlist.statistics import QueuedItem

__all__ = ["QueueApply"]

NOT_IN_CATALOG: Final = "not_in_catalog"
ROBOT_UNAVAILABLE: Final = "robot_unavailable"


class _Progress(msgspec.Struct):
    """The progress of a push."""

    push: ChannelPush
    enqueued: int = 0
    failed: list[FailedItem] = []
    is_cancelled: bool = False

    @property
    def done(self) -> int:
        return self.enqueued + len(self.failed)

    def event(self, status: str) -> dict[str, object]:
        return apply_event(self.push, status, self.done, self.enqueued, self.failed)


class QueueApply:
    def __init__(
        self,
        playlists: SavedPlaylists,
        catalog: CatalogAccess,
        channel: Channel,
        robot: Robot,
        pushes: ChannelPushes,
        events: ChannelEvents,
        *,
        interval_seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._playlists = playlists
        self._catalog = catalog
        self._channel = channel
        self._robot = robot
        self._pushes = pushes
        self._events = events
        self._interval_seconds = interval_seconds
        self._sleep = sleep

    async def apply(self, playlist_id: str, mode: ApplyMode) -> ApplyReply:
        """Push a playlist and return when all of it was sent. Raises RobotUnavailableError if no
        robot takes the first item, and ApplyRunningError while another push runs."""
        stored = await self._playlists.read(playlist_id)
        ids = [item.video_id for item in stored.items]
        known = await self._catalog.get_many(ids)
        if not await self._channel.exists():
            raise RobotUnavailableError("The channel's robot does not run: nothing was changed.")
        push = await self._pushes.start(str(uuid4()), playlist_id, mode, len(ids))
        failed = [FailedItem(id, NOT_IN_CATALOG) for id in ids if id not in known]
        progress = _Progress(push, failed=failed)
        await self._run(progress, [known[id] for id in ids if id in known])
        status: Literal["ok", "cancelled"] = "cancelled" if progress.is_cancelled else "ok"
        return ApplyReply(progress.enqueued, progress.failed, push.apply_id, status)

    async def cancel(self, id: str) -> None:
        """Stop a push after the item that is being added. Raises NotFoundError without one."""
        await self._pushes.cancel(id)

    async def _run(self, progress: _Progress, items: Sequence[CatalogItem]) -> None:
        await self._events.publish("apply", progress.event("running"))
        status = "failed"
        try:
            await self._prepare(progress.push.mode)
            await self._add_all(progress, items)
            status = "cancelled" if progress.is_cancelled else "done"
        finally:
            await self._pushes.end(progress.push, is_applied=status != "failed")
            await self._events.publish("apply", progress.event(status))

    async def _prepare(self, mode: ApplyMode) -> None:
        if mode == "hard_replace":
            await self._robot.clear()
        elif mode == "preserve_current":
            for uid in await self._channel.uids_without_current():
                await self._robot.remove(uid)

    async def _add_all(self, progress: _Progress, items: Sequence[CatalogItem]) -> None:
        position = "next" if progress.push.mode == "insert_next" else "end"
        ordered = list(reversed(items)) if position == "next" else list(items)
        for number, item in enumerate(ordered):
            if number and self._interval_seconds:
                await self._sleep(self._interval_seconds)
            if not await self._pushes.may_continue(progress.push):
                progress.is_cancelled = True
                return
            try:
                reason = await self._robot.add(item.manifest_url, position)
            except RobotUnavailableError:
                if not progress.enqueued:
                    raise
                left = ordered[number:]
                progress.failed += [FailedItem(each.video_id, ROBOT_UNAVAILABLE) for each in left]
                return
            added: list[QueuedItem] = []
            if reason is None:
                progress.enqueued += 1
                added.append((item.video_id, item.duration_seconds))
            else:
                progress.failed.append(FailedItem(item.video_id, reason))
            await self._pushes.advance(
                progress.push, done=progress.done, enqueued=progress.enqueued, added=added
            )
            await self._events.publish("apply", progress.event("running"))
