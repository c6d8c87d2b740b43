"""The marathon builder: sources, method, preview, save."""

from string import ascii_uppercase
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import HtmlPage, Redirect, Route
from keyhouse.systems.playlist.limits import (
    MARATHON_SOURCES_MAX,
    PATTERN_CHARS_MAX,
    PLAYLIST_NAME_CHARS_MAX,
)
from keyhouse.systems.playlist.marathon import Method
from keyhouse.systems.playlist.marathons import BuiltMarathon, Marathons
from keyhouse.systems.playlist.messages import ItemBody, MarathonBody, MarathonSource
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.pages.frame import HOME, Frame
from keyhouse.systems.playlist.playlists import SavedPlaylists
from keyhouse.systems.playlist.sessions import ChannelMember, MemberSessions

__all__ = ["MarathonPages"]

MARATHON: Final = f"{HOME}marathon"
SOURCES_SHOWN: Final = 2


class MarathonQuery(msgspec.Struct):
    """The choices of the builder. They are the page's address, so a marathon can be shared."""

    source: list[str] = []
    method: Method = "concatenate"
    pattern: Annotated[str, Meta(max_length=PATTERN_CHARS_MAX)] = ""
    seed: Annotated[str, Meta(max_length=100)] = ""
    mixes_episodes: bool = msgspec.field(default=False, name="mix")
    wants_seed: bool = msgspec.field(default=False, name="reseed")

    @property
    def chosen(self) -> list[str]:
        return [each for each in self.source if each]

    def link(self) -> str:
        given: dict[str, Any] = {"source": self.chosen, "method": self.method}
        given |= {"pattern": self.pattern, "seed": self.seed}
        return text.query(MARATHON, given | {"mix": "true" if self.mixes_episodes else ""})


class SaveForm(MarathonQuery):
    name: Annotated[str, Meta(max_length=PLAYLIST_NAME_CHARS_MAX)] = ""


class MarathonPages:
    def __init__(
        self,
        frame: Frame,
        playlists: SavedPlaylists,
        marathons: Marathons,
        sessions: MemberSessions,
    ) -> None:
        self._frame = frame
        self._playlists = playlists
        self._marathons = marathons
        self._sessions = sessions

    async def show(self, query: MarathonQuery, caller: ChannelMember | None, root: str) -> HtmlPage:
        """The builder, with a preview once it has sources."""
        self._sessions.check_reader(caller)
        return await self._page(query, caller, root)

    async def save(self, form: SaveForm, caller: ChannelMember, root: str) -> HtmlPage | Redirect:
        """Save the marathon as a playlist."""
        caller.require_writer()
        try:
            if not form.name.strip():
                raise UsageError("The playlist needs a name.")
            made = await self._marathons.build(_body(form))
            items = [ItemBody(item.video_id, item.title or UNSET) for item in made.items]
            saved = await self._playlists.create(form.name, items, caller)
        except KeyhouseError as error:
            return await self._page(form, caller, root, error, form.name)
        return Redirect(f"{root}{HOME}playlists/{saved.playlist_id}")

    def routes(self) -> list[Route]:
        return [
            self._frame.get("/marathon", self.show),
            self._frame.post("/marathon", self.save),
        ]

    async def _page(
        self,
        query: MarathonQuery,
        caller: ChannelMember | None,
        root: str,
        error: KeyhouseError | None = None,
        name: str = "",
    ) -> HtmlPage:
        if query.wants_seed:
            query = msgspec.structs.replace(query, seed="", wants_seed=False)
        made: BuiltMarathon | None = None
        problem = ""
        if query.chosen:
            try:
                made = await self._marathons.build(_body(query))
                if query.method == "shuffle":
                    query = msgspec.structs.replace(query, seed=made.seed)
            except KeyhouseError as failed:
                problem = failed.sentence
        return await self._frame.page(
            "marathon.html",
            caller,
            root,
            query.link(),
            status=200 if error is None else error.status,
            query=query,
            rows=_rows(query.chosen),
            playlists=await self._playlists.listed(created_by=None, search=""),
            made=made,
            total_seconds=sum(item.duration_seconds or 0 for item in made.items) if made else 0,
            problem=problem,
            error="" if error is None else error.sentence,
            name=name,
        )


def _body(query: MarathonQuery) -> MarathonBody:
    return MarathonBody(
        sources=[MarathonSource(id) for id in query.chosen],
        method=query.method,
        shuffle_seed=query.seed.strip() or None,
        interleave_pattern=query.pattern.strip() or None,
        preserve_episode_order=not query.mixes_episodes,
    )


def _rows(chosen: list[str]) -> list[tuple[str, str]]:
    """Return the label and the playlist of each row: those chosen, and an empty one."""
    count = min(MARATHON_SOURCES_MAX, max(SOURCES_SHOWN, len(chosen) + 1))
    padded = [*chosen[:MARATHON_SOURCES_MAX], *[""] * count]
    return list(zip(ascii_uppercase, padded[:count], strict=False))
