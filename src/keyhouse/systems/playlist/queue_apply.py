"""Pushing a playlist to the channel's queue, item by item, at the pace of the channel.

    mode               before the additions             position
    ----------------   ------------------------------   ---------------------------------
    append             nothing                          the end
    insert_next        nothing                          next, the last item first
    preserve_current   all but the current are removed  the end
    hard_replace       the queue is cleared             the end

One push runs at a time in a process. It can be cancelled between two items; what was added stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from keyhouse.errors import NotFoundError
from keyhouse.systems.playlist.catalog import CatalogItem
from keyhouse.systems.playlist.catalog_access import CatalogAccess
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.channel_events import ChannelEvents
from keyhouse.systems.playlist.errors import ApplyRunningError, RobotUnavailableError
from keyhouse.systems.playlist.messages import ApplyMode, ApplyReply, FailedItem
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.robot import Robot
from keyhouse.systems.playlist.statistics import ChannelStatistics

__all__ = ["QueueApply"]

NOT_IN_CATALOG: Final = "not_in_catalog"
ROBOT_UNAVAILABLE: Final = "robot_unavailable"


class _Push(msgspec.Struct):
    """A push that runs, or has ended."""

    id: str
    playlist_id: str
    mode: ApplyMode
    total: int
    enqueued: list[tuple[str, int | None]] = []
    failed: list[FailedItem] = []
    is_cancelled: bool = False

    def progress(self, status: str) -> dict[str, object]:
        return {
            "apply_id": self.id,
            "playlist_id": self.playlist_id,
            "mode": self.mode,
            "status": status,
            "done": len(self.enqueued) + len(self.failed),
            "total": self.total,
            "enqueued_count": len(self.enqueued),
            "failed": self.failed,
        }


class QueueApply:
    def __init__(
        self,
        playlists: SavedPlaylists,
        catalog: CatalogAccess,
        channel: Channel,
        robot: Robot,
        statistics: ChannelStatistics,
        events: ChannelEvents,
        *,
        interval_seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._playlists = playlists
        self._catalog = catalog
        self._channel = channel
        self._robot = robot
        self._statistics = statistics
        self._events = events
        self._interval_seconds = interval_seconds
        self._sleep = sleep
        self._running: _Push | None = None

    async def apply(self, playlist_id: str, mode: ApplyMode) -> ApplyReply:
        """Push a playlist and return when all of it was sent. Raises RobotUnavailableError if no
        robot takes the first item, and ApplyRunningError while another push runs."""
        if self._running is not None:
            raise ApplyRunningError(
                "A playlist is being pushed: wait for its end, or cancel it.",
                apply_id=self._running.id,
            )
        push = self._running = _Push(str(uuid4()), playlist_id, mode, 0)
        try:
            return await self._push(push)
        finally:
            self._running = None

    def cancel(self, id: str) -> None:
        """Stop a push after the item that is being added. Raises NotFoundError without one."""
        if self._running is None or self._running.id != id:
            raise NotFoundError("No such push is running.", apply_id=id)
        self._running.is_cancelled = True

    async def _push(self, push: _Push) -> ApplyReply:
        stored = await self._playlists.read(push.playlist_id)
        ids = [item.video_id for item in stored.items]
        known = await self._catalog.get_many(ids)
        push.total = len(ids)
        push.failed = [FailedItem(id, NOT_IN_CATALOG) for id in ids if id not in known]
        items = [known[id] for id in ids if id in known]
        if not await self._channel.exists():
            raise RobotUnavailableError("The channel's robot does not run: nothing was changed.")
        await self._events.publish("apply", push.progress("running"))
        try:
            await self._prepare(push.mode)
            await self._add_all(push, items)
        finally:
            await self._statistics.count_queued(push.enqueued)
            status = "cancelled" if push.is_cancelled else "done"
            await self._events.publish("apply", push.progress(status))
        await self._statistics.count_applied(push.playlist_id)
        return ApplyReply(
            len(push.enqueued), push.failed, push.id, "cancelled" if push.is_cancelled else "ok"
        )

    async def _prepare(self, mode: ApplyMode) -> None:
        if mode == "hard_replace":
            await self._robot.clear()
        elif mode == "preserve_current":
            for uid in await self._channel.uids_without_current():
                await self._robot.remove(uid)

    async def _add_all(self, push: _Push, items: Sequence[CatalogItem]) -> None:
        position = "next" if push.mode == "insert_next" else "end"
        ordered = list(reversed(items)) if position == "next" else list(items)
        for number, item in enumerate(ordered):
            if push.is_cancelled:
                return
            if number and self._interval_seconds:
                await self._sleep(self._interval_seconds)
            try:
                reason = await self._robot.add(item.manifest_url, position)
            except RobotUnavailableError:
                if not push.enqueued:
                    raise
                left = ordered[number:]
                push.failed += [FailedItem(each.video_id, ROBOT_UNAVAILABLE) for each in left]
                return
            if reason is None:
                push.enqueued.append((item.video_id, item.duration_seconds))
            else:
                push.failed.append(FailedItem(item.video_id, reason))
            await self._events.publish("apply", push.progress("running"))
