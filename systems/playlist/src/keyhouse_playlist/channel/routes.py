"""The HTTP routes of the channel: queue, pushes, events, statistics and likes."""

from collections.abc import Mapping

import msgspec

from keyhouse.errors import NotFoundError
from keyhouse.http import EventStream, Response, Route, RouteGroup
from keyhouse_playlist.accounts.roles import MEMBER, READ, WRITE
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.channel import messages
from keyhouse_playlist.channel.events import ChannelEvents
from keyhouse_playlist.channel.likes import Likes
from keyhouse_playlist.channel.pushes import ChannelPushes
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.errors import (
    ApplyRunningError,
    NoCurrentItemError,
    RobotUnavailableError,
    RoleError,
)
from keyhouse_playlist.messages import API, Done

__all__ = ["channel_routes"]


class ChannelHandlers:
    def __init__(
        self,
        channel: Channel,
        pushes: ChannelPushes,
        events: ChannelEvents,
        statistics: ChannelStatistics,
        likes: Likes,
    ) -> None:
        self._channel = channel
        self._pushes = pushes
        self._events = events
        self._statistics = statistics
        self._likes = likes

    async def apply(self, body: messages.ApplyBody, caller: ChannelMember) -> messages.ApplyReply:
        """Push a playlist to the channel's queue. Answers when all of it was sent; progress is in
        the events."""
        return await self._pushes.apply(body.playlist_id, body.mode, caller)

    async def cancel(self, id: str, caller: ChannelMember) -> Done:
        """Cancel a push. Items that were added stay in the queue."""
        await self._pushes.cancel(id)
        return Done()

    async def queue(self, caller: ChannelMember) -> messages.QueueReply:
        """Return the channel's queue, with the predicted start of each item."""
        return await self._channel.queue()

    async def now_playing(self, caller: ChannelMember) -> Response[messages.NowPlaying | None]:
        """Return the current item, or null."""
        playing = await self._channel.now_playing()
        return Response(msgspec.Raw(b"null") if playing is None else playing)  # type: ignore[arg-type]

    async def events(self, caller: ChannelMember) -> EventStream:
        """Stream `nowplaying`, `queue`, `like` and `apply`."""
        return self._events.stream()

    async def top_played(
        self, query: messages.StatisticsQuery, caller: ChannelMember
    ) -> messages.CountedItems:
        """List the items with most plays in the last days (UTC), today included."""
        lines = await self._statistics.top_played(query.window_days, query.limit)
        return messages.CountedItems(lines)

    async def top_liked(
        self, query: messages.StatisticsQuery, caller: ChannelMember
    ) -> messages.CountedItems:
        """List the items with most likes in the last days (UTC), today included."""
        lines = await self._statistics.top_liked(query.window_days, query.limit)
        return messages.CountedItems(lines)

    async def current(self, caller: ChannelMember) -> messages.CurrentStatistics:
        """Return the current item with its plays and likes."""
        playing = await self._channel.now_playing()
        if playing is None:
            return messages.CurrentStatistics(None, None, False)
        plays, likes = await self._statistics.counts_of(playing.video_id)
        return messages.CurrentStatistics(playing.video_id, playing.title, True, plays, likes)

    async def like(self, caller: ChannelMember) -> messages.LikeReply:
        """Like the current item, once in 24 hours."""
        return await self._likes.like_current(caller.username)


def channel_routes(
    channel: Channel,
    pushes: ChannelPushes,
    events: ChannelEvents,
    statistics: ChannelStatistics,
    likes: Likes,
) -> Mapping[str, Route]:
    on = ChannelHandlers(channel, pushes, events, statistics, likes)

    api = RouteGroup(API, scope=READ, tag="channel")
    applied = [NotFoundError, RoleError, ApplyRunningError, RobotUnavailableError]
    liked = [NoCurrentItemError, RobotUnavailableError]
    return {
        "queue_apply": api.post(
            "/queue/apply",
            on.apply,
            scope=WRITE,
            problems=applied,
            example={"playlist_id": "6f1c1c1e", "mode": "append"},
        ),
        "queue_cancel": api.delete(
            "/queue/apply/{id}", on.cancel, scope=WRITE, problems=[NotFoundError, RoleError]
        ),
        "queue": api.get("/queue", on.queue, problems=[RobotUnavailableError]),
        "now_playing": api.get("/nowplaying", on.now_playing),
        "events": api.get("/events", on.events),
        "top_played": api.get("/stats/top-played", on.top_played),
        "top_liked": api.get("/stats/top-liked", on.top_liked),
        "current": api.get("/stats/current", on.current),
        "like": api.post("/likes/current", on.like, scope=MEMBER, problems=liked),
        "like_alias": api.post("/stats/like", on.like, scope=MEMBER, problems=liked),
    }
