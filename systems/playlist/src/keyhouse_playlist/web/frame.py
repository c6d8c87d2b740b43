"""The frame of all pages: the member, what is playing, the push that runs, and errors as pages."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from keyhouse.errors import KeyhouseError, RateError, TokenError
from keyhouse.http import HtmlPage, Redirect, Route, Templates
from keyhouse.service.pages import PagePaths, PageReply, Pages
from keyhouse.service.pages.text import clock_time, counted
from keyhouse_playlist import SYSTEM
from keyhouse_playlist.accounts.roles import READ, WRITE
from keyhouse_playlist.accounts.sessions import ChannelMember, MemberSessions
from keyhouse_playlist.channel.messages import NowPlaying
from keyhouse_playlist.channel.pushes import PushProgress, PushRecords
from keyhouse_playlist.channel.queue import Channel
from keyhouse_playlist.channel.statistics import ChannelStatistics
from keyhouse_playlist.stores import PlaylistStores
from keyhouse_playlist.web import text

__all__ = ["PATHS", "Frame", "PageHeaders", "page_of", "sentence"]

Handler = Callable[..., Awaitable[Any]]

PATHS: Final = PagePaths(SYSTEM.name, outside=("api/", "login"))

_FOLDER: Final = Path(__file__).parent

_HEADINGS: Final = {
    403: "Not allowed",
    404: "Not found",
    409: "This did not work",
    429: "Please wait",
    503: "The channel does not answer",
}


class PageHeaders(msgspec.Struct):
    """`HX-Request` is sent by htmx: then only a part of the page is returned."""

    hx_request: str = msgspec.field(default="", name="HX-Request")

    @property
    def is_partial(self) -> bool:
        return self.hx_request == "true"


class Current(msgspec.Struct, frozen=True):
    """The current item, if any. `is_known`: the robot has shown its queue."""

    item: NowPlaying | None
    like_count: int = 0
    is_known: bool = True


class Frame:
    """Makes the routes of pages and forms. A page is the values of its template by name; that of a
    login or an error is one value, `page`."""

    def __init__(
        self,
        stores: PlaylistStores,
        channel: Channel,
        statistics: ChannelStatistics,
        pushes: PushRecords,
        sessions: MemberSessions,
    ) -> None:
        self._channel = channel
        self._statistics = statistics
        self._pushes = pushes
        self._anonymous = sessions.anonymous
        self.pages = Pages(PATHS, self.rejected, render=self.render)
        self._templates = Templates(
            _FOLDER / "templates",
            clock_time=clock_time,
            length=text.length,
            counted=counted,
            ago=lambda value: text.ago(value, stores.now()),
            heading=lambda status: _HEADINGS.get(status, "This did not work"),
            sentence=sentence,
        )

    def page(self, path: str, handler: Handler, template: str) -> Route:
        """Return the route of a page. The handler returns its values, or a PageReply."""
        return self.pages.user_route("GET", path, handler, template=template, scope=READ)

    def form(self, path: str, handler: Handler, *, back: str = "", scope: str = WRITE) -> Route:
        """Return the route of a form. Errors and the login lead to the page `back`, if the form's
        own address is no page."""
        return self.pages.user_route("POST", path, handler, scope=scope, back=back)

    def files(self) -> list[Route]:
        """Return the routes of the files that the pages load."""
        return self.pages.files(_FOLDER / "assets")

    async def render(
        self,
        template: str,
        caller: ChannelMember | None,
        page: Any,
        *,
        root: str,
        here: str,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> HtmlPage:
        """Render a page, or the part of one that htmx replaces."""
        values = _values(caller or self._anonymous, root, here)
        if not template.endswith("_part.html"):
            values |= {"now": await self.current(), "push": await self.push()}
        values |= page if isinstance(page, dict) else {"page": page}
        return await self._templates.page_in_steps(
            template, status=status, headers=headers, **values
        )

    def rejected(self, error: KeyhouseError, root: str, here: str) -> HtmlPage | Redirect:
        """Return the page of an error, or lead to the login."""
        if isinstance(error, TokenError):
            return PATHS.login(PATHS.local(here)).with_root(root)
        reader = ChannelMember(scopes=frozenset({READ}))
        values = _values(reader, root, here)
        return self._templates.page("error.html", status=error.status, page=error, **values)

    async def current(self) -> Current:
        try:
            item = await self._channel.now_playing()
            if item is None:
                return Current(None, is_known=await self._channel.exists())
            _, likes = await self._statistics.counts_of(item.video_id)
        except KeyhouseError:
            return Current(None, is_known=False)
        return Current(item, likes)

    async def push(self) -> PushProgress | None:
        """Return the push that runs, or None."""
        try:
            return await self._pushes.running()
        except KeyhouseError:
            return None


def _values(caller: ChannelMember, root: str, here: str) -> dict[str, Any]:
    """Return the values of every template. `here` is the path of the page, without the root."""
    can_read, at = READ in caller.scopes, PATHS.below(root)
    return {"root": root, "at": at, "here": here, "me": caller, "can_read": can_read}


def page_of(template: str, values: dict[str, Any], error: KeyhouseError | None) -> PageReply:
    """Return a page, with the error of the form that it shows, if there is one."""
    if error is None:
        return PageReply(template, {**values, "error": ""})
    return PageReply(template, {**values, "error": error.sentence}, error.status)


def sentence(error: KeyhouseError) -> str:
    """Return the sentence of an error, with the time to wait."""
    if isinstance(error, RateError) and "retry_after" in error.fields:
        return f"{error.sentence} Try again in {text.wait(int(str(error.fields['retry_after'])))}."
    return error.sentence
