"""The channel: what is playing, the queue, pushes, likes and statistics."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.http import HtmlPage, Redirect, Route
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.limits import DAYS_KEPT
from keyhouse.systems.playlist.messages import ApplyReply
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.pages.frame import HOME, Frame, PageHeaders
from keyhouse.systems.playlist.queue_apply import QueueApply
from keyhouse.systems.playlist.routes.queue import QueueHandlers
from keyhouse.systems.playlist.schema import ApplyMode
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions
from keyhouse.systems.playlist.statistics import ChannelStatistics

__all__ = ["ChannelPages"]

CHANNEL: Final = f"{HOME}channel"
STATISTICS: Final = f"{HOME}statistics"

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
        apply: QueueApply,
        likes: QueueHandlers,
        statistics: ChannelStatistics,
        sessions: MemberSessions,
    ) -> None:
        self._frame = frame
        self._channel = channel
        self._apply = apply
        self._likes = likes
        self._statistics = statistics
        self._sessions = sessions
        self._pushes: set[asyncio.Task[ApplyReply]] = set()

    async def show(self, caller: ChannelMember | None, root: str) -> HtmlPage:
        """The current item and the queue."""
        self._sessions.check_reader(caller)
        return await self._frame.page(
            "channel.html", caller, root, CHANNEL, **await self._queue_values()
        )

    async def queue(self, caller: ChannelMember | None, root: str) -> HtmlPage:
        """The part of a page that shows the queue."""
        self._sessions.check_reader(caller)
        return self._frame.part("queue_part.html", caller, root, **await self._queue_values())

    async def _queue_values(self) -> dict[str, Any]:
        try:
            return {"queue": await self._channel.queue()}
        except KeyhouseError as error:
            return {"queue": None, "problem": error.sentence}

    async def now(self, caller: ChannelMember | None, root: str) -> HtmlPage:
        """The part of a page that says what is playing."""
        self._sessions.check_reader(caller)
        return self._frame.part("now_part.html", caller, root, now=await self._frame.current())

    async def like(
        self, headers: PageHeaders, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Like what is playing."""
        status, said = 200, ""
        try:
            reply = await self._likes.like(caller)
            said = "Liked." if reply.status == "ok" else "You liked it already today."
        except KeyhouseError as error:
            if not headers.is_partial:
                raise
            status, said = error.status, error.sentence
        if not headers.is_partial:
            return Redirect(f"{root}{CHANNEL}")
        now = await self._frame.current()
        return self._frame.part("now_part.html", caller, root, now=now, said=said, status=status)

    # Pushes

    async def push(
        self, form: PushForm, headers: PageHeaders, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Push a playlist to the queue, in the background."""
        caller.require_writer()
        if form.mode == "hard_replace":
            caller.require_admin()
        task = asyncio.ensure_future(self._apply.apply(form.playlist_id, form.mode))
        self._pushes.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=START_SECONDS)
        if not task.done():
            return await self._pushed(headers, caller, root)
        if (failed := task.exception()) is None:
            return await self._pushed(headers, caller, root, push_result=task.result())
        if not isinstance(failed, KeyhouseError) or not headers.is_partial:
            raise failed
        return await self._pushed(headers, caller, root, push_problem=failed.sentence)

    def _ended(self, task: "asyncio.Task[ApplyReply]") -> None:
        self._pushes.discard(task)
        if not task.cancelled():
            task.exception()  # reported by events, or above

    async def cancel(
        self, form: CancelPushForm, headers: PageHeaders, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Cancel a push after the item that is being added."""
        caller.require_writer()
        with suppress(NotFoundError):  # it has ended meanwhile
            await self._apply.cancel(form.apply_id)
        return await self._pushed(headers, caller, root)

    async def _pushed(
        self, headers: PageHeaders, caller: ChannelMember, root: str, **outcome: Any
    ) -> HtmlPage | Redirect:
        if not headers.is_partial:
            return Redirect(f"{root}{CHANNEL}")
        push = await self._frame.push()
        return self._frame.part("push_part.html", caller, root, push=push, **outcome)

    async def statistics(
        self, query: WindowQuery, caller: ChannelMember | None, root: str
    ) -> HtmlPage:
        """The items with most plays and likes."""
        self._sessions.check_reader(caller)
        days = query.window_days
        return await self._frame.page(
            "statistics.html",
            caller,
            root,
            text.query(STATISTICS, {"window_days": days}),
            days=days,
            windows=WINDOWS,
            played=await self._statistics.top_played(days, TOP_ITEMS),
            liked=await self._statistics.top_liked(days, TOP_ITEMS),
        )

    def routes(self) -> list[Route]:
        get, post = self._frame.get, self._frame.post
        return [
            get("/channel", self.show),
            get("/queue", self.queue),
            get("/now", self.now),
            get("/statistics", self.statistics),
            post("/like", self.like),
            post("/push", self.push),
            post("/push/cancel", self.cancel),
        ]
