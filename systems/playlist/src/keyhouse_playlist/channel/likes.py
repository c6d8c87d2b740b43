"""Likes of what is playing."""

from keyhouse.store import Transaction
from keyhouse_playlist.channel.events import ChannelEvents
from keyhouse_playlist.channel.messages import LikeEvent, LikeReply
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.limits import LIKE_SECONDS
from keyhouse_playlist.schema import DAY_LIKES, ITEM_LIKES, LIKED, DayLikes, ItemLikes, Liked
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["Likes"]


class Likes:
    def __init__(self, stores: PlaylistStores, channel: Channel, events: ChannelEvents) -> None:
        self._stores = stores
        self._channel = channel
        self._events = events

    async def like_current(self, username: str) -> LikeReply:
        """Like the current item, once in 24 hours, and tell the open pages. Raises
        RobotUnavailableError or NoCurrentItemError."""
        playing = await self._channel.current()
        reply = await self.like(playing.video_id, username)
        if reply.status == "ok":
            await self._events.publish("like", LikeEvent(reply.video_id, reply.like_count))
        return reply

    async def like(self, video_id: str, username: str) -> LikeReply:
        """Count a like, unless the same user liked the item in the last 24 hours."""
        today = self._stores.today()

        async def work(tx: Transaction) -> LikeReply:
            likes = await tx.get(ITEM_LIKES, video_id=video_id) or ItemLikes(video_id=video_id)
            if await tx.get(LIKED, video_id=video_id, user_id=username) is not None:
                return LikeReply("duplicate", video_id, likes.like_count)
            likes.like_count += 1
            await tx.put(ITEM_LIKES, likes)
            liked = Liked(
                liked_at=self._stores.now_text(), expires_at=self._stores.now_text(LIKE_SECONDS)
            )
            await tx.put(LIKED, liked, video_id=video_id, user_id=username)
            day = await tx.get(DAY_LIKES, day=today, video_id=video_id)
            day = day or DayLikes(day=today, video_id=video_id)
            day.like_count += 1
            await tx.put(DAY_LIKES, day)
            return LikeReply("ok", video_id, likes.like_count)

        return await self._stores.likes.transact(work)
