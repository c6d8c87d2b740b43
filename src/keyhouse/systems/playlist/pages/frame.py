"""The frame of all pages: the member, what is playing, the push that runs, and errors as pages."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from keyhouse.errors import KeyhouseError, RateError, TokenError
from keyhouse.http import HtmlPage, Redirect, Route, Templates, file_route
from keyhouse.systems.playlist import SYSTEM
from keyhouse.systems.playlist.channel import Channel
from keyhouse.systems.playlist.channel_pushes import ChannelPushes
from keyhouse.systems.playlist.messages import NowPlaying
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.schema import ChannelPush
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions
from keyhouse.systems.playlist.statistics import ChannelStatistics
from keyhouse.systems.playlist.stores import PlaylistStores

__all__ = ["HOME", "Frame", "PageHeaders", "local_path"]

Handler = Callable[..., Awaitable[Any]]

HOME: Final = f"/{SYSTEM.name}/"
LOGIN: Final = f"{HOME}login"

_FOLDER: Final = Path(__file__).parent.parent
_LOCAL: Final = re.compile(rf"{HOME}(?!api/)[\x21-\x5b\x5d-\x7e]*")

_ADVICE: Final = {
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


class Viewer(msgspec.Struct, frozen=True):
    """The member of a page, with permissions; signed out without a name."""

    name: str = ""
    role: str = ""
    can_write: bool = False
    is_admin: bool = False


class Current(msgspec.Struct, frozen=True):
    """The current item, if any. `is_known`: the robot has shown its queue."""

    item: NowPlaying | None
    like_count: int = 0
    is_known: bool = True


class Frame:
    def __init__(
        self,
        stores: PlaylistStores,
        channel: Channel,
        statistics: ChannelStatistics,
        pushes: ChannelPushes,
        sessions: MemberSessions,
    ) -> None:
        self._stores = stores
        self._channel = channel
        self._statistics = statistics
        self._pushes = pushes
        self._sessions = sessions
        self._templates = Templates(
            _FOLDER / "templates",
            clock_time=text.clock_time,
            length=text.length,
            counted=text.counted,
            link_to=text.query,
            quoted=lambda value: quote(value, safe=""),
            ago=lambda value: text.ago(value, stores.now()),
        )

    # Rendering

    async def page(
        self,
        template: str,
        caller: ChannelMember | None,
        root: str,
        here: str,
        *,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
        **values: Any,
    ) -> HtmlPage:
        """Render a whole page. `here` is its path with query, without the root."""
        return await self._templates.page_in_steps(
            template,
            status=status,
            headers=headers,
            root=root,
            home=f"{root}{HOME}",
            here=here,
            me=viewer(caller),
            can_read=self._can_read(caller),
            now=await self.current(),
            push=await self.push(),
            **values,
        )

    def part(
        self, template: str, caller: ChannelMember | None, root: str, **values: Any
    ) -> HtmlPage:
        """Render a part of a page, for htmx."""
        status = values.pop("status", 200)
        home = f"{root}{HOME}"
        return self._templates.page(
            template, status=status, root=root, home=home, me=viewer(caller), **values
        )

    async def current(self) -> Current:
        try:
            item = await self._channel.now_playing()
            if item is None:
                return Current(None, is_known=await self._channel.exists())
            _, likes = await self._statistics.counts_of(item.video_id)
        except KeyhouseError:
            return Current(None, is_known=False)
        return Current(item, likes)

    def _can_read(self, caller: ChannelMember | None) -> bool:
        try:
            self._sessions.check_reader(caller)
        except TokenError:
            return False
        return True

    async def push(self) -> ChannelPush | None:
        """Return the push that runs, or None."""
        try:
            return await self._pushes.running()
        except KeyhouseError:
            return None

    # Routes

    def routes(self) -> list[Route]:
        """Return the routes of the files that the pages load."""
        files = sorted((_FOLDER / "assets").iterdir())
        return [file_route(f"/assets/{file.name}", file) for file in files]

    def get(self, path: str, handler: Handler) -> Route:
        return Route(
            method="GET",
            path=path,
            handler=handler,
            scope="",
            listed=False,
            error_page=self.error,
        )

    def post(self, path: str, handler: Handler) -> Route:
        return Route(
            method="POST",
            path=path,
            handler=handler,
            scope="",
            listed=False,
            error_page=self.error,
        )

    def error(self, error: KeyhouseError, root: str, here: str) -> HtmlPage | Redirect:
        """Return the page of an error, or lead to the login."""
        if isinstance(error, TokenError):
            return Redirect(text.query(f"{root}{LOGIN}", {"next": local_path(here)}))
        return self._templates.page(
            "error.html",
            status=error.status,
            root=root,
            home=f"{root}{HOME}",
            here=here,
            me=Viewer(),
            can_read=True,
            heading=_ADVICE.get(error.status, "This did not work"),
            sentence=sentence(error),
        )


def sentence(error: KeyhouseError) -> str:
    """Return the sentence of an error, with the time to wait."""
    if isinstance(error, RateError) and "retry_after" in error.fields:
        return f"{error.sentence} Try again in {text.wait(int(str(error.fields['retry_after'])))}."
    return error.sentence


def viewer(caller: ChannelMember | None) -> Viewer:
    if caller is None:
        return Viewer()
    return Viewer(caller.username, caller.role, "write" in caller.scopes, caller.is_admin)


def local_path(path: str) -> str:
    """Return the path if it is one of these pages, else ""."""
    return path if _LOCAL.fullmatch(path) and not path.startswith(LOGIN) else ""
