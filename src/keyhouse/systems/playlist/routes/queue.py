"""Routes of the channel: its queue, the current item, events, statistics and likes."""

from collections.abc import Mapping

import msgspec

from keyhouse.errors import NotFoundError
from keyhouse.http import EventStream, Response, Route, RouteGroup
from keyhouse.systems.playlist import messages
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.channel_events import ChannelEvents
from keyhouse.systems.playlist.errors import (
    ApplyRunningError,
    NoCurrentItemError,
    RobotUnavailableError,
    RoleError,
)
from keyhouse.systems.playlist.queue_apply import QueueApply
from keyhouse.systems.playlist.routes.prefix import API
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions
from keyhouse.systems.playlist.statistics import ChannelStatistics

__all__ = ["QueueHandlers", "queue_routes"]


class QueueHandlers:
    def __init__(
        self,
        channel: Channel,
        apply: QueueApply,
        events: ChannelEvents,
        statistics: ChannelStatistics,
        sessions: MemberSessions,
    ) -> None:
        self._channel = channel
        self._apply = apply
        self._events = events
        self._statistics = statistics
        self._sessions = sessions

    async def apply(self, body: messages.ApplyBody, caller: ChannelMember) -> messages.ApplyReply:
        """Push a playlist to the channel's queue. Answers when all of it was sent; progress is in
        the events."""
        caller.require_writer()
        if body.mode == "hard_replace":
            caller.require_admin()
        return await self._apply.apply(body.playlist_id, body.mode)

    async def cancel(self, id: str, caller: ChannelMember) -> messages.Done:
        """Cancel a push. Items that were added stay in the queue."""
        caller.require_writer()
        await self._apply.cancel(id)
        return messages.Done()

    async def queue(self, caller: ChannelMember | None) -> messages.QueueReply:
        """Return the channel's queue, with the predicted start of each item."""
        self._sessions.check_reader(caller)
        return await self._channel.queue()

    async def now_playing(
        self, caller: ChannelMember | None
    ) -> Response[messages.NowPlaying | None]:
        """Return the current item, or null."""
        self._sessions.check_reader(caller)
        playing = await self._channel.now_playing()
        return Response(msgspec.Raw(b"null") if playing is None else playing)  # type: ignore[arg-type]

    async def events(self, caller: ChannelMember | None) -> EventStream:
        """Stream `nowplaying`, `queue`, `like` and `apply`."""
        self._sessions.check_reader(caller)
        return self._events.stream()

    async def top_played(
        self, query: messages.StatisticsQuery, caller: ChannelMember | None
    ) -> messages.CountedItems:
        """List the items with most plays in the last days (UTC), today included."""
        self._sessions.check_reader(caller)
        found = await self._statistics.top_played(query.window_days, query.limit)
        return messages.CountedItems(found)

    async def top_liked(
        self, query: messages.StatisticsQuery, caller: ChannelMember | None
    ) -> messages.CountedItems:
        """List the items with most likes in the last days (UTC), today included."""
        self._sessions.check_reader(caller)
        found = await self._statistics.top_liked(query.window_days, query.limit)
        return messages.CountedItems(found)

    async def current(self, caller: ChannelMember | None) -> messages.CurrentStatistics:
        """Return the current item with its plays and likes."""
        self._sessions.check_reader(caller)
        playing = await self._channel.now_playing()
        if playing is None:
            return messages.CurrentStatistics(None, None, False)
        plays, likes = await self._statistics.counts_of(playing.video_id)
        return messages.CurrentStatistics(playing.video_id, playing.title, True, plays, likes)

    async def like(self, caller: ChannelMember) -> messages.LikeReply:
        """Like the current item, once in 24 hours."""
        playing = await self._channel.current()
        reply = await self._statistics.like(playing.video_id, caller.username)
        if reply.status == "ok":
            event = {"video_id": reply.video_id, "like_count": reply.like_count}
            await self._events.publish("like", event)
        return reply


def queue_routes(
    channel: Channel,
    apply: QueueApply,
    events: ChannelEvents,
    statistics: ChannelStatistics,
    sessions: MemberSessions,
) -> Mapping[str, Route]:
    on = QueueHandlers(channel, apply, events, statistics, sessions)

    api = RouteGroup(API, scope="", tag="channel")
    applied = [NotFoundError, RoleError, ApplyRunningError, RobotUnavailableError]
    liked = [NoCurrentItemError, RobotUnavailableError]
    return {
        "queue_apply": api.post(
            "/queue/apply",
            on.apply,
            problems=applied,
            example={"playlist_id": "6f1c1c1e", "mode": "append"},
        ),
        "queue_cancel": api.delete(
            "/queue/apply/{id}", on.cancel, problems=[NotFoundError, RoleError]
        ),
        "queue": api.get("/queue", on.queue, problems=[RobotUnavailableError]),
        "now_playing": api.get("/nowplaying", on.now_playing),
        "events": api.get("/events", on.events),
        "top_played": api.get("/stats/top-played", on.top_played),
        "top_liked": api.get("/stats/top-liked", on.top_liked),
        "current": api.get("/stats/current", on.current),
        "like": api.post("/likes/current", on.like, problems=liked),
        "like_alias": api.post("/stats/like", on.like, problems=liked),
    }
