"""The routes of all pages, and of the files that they load."""

from pathlib import Path
from typing import Final

from keyhouse.http import Route, file_route
from keyhouse.service.pages import PageReply
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.web.account import AccountPages
from keyhouse_audiobooks.web.administration import AdministrationPages
from keyhouse_audiobooks.web.book import BookPages
from keyhouse_audiobooks.web.editing import EditingPages
from keyhouse_audiobooks.web.frame import LibraryFrame
from keyhouse_audiobooks.web.playlists import PlaylistPages
from keyhouse_audiobooks.web.shelves import Shelves

__all__ = ["page_routes"]

_ASSETS: Final = Path(__file__).parent / "assets"
_AT_TOP: Final = ("service_worker.js", "app.webmanifest")
"""A service worker controls the pages below its own path."""


def page_routes(libraries: Libraries) -> list[Route]:
    frame = LibraryFrame(libraries)
    parts = (AccountPages, Shelves, BookPages, EditingPages, PlaylistPages, AdministrationPages)

    async def offline() -> PageReply:
        """The page that a browser shows without a network."""
        return PageReply("offline.html")

    return [
        *(file_route(f"/{name}", _ASSETS / name) for name in _AT_TOP),
        *frame.pages.files(_ASSETS, but=_AT_TOP),
        frame.pages.visitor_route("GET", "/offline", offline),
        *(route for part in parts for route in part(libraries).routes(frame)),
    ]
