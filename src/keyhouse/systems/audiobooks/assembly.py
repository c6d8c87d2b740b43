"""The parts of the library, put together: operations on the store, routes and background tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog
from msgspec import Struct

from keyhouse.auth import StoredSession
from keyhouse.errors import KeyhouseError
from keyhouse.http import Route
from keyhouse.service.background_operations import BackgroundOperations, OperationKind
from keyhouse.service.event_hub import EventHub
from keyhouse.service.login_guard import LoginGuard
from keyhouse.service.passwords import Passwords
from keyhouse.service.spec import ServiceContext
from keyhouse.service.summed_metrics import SummedMetrics
from keyhouse.systems.audiobooks.accounts import Accounts, password_parameters
from keyhouse.systems.audiobooks.book_catalog import BookCatalog
from keyhouse.systems.audiobooks.books import Books
from keyhouse.systems.audiobooks.covers import Covers
from keyhouse.systems.audiobooks.library import Library
from keyhouse.systems.audiobooks.listening import Listener
from keyhouse.systems.audiobooks.maintenance import Maintenance, check_pattern
from keyhouse.systems.audiobooks.merger import Merger
from keyhouse.systems.audiobooks.operations import LibraryOperationRecords
from keyhouse.systems.audiobooks.pages.routes import page_routes
from keyhouse.systems.audiobooks.playlists import Playlists
from keyhouse.systems.audiobooks.routes.accounts import account_routes
from keyhouse.systems.audiobooks.routes.books import book_routes
from keyhouse.systems.audiobooks.routes.catalog import catalog_routes
from keyhouse.systems.audiobooks.routes.files import FileHandlers, file_routes
from keyhouse.systems.audiobooks.routes.listening import listening_routes
from keyhouse.systems.audiobooks.routes.operations import OperationHandlers, operation_routes
from keyhouse.systems.audiobooks.routes.playlists import playlist_routes
from keyhouse.systems.audiobooks.routes.rows import row_routes
from keyhouse.systems.audiobooks.scanner import Scanner
from keyhouse.systems.audiobooks.search import LibrarySearch
from keyhouse.systems.audiobooks.settings import AudiobooksSettings

__all__ = ["LibraryParts", "assemble"]

DAY_SECONDS: Final = 24 * 3_600.0

_log = structlog.get_logger("keyhouse.audiobooks")


class LibraryParts(Struct, frozen=True):
    """`session` finds the session or API key of a token."""

    routes: Mapping[str, Route]
    tasks: Sequence[Callable[[], Awaitable[None]]]
    session: Callable[[str], Awaitable[StoredSession | None]]


async def assemble(
    library: Library,
    settings: AudiobooksSettings,
    context: ServiceContext,
    guard: LoginGuard,
    metrics: SummedMetrics,
) -> LibraryParts:
    """`guard` and `metrics` are those of all libraries of a service."""
    library.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    run = context.run_blocking
    passwords = Passwords(await password_parameters(library))
    accounts = Accounts(library, passwords, guard)
    covers, merger = Covers(library, run), Merger(library, run)
    books, catalog, search = Books(library, covers), BookCatalog(library), LibrarySearch(library)
    maintenance = Maintenance(
        library,
        merger,
        run,
        pattern=check_pattern(settings.organize_pattern),
        keep_days=settings.keep_days,
        keep_events=settings.keep_events,
    )
    scanner = Scanner(library, catalog, covers, run)
    kinds = {
        "scan": OperationKind(run=scanner.scan, resumes=True, exclusive=True),
        "organize": OperationKind(run=maintenance.organize, resumes=True, exclusive=True),
        "transcode": OperationKind(run=maintenance.transcode, resumes=True),
        "merge": OperationKind(run=merger.merge, resumes=True, exclusive=True),
        "prune": OperationKind(run=maintenance.prune, resumes=True, exclusive=True),
    }
    operations = BackgroundOperations(
        library.store, LibraryOperationRecords(), kinds, name="audiobooks"
    )
    metrics.add(operations)
    metrics.add(search.index)

    async def maintain_daily() -> None:
        while True:
            try:
                await maintenance.prune_events()
                await covers.remove_unused()
            except (KeyhouseError, OSError) as error:
                _log.warning("playback events or covers not pruned", error=str(error))
            await asyncio.sleep(DAY_SECONDS)

    files = FileHandlers(library, books, covers, merger, operations, run)
    listener = Listener(library, books)
    runner = OperationHandlers(library, operations, EventHub(), run, accounts.is_allowed)
    playlists = Playlists(library)
    pages = page_routes(
        accounts,
        books,
        listener,
        search,
        catalog,
        playlists,
        files,
        runner,
        pattern=settings.organize_pattern,
    )
    routes = {
        **account_routes(accounts),
        **book_routes(books, search),
        **catalog_routes(catalog, books),
        **file_routes(files),
        **listening_routes(listener),
        **playlist_routes(playlists),
        **row_routes(library),
        **operation_routes(runner),
        **{f"{each.method} {each.path}": each for each in pages},
    }
    tasks = [search.index.run, operations.run, maintain_daily]
    return LibraryParts(routes, tasks, accounts.stored_session)
