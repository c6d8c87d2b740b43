"""The catalog beside the working list."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError, NotFoundError
from keyhouse.http import HtmlPage, Redirect, Route
from keyhouse.systems.playlist.catalog import CatalogItem, SearchResult
from keyhouse.systems.playlist.catalog_access import CatalogAccess
from keyhouse.systems.playlist.messages import CatalogQuery, PlaylistSummary
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.pages.frame import HOME, Frame, PageHeaders, local_path
from keyhouse.systems.playlist.pages.working_list import ListView, WorkingLists
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions

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
        sessions: MemberSessions,
    ) -> None:
        self._frame = frame
        self._catalog = catalog
        self._playlists = playlists
        self._lists = lists
        self._sessions = sessions

    async def show(
        self, query: WorkbenchQuery, caller: ChannelMember | None, root: str
    ) -> HtmlPage:
        """The catalog and the working list."""
        self._sessions.check_reader(caller)
        found = await self._catalog.search(
            CatalogQuery(query.q, query.category, PAGE_ITEMS, query.offset, facets=True)
        )
        return await self._frame.page(
            "catalog.html",
            caller,
            root,
            _link(query),
            catalog=_view(query, found),
            list=await self._open(query.open, caller, query.start),
        )

    async def step(
        self, form: StepForm, headers: PageHeaders, caller: ChannelMember, root: str
    ) -> HtmlPage | Redirect:
        """Change a list by one step; without one, that which the page shows, or a new one."""
        caller.require_writer()
        id = form.list
        if not id:  # also for a second step that was sent before the first one was answered
            id = _newest(await self._own(caller)) or await self._lists.create("", caller)
        if not headers.is_partial:
            await self._lists.change(id, form.step, caller)
            return Redirect(f"{root}{local_path(form.next) or HOME}")
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
        return self._frame.part(
            "list_part.html", caller, root, list=view, next=local_path(form.next), status=status
        )

    async def _open(self, id: str, caller: ChannelMember | None, start: int) -> ListView | None:
        """Return the list with this id, or the one that the member changed last."""
        if caller is None or "write" not in caller.scopes:
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
        return [self._frame.get("/", self.show), self._frame.post("/items", self.step)]


def _newest(own: list[PlaylistSummary]) -> str:
    """Return the id of the playlist that was changed last, or ""."""
    return next((each.playlist_id for each in own if each.read_only is not True), "")


def _link(query: WorkbenchQuery, **changes: Any) -> str:
    given = {
        "q": query.q,
        "category": query.category,
        "offset": query.offset,
        "list": query.open,
        "from": query.start,
    }
    return text.query(HOME, given | changes)


def _view(query: WorkbenchQuery, found: SearchResult) -> CatalogView:
    counts = dict(found.facets or {})
    for name in query.category:
        counts.setdefault(name, found.total)
    ordered = sorted(counts, key=lambda name: (name not in query.category, -counts[name], name))
    facets = [_facet(query, name, counts[name]) for name in ordered]
    shown = max(FACETS_SHOWN, len(query.category))
    before, after = query.offset - PAGE_ITEMS, query.offset + PAGE_ITEMS
    return CatalogView(
        query=query,
        total=found.total,
        items=found.items,
        facets=facets[:shown],
        more_facets=facets[shown:],
        has_catalog=found.snapshot_id is not None,
        previous=_link(query, offset=max(0, before)) if query.offset else "",
        following=_link(query, offset=after) if after < found.total else "",
    )


def _facet(query: WorkbenchQuery, name: str, count: int) -> Facet:
    is_chosen = name in query.category
    others = [each for each in query.category if each != name]
    chosen = others if is_chosen else [*others, name]
    return Facet(name, count, is_chosen, _link(query, category=chosen, offset=0))
