"""The routes of all pages, and of the files that they load."""

from pathlib import Path
from typing import Final

from keyhouse.http import HtmlPage, Route, file_route
from keyhouse.systems.audiobooks.accounts import Accounts
from keyhouse.systems.audiobooks.book_catalog import BookCatalog
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.listening import Listener
from keyhouse.systems.audiobooks.pages.account import AccountPages
from keyhouse.systems.audiobooks.pages.administration import AdministrationPages
from keyhouse.systems.audiobooks.pages.book import BookPages
from keyhouse.systems.audiobooks.pages.editing import EditingPages
from keyhouse.systems.audiobooks.pages.frame import LibraryFrame, at
from keyhouse.systems.audiobooks.pages.playlists import BookListPages
from keyhouse.systems.audiobooks.pages.shelves import Shelves
from keyhouse.systems.audiobooks.playlists import Playlists
from keyhouse.systems.audiobooks.routes.files import FileHandlers
from keyhouse.systems.audiobooks.routes.operations import OperationHandlers
from keyhouse.systems.audiobooks.search import LibrarySearch

__all__ = ["page_routes"]

_ASSETS: Final = Path(__file__).parent / "assets"
_AT_TOP: Final = ("service_worker.js", "app.webmanifest")
"""A service worker controls the pages below its own path."""


def page_routes(
    accounts: Accounts,
    books: Books,
    listener: Listener,
    search: LibrarySearch,
    catalog: BookCatalog,
    playlists: Playlists,
    files: FileHandlers,
    operations: OperationHandlers,
    *,
    pattern: str,
) -> list[Route]:
    """Return the routes. `pattern` is the default one of `organize`."""
    frame = LibraryFrame(accounts)
    lists = BookListPages(playlists, books)
    administration = AdministrationPages(
        frame, books.library, accounts, books, files, operations, pattern
    )

    async def offline() -> HtmlPage:
        """The page that a browser shows without a network."""
        return await frame.render("offline.html", None, None, here=at("offline"))

    return [
        *(file_route(f"/{name}", _ASSETS / name) for name in _AT_TOP),
        *(
            file_route(f"/assets/{file.name}", file)
            for file in sorted(_ASSETS.iterdir())
            if file.name not in _AT_TOP
        ),
        frame.public("GET", "/offline", offline),
        *AccountPages(frame, accounts, listener).routes(frame),
        *Shelves(books, listener, search).routes(frame),
        *BookPages(books, listener, files, lists).routes(frame),
        *EditingPages(frame, books, catalog).routes(frame),
        *lists.routes(frame),
        *administration.routes(frame),
    ]
