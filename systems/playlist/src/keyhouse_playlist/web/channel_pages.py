"""The channel: what is playing, the queue, pushes, likes and statistics."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.http import Redirect, Route
from keyhouse.service.pages import PageReply
from keyhouse_playlist.accounts.roles import MEMBER
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.channel.likes import Likes
from keyhouse_playlist.channel.pushes import ChannelPushes
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.limits import DAYS_KEPT
from keyhouse_playlist.schema import ApplyMode
from keyhouse_playlist.web.frame import PATHS, Frame, PageHeaders

__all__ = ["ChannelPages"]

WINDOWS: Final = (7, 30, 90, DAYS_KEPT)
TOP_ITEMS: Final = 25

START_SECONDS: Final = 0.4
"""A push that fails in this time is reported at once; after it, by events."""


class PushForm(msgspec.Struct):
    playlist_id: str
    mode: ApplyMode = "append"


class CancelPushForm(msgspec.Struct):
    apply_id: str


class WindowQuery(msgspec.Struct):
    window_days: Annotated[int, Meta(ge=1, le=DAYS_KEPT)] = 30


class ChannelPages:
    def __init__(
        self,
        frame: Frame,
        channel: Channel,
        pushes: ChannelPushes,
        likes: Likes,
        statistics: ChannelStatistics,
    ) -> None:
        self._frame = frame
        self._channel = channel
        self._pushes = pushes
        self._likes = likes
        self._statistics = statistics

    async def show(self, caller: ChannelMember) -> dict[str, Any]:
        """The current item and the queue."""
        try:
            return {"queue": await self._channel.queue()}
        except KeyhouseError as error:
            return {"queue": None, "problem": error.sentence}

    async def now(self, caller: ChannelMember) -> dict[str, Any]:
        """The part of a page that says what is playing."""
        return {"now": await self._frame.current()}

    async def like(self, headers: PageHeaders, caller: ChannelMember) -> PageReply | Redirect:
        """Like what is playing."""
        status, said = 200, ""
        try:
            reply = await self._likes.like_current(caller.username)
            said = "Liked." if reply.status == "ok" else "You liked it already today."
        except KeyhouseError as error:
            if not headers.is_partial:
                raise
            status, said = error.status, error.sentence
        if not headers.is_partial:
            return Redirect(PATHS.path("channel"))
        values = {"now": await self._frame.current(), "said": said}
        return PageReply("now_part.html", values, status)

    # Pushes

    async def push(
        self, form: PushForm, headers: PageHeaders, caller: ChannelMember
    ) -> PageReply | Redirect:
        """Push a playlist to the queue, in the background."""
        outcome: dict[str, Any] = {}
        try:
            call = await self._pushes.start(form.playlist_id, form.mode, caller)
            with suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    outcome["push_result"] = await asyncio.shield(call)
        except KeyhouseError as error:
            if not headers.is_partial:
                raise
            outcome["push_problem"] = error.sentence
        return await self._pushed(headers, **outcome)

    async def cancel(
        self, form: CancelPushForm, headers: PageHeaders, caller: ChannelMember
    ) -> PageReply | Redirect:
        """Cancel a push after the item that is being added."""
        with suppress(NotFoundError):  # it has ended meanwhile
            await self._pushes.cancel(form.apply_id)
        return await self._pushed(headers)

    async def _pushed(self, headers: PageHeaders, **outcome: Any) -> PageReply | Redirect:
        if not headers.is_partial:
            return Redirect(PATHS.path("channel"))
        return PageReply("push_part.html", {"push": await self._frame.push(), **outcome})

    async def statistics(self, query: WindowQuery, caller: ChannelMember) -> dict[str, Any]:
        """The items with most plays and likes."""
        days = query.window_days
        return {
            "days": days,
            "windows": WINDOWS,
            "played": await self._statistics.top_played(days, TOP_ITEMS),
            "liked": await self._statistics.top_liked(days, TOP_ITEMS),
        }

    def routes(self) -> list[Route]:
        page, form = self._frame.page, self._frame.form
        return [
            page("/channel", self.show, "channel.html"),
            page("/queue", self.show, "queue_part.html"),
            page("/now", self.now, "now_part.html"),
            page("/statistics", self.statistics, "statistics.html"),
            form("/like", self.like, back="/channel", scope=MEMBER),
            form("/push", self.push, back="/channel"),
            form("/push/cancel", self.cancel, back="/channel"),
        ]
