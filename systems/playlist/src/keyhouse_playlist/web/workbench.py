"""The catalog beside the working list."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.http import Redirect, Route
from keyhouse.service.pages import PageReply
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.catalog.access import CatalogAccess
from keyhouse_playlist.catalog.messages import CatalogQuery
from keyhouse_playlist.catalog.tables import CatalogItem, SearchResult
from keyhouse_playlist.playlists.messages import PlaylistSummary
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.web.frame import PATHS, Frame, PageHeaders
from keyhouse_playlist.web.working_list import ListView, WorkingLists

__all__ = ["Workbench"]

Start = Annotated[int, Meta(ge=0, le=2**31)]

PAGE_ITEMS: Final = 30
FACETS_SHOWN: Final = 12


class WorkbenchQuery(msgspec.Struct):
    q: str = ""
    category: list[str] = []
    offset: Start = 0
    open: str = msgspec.field(default="", name="list")
    start: Start = msgspec.field(default=0, name="from")


class StepForm(msgspec.Struct):
    step: Annotated[str, Meta(max_length=8_000)]
    list: str = ""
    start: Start = msgspec.field(default=0, name="from")
    next: str = ""


class Facet(msgspec.Struct):
    """A category with a link that chooses it, or no longer."""

    name: str
    count: int
    is_chosen: bool
    link: str


class CatalogView(msgspec.Struct):
    """A page of search results, with links to what is around it."""

    query: WorkbenchQuery
    total: int
    items: list[CatalogItem]
    facets: list[Facet]
    more_facets: list[Facet]
    has_catalog: bool
    previous: str = ""
    following: str = ""

    @property
    def first(self) -> int:
        return self.query.offset + 1

    @property
    def all_shown(self) -> str:
        """The ids of all titles, if a search has found few enough to show them at once."""
        is_search = self.query.q.strip() or self.query.category
        if not is_search or not 1 < self.total == len(self.items):
            return ""
        return msgspec.json.encode([item.video_id for item in self.items]).decode()

    @property
    def last(self) -> int:
        return self.query.offset + len(self.items)


class Workbench:
    def __init__(
        self,
        frame: Frame,
        catalog: CatalogAccess,
        playlists: SavedPlaylists,
        lists: WorkingLists,
    ) -> None:
        self._frame = frame
        self._catalog = catalog
        self._playlists = playlists
        self._lists = lists

    async def show(self, query: WorkbenchQuery, caller: ChannelMember) -> dict[str, Any]:
        """The catalog and the working list."""
        result = await self._catalog.search(
            CatalogQuery(query.q, query.category, PAGE_ITEMS, query.offset, facets=True)
        )
        shown = await self._open(query.open, caller, query.start)
        return {"catalog": _view(query, result), "list": shown}

    async def step(
        self, form: StepForm, headers: PageHeaders, caller: ChannelMember
    ) -> PageReply | Redirect:
        """Change a list by one step; without one, that which the page shows, or a new one."""
        id = form.list
        if not id:  # also for a second step that was sent before the first one was answered
            id = _newest(await self._own(caller)) or await self._lists.create("", caller)
        if not headers.is_partial:
            await self._lists.change(id, form.step, caller)
            return Redirect(PATHS.local(form.next) or PATHS.path())
        status, said, undo, failed = 200, "", "", ""
        try:
            result = await self._lists.change(id, form.step, caller)
            said, undo = result.said, result.undo
        except KeyhouseError as error:
            status, failed = error.status, error.sentence
        start = 2**31 if form.step.startswith(("add ", "all ")) and not failed else form.start
        view = await self._lists.view(id, caller, start)
        view.said, view.undo, view.error = said, undo, failed
        view.others = await self._own(caller)
        values = {"list": view, "next": PATHS.local(form.next)}
        return PageReply("list_part.html", values, status)

    async def _open(self, id: str, caller: ChannelMember, start: int) -> ListView | None:
        """Return the list with this id, or the one that the member changed last."""
        if not caller.can_write:
            return None
        own = await self._own(caller)
        shown = id or _newest(own)
        if not shown:
            return None
        try:
            view = await self._lists.view(shown, caller, start)
        except NotFoundError:
            if id:
                raise
            return None  # deleted meanwhile
        view.others = own
        return view

    async def _own(self, caller: ChannelMember) -> list[PlaylistSummary]:
        return await self._playlists.listed(created_by=caller, search="")

    def routes(self) -> list[Route]:
        return [
            self._frame.page("/", self.show, "catalog.html"),
            self._frame.form("/items", self.step, back="/"),
        ]


def _newest(own: list[PlaylistSummary]) -> str:
    """Return the id of the playlist that was changed last, or ""."""
    return next((each.playlist_id for each in own if each.read_only is not True), "")


def _link(query: WorkbenchQuery, **changes: Any) -> str:
    given = msgspec.to_builtins(query) | changes
    return PATHS.path(**{name: value or "" for name, value in given.items()})


def _view(query: WorkbenchQuery, result: SearchResult) -> CatalogView:
    counts = dict(result.facets or {})
    for name in query.category:
        counts.setdefault(name, result.total)
    ordered = sorted(counts, key=lambda name: (name not in query.category, -counts[name], name))
    facets = [_facet(query, name, counts[name]) for name in ordered]
    shown = max(FACETS_SHOWN, len(query.category))
    before, after = query.offset - PAGE_ITEMS, query.offset + PAGE_ITEMS
    return CatalogView(
        query=query,
        total=result.total,
        items=result.items,
        facets=facets[:shown],
        more_facets=facets[shown:],
        has_catalog=result.snapshot_id is not None,
        previous=_link(query, offset=max(0, before)) if query.offset else "",
        following=_link(query, offset=after) if after < result.total else "",
    )


def _facet(query: WorkbenchQuery, name: str, count: int) -> Facet:
    is_chosen = name in query.category
    others = [each for each in query.category if each != name]
    chosen = others if is_chosen else [*others, name]
    return Facet(name, count, is_chosen, _link(query, category=chosen, offset=0))
