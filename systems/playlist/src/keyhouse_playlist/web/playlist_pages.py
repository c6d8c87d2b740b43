"""The playlists of the channel, and one of them: open, rename, copy, delete."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import Conditions, Redirect, Route
from keyhouse.service.pages import PageReply
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.limits import PLAYLIST_NAME_CHARS_MAX
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.web.frame import PATHS, Frame, page_of
from keyhouse_playlist.web.working_list import WorkingLists

__all__ = ["PlaylistPages"]

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
    ) -> None:
        self._frame = frame
        self._playlists = playlists
        self._lists = lists

    async def list_all(self, query: PlaylistsPageQuery, caller: ChannelMember) -> PageReply:
        """All playlists, the one that was changed last first."""
        return await self._listing(query, caller)

    async def create(self, form: PlaylistNameForm, caller: ChannelMember) -> PageReply | Redirect:
        """Create an empty playlist and open it in the builder."""
        try:
            id = await self._lists.create(form.name, caller)
        except KeyhouseError as error:
            return await self._listing(PlaylistsPageQuery(), caller, error, form.name)
        return Redirect(PATHS.path(list=id))

    async def show(self, id: str, query: PlaylistPageQuery, caller: ChannelMember) -> PageReply:
        """One playlist."""
        return await self._page(id, caller, start=query.start)

    async def rename(
        self, id: str, form: PlaylistNameForm, caller: ChannelMember
    ) -> PageReply | Redirect:
        """Give a playlist another name."""
        try:
            if not form.name.strip():
                raise UsageError("A playlist needs a name.")
            await self._playlists.replace(id, form.name, UNSET, caller, Conditions())
        except KeyhouseError as error:
            return await self._page(id, caller, error, form.name)
        return Redirect(PATHS.path("playlists", id))

    async def copy(
        self, id: str, form: PlaylistNameForm, caller: ChannelMember
    ) -> PageReply | Redirect:
        """Copy a playlist and open the copy in the builder."""
        try:
            made = await self._playlists.fork(id, form.name.strip() or None, caller)
        except KeyhouseError as error:
            return await self._page(id, caller, error)
        return Redirect(PATHS.path(list=made.playlist_id))

    async def delete(self, id: str, caller: ChannelMember) -> PageReply | Redirect:
        """Delete a playlist."""
        try:
            await self._playlists.delete(id, caller, Conditions())
        except KeyhouseError as error:
            return await self._page(id, caller, error)
        return Redirect(PATHS.path("playlists"))

    def routes(self) -> list[Route]:
        page, form, one = self._frame.page, self._frame.form, "/playlists/{id}"
        return [
            page("/playlists", self.list_all, "playlists.html"),
            form("/playlists", self.create),
            page(one, self.show, "playlist.html"),
            form(f"{one}/rename", self.rename, back=one),
            form(f"{one}/copy", self.copy, back=one),
            form(f"{one}/delete", self.delete, back=one),
        ]

    async def _listing(
        self,
        query: PlaylistsPageQuery,
        caller: ChannelMember,
        error: KeyhouseError | None = None,
        name: str = "",
    ) -> PageReply:
        mine = caller if query.mine and caller.username else None
        playlists = await self._playlists.listed(created_by=mine, search=query.search)
        values = {"query": query, "playlists": playlists, "name": name}
        return page_of("playlists.html", values, error)

    async def _page(
        self,
        id: str,
        caller: ChannelMember,
        error: KeyhouseError | None = None,
        name: str | None = None,
        start: int = 0,
    ) -> PageReply:
        view = await self._lists.view(id, caller, start)
        name = view.name if name is None else name
        values = {"list": view, "next": PATHS.path("playlists", id), "name": name}
        return page_of("playlist.html", values, error)
