"""Counts of plays and additions to the queue, and the items with most plays and likes.

Each count is a transaction over the rows that it changes, so no update is lost, whatever the number
of processes. A play has an id of channel, item and second of its start: the same event again
changes nothing. Plays whose event no process received are counted from the robot's bucket, if they
are still current: a row for each place of the queue keeps the two apart, in whichever order they
come.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from keyhouse.schema import SECONDS, Record
from keyhouse.store import Store, Transaction
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.channel.messages import CountedItem
from keyhouse_playlist.limits import PLAY_EVENT_SECONDS
from keyhouse_playlist.schema import (
    CHANNEL_PLAY,
    DAY_LIKES,
    DAY_PLAYS,
    GLOBAL_COUNTERS,
    ITEM_COUNTERS,
    ITEM_LIKES,
    PLAYLIST_COUNTERS,
    ChannelPlay,
    DayPlays,
    GlobalCounters,
    ItemCounters,
    PlaylistCounters,
)
from keyhouse_playlist.stores import PlaylistStores, readable

__all__ = ["ChannelStatistics", "QueuedItem"]

QueuedItem = tuple[str, int | None]
"""The id of an item, and its duration in seconds if that is known."""


class ChannelStatistics:
    def __init__(self, stores: PlaylistStores, catalog: CatalogAccess) -> None:
        self._stores = stores
        self._catalog = catalog

    # Counting

    async def count_play(
        self,
        channel: str,
        uid: object,
        video_id: str,
        seconds: int | None,
        start_second: int,
        *,
        media_id: str = "",
    ) -> None:
        """Count a play by its event, once for each channel, item and second of its start.

        `media_id` is the robot's id of the item, which stays the same when the catalog changes.
        """

        async def work(tx: Transaction) -> None:
            counted = await tx.get(CHANNEL_PLAY, channel=channel, uid=str(uid))
            play = ChannelPlay(
                video_id=video_id, media_id=media_id, counted_at=self._stores.now_text()
            )
            await tx.put(CHANNEL_PLAY, play, channel=channel, uid=str(uid))
            if counted is None or not counted.is_reconciled or not _is_same(counted, play):
                await self._count_play(tx, video_id, seconds)
            elif start_second - PLAY_EVENT_SECONDS > SECONDS.parse(counted.counted_at) // 1_000:
                await self._count_play(tx, video_id, seconds)  # it started again since

        played = f"play:{channel}:{uid}:{start_second}"
        batch_id = sha256(played.encode()).hexdigest()
        await self._stores.analytics.transact(work, batch_id=batch_id)

    async def count_missed_play(
        self, channel: str, uid: object, video_id: str, seconds: int | None, *, media_id: str = ""
    ) -> bool:
        """Count an item that is playing, unless its event was counted; return whether it was
        missed."""
        play = ChannelPlay(
            video_id=video_id,
            media_id=media_id,
            counted_at=self._stores.now_text(),
            is_reconciled=True,
        )

        async def work(tx: Transaction) -> bool:
            counted = await tx.get(CHANNEL_PLAY, channel=channel, uid=str(uid))
            if counted is not None and _is_same(counted, play):
                return False
            await tx.put(CHANNEL_PLAY, play, channel=channel, uid=str(uid))
            await self._count_play(tx, video_id, seconds)
            return True

        return await self._stores.analytics.transact(work)

    async def _count_play(self, tx: Transaction, video_id: str, seconds: int | None) -> None:
        today = self._stores.today()
        item = await tx.get(ITEM_COUNTERS, video_id=video_id)
        item = item or ItemCounters(video_id=video_id)
        item.play_count += 1
        item.last_played_at = self._stores.now_text()
        item.duration_seconds = seconds if seconds is not None else item.duration_seconds
        await tx.put(ITEM_COUNTERS, item)
        day = await tx.get(DAY_PLAYS, day=today, video_id=video_id)
        day = day or DayPlays(day=today, video_id=video_id)
        day.play_count += 1
        await tx.put(DAY_PLAYS, day)
        total = await tx.get(GLOBAL_COUNTERS) or GlobalCounters()
        total.items_played += 1
        total.duration_played_seconds += seconds or 0
        await tx.put(GLOBAL_COUNTERS, total)

    async def count_queued(self, tx: Transaction, items: Sequence[QueuedItem]) -> None:
        """Count items, with their durations, that were added to the queue."""
        if not items:
            return
        now = self._stores.now_text()
        for video_id, times in Counter(video_id for video_id, _ in items).items():
            item = await tx.get(ITEM_COUNTERS, video_id=video_id)
            item = item or ItemCounters(video_id=video_id)
            item.queue_count += times
            item.last_queued_at = now
            await tx.put(ITEM_COUNTERS, item)
        total = await tx.get(GLOBAL_COUNTERS) or GlobalCounters()
        total.items_queued += len(items)
        total.duration_queued_seconds += sum(seconds or 0 for _, seconds in items)
        await tx.put(GLOBAL_COUNTERS, total)

    async def count_applied(self, tx: Transaction, playlist_id: str) -> None:
        """Count that a playlist was pushed to the queue."""
        counters = await tx.get(PLAYLIST_COUNTERS, playlist_id=playlist_id)
        counters = counters or PlaylistCounters(playlist_id=playlist_id)
        counters.apply_count += 1
        counters.last_applied_at = self._stores.now_text()
        await tx.put(PLAYLIST_COUNTERS, counters)

    # Reading

    async def top_played(self, window_days: int, limit: int) -> list[CountedItem]:
        return await self._top(self._stores.analytics, DAY_PLAYS, "play_count", window_days, limit)

    async def top_liked(self, window_days: int, limit: int) -> list[CountedItem]:
        return await self._top(self._stores.likes, DAY_LIKES, "like_count", window_days, limit)

    async def counts_of(self, video_id: str) -> tuple[int, int]:
        """Return the plays and likes of an item."""
        item = await readable(self._stores.analytics, ITEM_COUNTERS, video_id=video_id)
        likes = await readable(self._stores.likes, ITEM_LIKES, video_id=video_id)
        return (0 if item is None else item.play_count), (0 if likes is None else likes.like_count)

    async def _top(
        self, store: Store, record: Record[Any], member: str, window_days: int, limit: int
    ) -> list[CountedItem]:
        """Sum the days of the window, today included (UTC)."""
        first = self._stores.today() - timedelta(days=window_days - 1)
        counts: Counter[str] = Counter()
        async for entry in store.scan(record, between=(first, None), unreadable="skip"):
            counts[entry.record.video_id] += getattr(entry.record, member)
        best = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:limit]
        known = await self._catalog.get_many([video_id for video_id, _ in best])
        return [
            CountedItem(
                video_id,
                item.title if (item := known.get(video_id)) else None,
                count,
                item.thumbnail_url if item else None,
            )
            for video_id, count in best
        ]


def _is_same(counted: ChannelPlay, play: ChannelPlay) -> bool:
    """Return whether two plays at one place of the queue are of the same media: a refresh may give
    an item another id while it plays."""
    if counted.media_id and play.media_id:
        return counted.media_id == play.media_id
    return counted.video_id == play.video_id
