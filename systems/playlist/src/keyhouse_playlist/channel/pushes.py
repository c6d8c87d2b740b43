"""Pushing a playlist to the channel's queue, item by item, at the pace of the channel.

    mode               before the additions             position
    ----------------   ------------------------------   ---------------------------------
    append             nothing                          the end
    insert_next        nothing                          next, the last item first
    preserve_current   all but the current are removed  the end
    hard_replace       the queue is cleared             the end

A push is a background operation of the process in which it was started. The row `apply/{channel}`
names it, so that one runs at a time, whatever process it is in. Every process can read its progress
and cancel it between two items; what was added stays. An item that the channel took is counted in
the commit that records the progress, so that a killed process loses no count. If the process died,
its lease expires: the next push takes its place, or another process ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec

from keyhouse.errors import DataError, LeaseError, NotFoundError, UnavailableError
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.background_records import OperationRun, RunStatus
from keyhouse.service.background_task import OperationCancelledError, OperationTask, retrying
from keyhouse.store import Transaction
from keyhouse_playlist.accounts.roles import ADMIN
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.catalog.tables import CatalogItem
from keyhouse_playlist.channel.messages import ApplyEvent, ApplyReply, FailedItem
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.channel.robot import Robot
from keyhouse_playlist.channel.statistics import ChannelStatistics, QueuedItem
from keyhouse_playlist.errors import ApplyRunningError, RobotUnavailableError
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.schema import CHANNEL_PUSH, PUSH_RUN, ApplyMode, ChannelPush
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["ChannelPushes", "PushProgress", "PushRecords"]

LEASE_SECONDS: Final = 30.0
PUSH: Final = "push"
NOT_IN_CATALOG: Final = "not_in_catalog"
ROBOT_UNAVAILABLE: Final = "robot_unavailable"


class PushInput(msgspec.Struct):
    """The input of the operation."""

    playlist_id: str
    mode: ApplyMode


class PushProgress(ApplyEvent):
    """The state of a push: its event, and whether it was cancelled and is about to end."""

    is_cancelled: bool = False

    def event(self) -> ApplyEvent:
        return ApplyEvent(*(getattr(self, name) for name in ApplyEvent.__struct_fields__))


class PushRecords:
    """The rows of pushes. Satisfies `OperationRecords`."""

    run = PUSH_RUN

    def __init__(self, stores: PlaylistStores, channel: str) -> None:
        self._store = stores.analytics
        self._channel = channel

    async def running(self) -> PushProgress | None:
        """Return the push that runs now, in any process."""
        try:
            push = await self._store.get(CHANNEL_PUSH, channel=self._channel)
            if push is None:
                return None
            run = await self._store.get(PUSH_RUN, id=push.apply_id)
            if run is None or self._is_dead(run):
                return None
            given = msgspec.convert(run.input, PushInput)
        except (DataError, msgspec.ValidationError):  # another program's
            return None
        return PushProgress(
            apply_id=run.id,
            playlist_id=given.playlist_id,
            mode=given.mode,
            status="running",
            done=run.current,
            total=run.total,
            enqueued_count=run.checkpoint or 0,
            is_cancelled=run.is_cancelled,
        )

    async def write(
        self,
        tx: Transaction,
        run: OperationRun,
        status: RunStatus,
        *,
        ended_at: int | None = None,
        error: str | None = None,
    ) -> None:
        """Name the push that runs in the channel, until its end. Raises ApplyRunningError while
        another one runs."""
        if ended_at is not None:
            await self.release(tx, run.id)
            return
        named = await tx.get(CHANNEL_PUSH, channel=self._channel)
        if named is not None:
            if named.apply_id == run.id:
                return
            other = await tx.get(PUSH_RUN, id=named.apply_id)
            if other is not None and not self._is_dead(other):
                raise ApplyRunningError(
                    "A playlist is being pushed: wait for its end, or cancel it.",
                    apply_id=other.id,
                )
            await tx.delete(PUSH_RUN, id=named.apply_id)  # if it was only slow, it stops
        await tx.put(CHANNEL_PUSH, ChannelPush(apply_id=run.id), channel=self._channel)

    async def append(self, *_: object) -> None:
        """A push has no log."""

    async def release(self, tx: Transaction, id: str) -> None:
        """Remove the name of a push that has ended."""
        named = await tx.get(CHANNEL_PUSH, channel=self._channel)
        if named is not None and named.apply_id == id:
            await tx.delete(CHANNEL_PUSH, channel=self._channel)

    def _is_dead(self, run: OperationRun) -> bool:
        return run.lease_until <= self._store.engine.clock.now()


class ChannelPushes:
    """`publish` sends an event to the open pages of all processes."""

    def __init__(
        self,
        stores: PlaylistStores,
        records: PushRecords,
        playlists: SavedPlaylists,
        catalog: CatalogAccess,
        channel: Channel,
        robot: Robot,
        statistics: ChannelStatistics,
        *,
        publish: Callable[[Literal["apply"], ApplyEvent], Awaitable[None]],
        interval_seconds: float,
    ) -> None:
        self._store = stores.analytics
        self._records = records
        self._playlists = playlists
        self._catalog = catalog
        self._channel = channel
        self._robot = robot
        self._statistics = statistics
        self._publish = publish
        self._interval_seconds = interval_seconds
        self.operations = BackgroundOperations(
            self._store,
            records,
            {PUSH: OperationKind(run=self._run, exclusive=True)},
            name="playlist_push",
            lease_seconds=LEASE_SECONDS,
        )

    async def start(
        self, playlist_id: str, mode: ApplyMode, caller: ChannelMember
    ) -> "asyncio.Future[ApplyReply]":
        """Start a push; return its call. Only admins replace the whole queue. Raises
        RobotUnavailableError without a robot, and ApplyRunningError while another push runs."""
        if mode == "hard_replace":
            caller.require(ADMIN)
        await self._playlists.read(playlist_id)
        if not await self._channel.exists():
            raise RobotUnavailableError("The channel's robot does not run: nothing was changed.")
        given = {"playlist_id": playlist_id, "mode": mode}
        return await self.operations.start(PUSH, given)

    async def apply(self, playlist_id: str, mode: ApplyMode, caller: ChannelMember) -> ApplyReply:
        """Push a playlist and return when all of it was sent. Raises RobotUnavailableError if no
        robot takes the first item."""
        call = await self.start(playlist_id, mode, caller)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            raise UnavailableError("The push was stopped with its process.") from None

    async def cancel(self, id: str) -> None:
        """Stop a push after the item that is being added. Raises NotFoundError without one."""
        push = await self._records.running()
        if push is None or push.apply_id != id or not await self.operations.cancel(id):
            raise NotFoundError("No such push is running.", apply_id=id)

    # The operation

    async def _run(self, task: OperationTask) -> ApplyReply:
        given = msgspec.convert(task.input, PushInput)
        ids = [item.video_id for item in (await self._playlists.read(given.playlist_id)).items]
        known = await self._catalog.get_many(ids)
        failed = [FailedItem(id, NOT_IN_CATALOG) for id in ids if id not in known]
        push = PushProgress(
            task.id, given.playlist_id, given.mode, "running", len(failed), len(ids), 0, failed
        )
        try:
            await self._record(task, push)
            await self._publish("apply", push.event())
            await self._prepare(given.mode)
            await self._add_all(task, push, [known[id] for id in ids if id in known])
            push.status = "cancelled" if push.is_cancelled else "done"
        finally:
            if push.status == "running":
                push.status = "failed"
            await self._end(push)
            await self._publish("apply", push.event())
        return ApplyReply(
            push.enqueued_count,
            push.failed,
            push.apply_id,
            "cancelled" if push.is_cancelled else "ok",
        )

    async def _prepare(self, mode: ApplyMode) -> None:
        if mode == "hard_replace":
            await self._robot.clear()
        elif mode == "preserve_current":
            for uid in await self._channel.uids_without_current():
                await self._robot.remove(uid)

    async def _add_all(
        self, task: OperationTask, push: PushProgress, items: Sequence[CatalogItem]
    ) -> None:
        position = "next" if push.mode == "insert_next" else "end"
        ordered = list(reversed(items)) if position == "next" else list(items)
        for number, item in enumerate(ordered):
            if number and self._interval_seconds:
                await asyncio.sleep(self._interval_seconds)
            run = await self._store.get(PUSH_RUN, id=task.id)
            if run is None or run.is_cancelled:
                push.is_cancelled = True
                return
            try:
                reason = await self._robot.add(item.manifest_url, position)
            except RobotUnavailableError:
                if not push.enqueued_count:
                    raise
                left = ordered[number:]
                push.failed += [FailedItem(each.video_id, ROBOT_UNAVAILABLE) for each in left]
                push.done += len(left)
                return
            push.done += 1
            added: list[QueuedItem] = []
            if reason is None:
                push.enqueued_count += 1
                added.append((item.video_id, item.duration_seconds))
            else:
                push.failed.append(FailedItem(item.video_id, reason))
            await self._record(task, push, added)
            await self._publish("apply", push.event())

    async def _record(
        self, task: OperationTask, push: PushProgress, added: Sequence[QueuedItem] = ()
    ) -> None:
        """Record the progress and count the items that were added, in one commit, exactly once."""

        async def count(tx: Transaction) -> None:
            await self._statistics.count_queued(tx, added)

        async def record() -> None:
            try:
                await task.commit(
                    count, current=push.done, total=push.total, checkpoint=push.enqueued_count
                )
            except (OperationCancelledError, LeaseError):  # the channel took it all the same
                await self._commit(count, f"{push.apply_id}:{push.done}")

        await _in_time(record())

    async def _end(self, push: PushProgress) -> None:
        """Make room for the next push, and count this one if all of it was sent."""

        async def work(tx: Transaction) -> None:
            if push.status != "failed":
                await self._statistics.count_applied(tx, push.playlist_id)
            await self._records.release(tx, push.apply_id)

        await _in_time(self._commit(work, f"{push.apply_id}:end"))

    async def _commit(self, work: Callable[[Transaction], Awaitable[None]], batch_id: str) -> None:
        await retrying(lambda: self._store.transact(work, batch_id=batch_id))


async def _in_time(commit: Awaitable[None]) -> None:
    """Wait for a commit while the store is unavailable. Raises UnavailableError after a while."""
    try:
        async with asyncio.timeout(LEASE_SECONDS):
            await commit
    except TimeoutError:
        raise UnavailableError("The store is unavailable: the push was stopped.") from None
