"""The playlists of the channel, and one of them: open, rename, copy, delete."""

from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import Conditions, HtmlPage, Redirect, Route
from keyhouse.systems.playlist.limits import PLAYLIST_NAME_CHARS_MAX
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.pages.frame import HOME, Frame
from keyhouse.systems.playlist.pages.working_list import WorkingLists
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions

__all__ = ["PlaylistPages"]

LIST: Final = f"{HOME}playlists"

Name = Annotated[str, Meta(max_length=PLAYLIST_NAME_CHARS_MAX)]


class PlaylistsPageQuery(msgspec.Struct):
    mine: bool = False
    search: str = ""


class PlaylistPageQuery(msgspec.Struct):
    start: Annotated[int, Meta(ge=0, le=2**31)] = msgspec.field(default=0, name="from")


class PlaylistNameForm(msgspec.Struct):
    name: Name = ""


class PlaylistPages:
    def __init__(
        self,
        frame: Frame,
        playlists: SavedPlaylists,
        lists: WorkingLists,
        sessions: MemberSessions,
    ) -> None:
        self._frame = frame
        self._playlists = playlists
        self._lists = lists
        self._sessions = sessions

    async def list_all(
        self, query: PlaylistsPageQuery, caller: ChannelMember | None, root: str
    ) -> HtmlPage:
        """All playlists, the one that was changed last first."""
        self._sessions.check_reader(caller)
        return await self._listing(query, caller, root)

    async def create(
        self, form: PlaylistNameForm, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Create an empty playlist and open it in the builder."""
        caller.require_writer()
        try:
            id = await self._lists.create(form.name, caller)
        except KeyhouseError as error:
            query = PlaylistsPageQuery()
            return await self._listing(query, caller, root, error, form.name)
        return Redirect(text.query(f"{root}{HOME}", {"list": id}))

    async def show(
        self, id: str, query: PlaylistPageQuery, caller: ChannelMember | None, root: str
    ) -> HtmlPage:
        """One playlist."""
        self._sessions.check_reader(caller)
        return await self._page(id, caller, root, start=query.start)

    async def rename(
        self, id: str, form: PlaylistNameForm, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Give a playlist another name."""
        caller.require_writer()
        try:
            if not form.name.strip():
                raise UsageError("A playlist needs a name.")
            await self._playlists.replace(id, form.name, UNSET, caller, Conditions())
        except KeyhouseError as error:
            return await self._page(id, caller, root, error, form.name)
        return Redirect(f"{root}{_path(id)}")

    async def copy(
        self, id: str, form: PlaylistNameForm, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Copy a playlist and open the copy in the builder."""
        caller.require_writer()
        try:
            made = await self._playlists.fork(id, form.name.strip() or None, caller)
        except KeyhouseError as error:
            return await self._page(id, caller, root, error)
        return Redirect(text.query(f"{root}{HOME}", {"list": made.playlist_id}))

    async def delete(self, id: str, caller: ChannelMember, root: str) -> HtmlPage | Redirect:
        """Delete a playlist."""
        caller.require_writer()
        try:
            await self._playlists.delete(id, caller, Conditions())
        except KeyhouseError as error:
            return await self._page(id, caller, root, error)
        return Redirect(f"{root}{LIST}")

    def routes(self) -> list[Route]:
        get, post = self._frame.get, self._frame.post
        return [
            get("/playlists", self.list_all),
            post("/playlists", self.create),
            get("/playlists/{id}", self.show),
            post("/playlists/{id}/rename", self.rename),
            post("/playlists/{id}/copy", self.copy),
            post("/playlists/{id}/delete", self.delete),
        ]

    async def _listing(
        self,
        query: PlaylistsPageQuery,
        caller: ChannelMember | None,
        root: str,
        error: KeyhouseError | None = None,
        name: str = "",
    ) -> HtmlPage:
        mine = caller if query.mine else None
        found = await self._playlists.listed(created_by=mine, search=query.search)
        given = {"mine": "true" if query.mine else "", "search": query.search}
        return await self._frame.page(
            "playlists.html",
            caller,
            root,
            text.query(LIST, given),
            status=200 if error is None else error.status,
            query=query,
            playlists=found,
            error="" if error is None else error.sentence,
            name=name,
        )

    async def _page(
        self,
        id: str,
        caller: ChannelMember | None,
        root: str,
        error: KeyhouseError | None = None,
        name: str | None = None,
        start: int = 0,
    ) -> HtmlPage:
        view = await self._lists.view(id, caller, start)
        return await self._frame.page(
            "playlist.html",
            caller,
            root,
            _path(id),
            status=200 if error is None else error.status,
            list=view,
            next=_path(id),
            error="" if error is None else error.sentence,
            name=view.name if name is None else name,
        )


def _path(id: str) -> str:
    return f"{LIST}/{quote(id, safe='')}"
