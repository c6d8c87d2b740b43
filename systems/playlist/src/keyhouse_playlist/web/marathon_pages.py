"""The marathon builder: sources, method, preview, save."""

from string import ascii_uppercase
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import Redirect, Route
from keyhouse.service.pages import PageReply
from keyhouse_playlist.accounts.sessions import ChannelMember
from keyhouse_playlist.limits import (
    MARATHON_SOURCES_MAX,
    PATTERN_CHARS_MAX,
    PLAYLIST_NAME_CHARS_MAX,
)
from keyhouse_playlist.playlists.marathons import BuiltMarathon, Marathons
from keyhouse_playlist.playlists.messages import MarathonBody, MarathonSource
from keyhouse_playlist.playlists.saved import SavedPlaylists
from keyhouse_playlist.schema import Method
from keyhouse_playlist.web.frame import PATHS, Frame, page_of

__all__ = ["MarathonPages"]

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
        return PATHS.path(
            "marathon",
            source=self.chosen,
            method=self.method,
            pattern=self.pattern,
            seed=self.seed,
            mix="true" if self.mixes_episodes else "",
        )


class SaveForm(MarathonQuery):
    name: Annotated[str, Meta(max_length=PLAYLIST_NAME_CHARS_MAX)] = ""


class MarathonPages:
    def __init__(
        self,
        frame: Frame,
        playlists: SavedPlaylists,
        marathons: Marathons,
    ) -> None:
        self._frame = frame
        self._playlists = playlists
        self._marathons = marathons

    async def show(self, query: MarathonQuery, caller: ChannelMember) -> PageReply:
        """The builder, with a preview once it has sources."""
        return await self._page(query)

    async def save(self, form: SaveForm, caller: ChannelMember) -> PageReply | Redirect:
        """Save the marathon as a playlist."""
        try:
            if not form.name.strip():
                raise UsageError("The playlist needs a name.")
            saved = await self._marathons.save(form.name, _body(form), caller)
        except KeyhouseError as error:
            return await self._page(form, error, form.name)
        return Redirect(PATHS.path("playlists", saved.playlist_id))

    def routes(self) -> list[Route]:
        return [
            self._frame.page("/marathon", self.show, "marathon.html"),
            self._frame.form("/marathon", self.save),
        ]

    async def _page(
        self, query: MarathonQuery, error: KeyhouseError | None = None, name: str = ""
    ) -> PageReply:
        if query.wants_seed:
            query = replace(query, seed="", wants_seed=False)
        made: BuiltMarathon | None = None
        problem = ""
        if query.chosen:
            try:
                made = await self._marathons.build(_body(query))
                if query.method == "shuffle":
                    query = replace(query, seed=made.seed)
            except KeyhouseError as failed:
                problem = failed.sentence
        values = {
            "query": query,
            "rows": _rows(query.chosen),
            "playlists": await self._playlists.listed(created_by=None, search=""),
            "made": made,
            "total_seconds": sum(item.duration_seconds or 0 for item in made.items) if made else 0,
            "problem": problem,
            "name": name,
        }
        return replace(page_of("marathon.html", values, error), here=query.link())


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
