"""The libraries of a service. Each is a tenant: a space whose keys begin with `tenant:<name>:`,
where there are several.

A library is opened when it is first needed, or at start, and stays open: its rows are checked,
migrated and sealed before. Requests of a member go to the library of the token, whose id begins
with its name; the others name theirs in the body or in `X-Tenant`. The first library is that of the
settings; its admins add the others.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from keyhouse.auth import Caller, StoredSession
from keyhouse.engine import Engine
from keyhouse.errors import KeyhouseError, LeaseError, NotFoundError, RecordError, UsageError
from keyhouse.http import ClientAddress
from keyhouse.schema import RESERVED_SPACES, Schema
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.service.operation_log import OperationLog
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.shared_task import SharedTask
from keyhouse.service.summed_metrics import SummedMetrics
from keyhouse.service.worker import Worker
from keyhouse.store import Store, has_sealed, open_migrated, reseal
from keyhouse_audiobooks.accounts.accounts import Accounts, SignedIn
from keyhouse_audiobooks.accounts.messages import Agent, LoginBody
from keyhouse_audiobooks.books.books import Books
from keyhouse_audiobooks.books.catalog import BookCatalog
from keyhouse_audiobooks.books.covers import Covers
from keyhouse_audiobooks.books.search import LibrarySearch
from keyhouse_audiobooks.events import LibraryEvents
from keyhouse_audiobooks.files.book_files import BookFiles
from keyhouse_audiobooks.files.maintenance import Maintenance
from keyhouse_audiobooks.files.merger import Merger
from keyhouse_audiobooks.files.operations import LibraryOperations
from keyhouse_audiobooks.files.scanner import Scanner
from keyhouse_audiobooks.library import Library
from keyhouse_audiobooks.listening.listener import Listener
from keyhouse_audiobooks.listening.playlists import Playlists
from keyhouse_audiobooks.listening.preferences import Preferences
from keyhouse_audiobooks.schema import META, library_schema
from keyhouse_audiobooks.settings import AudiobooksSettings

__all__ = ["Libraries", "ServedLibrary"]

DAY_SECONDS: Final = 24 * 3_600.0
LEASE_RETRY_SECONDS: Final = 0.5
"""Pause before a library that another process migrates or seals is tried again."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SESSION_ID: Final = re.compile(r"(?P<library>.*)-(?P<ulid>.{26})")

_log = structlog.get_logger("keyhouse.audiobooks")


class ServedLibrary(Library):
    """A library with its operations. `folder` is that of the service's own files."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        settings: AudiobooksSettings,
        folder: Path,
        guard: LoginGuard,
        log: OperationLog,
        worker: Worker,
        *,
        is_shared: bool,
        **options: Any,
    ) -> None:
        self._log = log
        self._worker = worker
        self._is_shared = is_shared
        is_first = name == settings.library
        super().__init__(
            name,
            engine,
            roots=[Path(each).resolve() for each in _roots(settings.roots, name, is_first)],
            folder=folder if is_first else folder / "tenants" / name,
            has_tenants=settings.tenants,
            **options,
        )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.accounts = Accounts(
            self,
            guard,
            session_hours=settings.session_hours,
            remembered_hours=settings.remembered_session_hours,
        )
        covers = folder if settings.covers is None else Path(settings.covers)
        self.covers = Covers(self, covers / self.folder.relative_to(folder) / "covers")
        self.books = Books(self, self.covers)
        self.catalog = BookCatalog(self)
        self.search = LibrarySearch(self)
        self.files = BookFiles(self, self.books)
        self.listener = Listener(self, self.books)
        self.preferences = Preferences(self)
        self.playlists = Playlists(self)
        self.merger = Merger(self)
        self.maintenance = Maintenance(
            self,
            self.merger,
            pattern=settings.organize_pattern,
            keep_days=settings.keep_days,
            keep_events=settings.keep_events,
        )
        scanner = Scanner(self, self.catalog, self.covers)
        self.operations = LibraryOperations(self, scanner, self.merger, self.maintenance)
        self.events = LibraryEvents(self.store, self.accounts.is_allowed)

    @property
    def tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        pruning = SharedTask(
            self.store.engine,
            f"prune:{self.name}",
            DAY_SECONDS,
            self._log,
            is_shared=self._is_shared,
        )
        tasks: list[Callable[[], Awaitable[None]]] = [
            self.search.index.run,
            self.operations.background.run,
            partial(pruning.run, self._prune_events),
        ]
        return [*tasks, self._remove_covers] if self._worker.is_first else tasks

    async def _prune_events(self) -> float:
        try:
            await self.maintenance.prune_events()
        except KeyhouseError as error:
            _log.warning("playback events not pruned", error=str(error))
        return DAY_SECONDS

    async def _remove_covers(self) -> None:
        """Remove covers without a book, which a killed process has left in the folder of this
        host."""
        while True:
            try:
                await self.covers.remove_unused()
            except (KeyhouseError, OSError) as error:
                _log.warning("covers not removed", error=str(error))
            await asyncio.sleep(DAY_SECONDS)


class Libraries:
    """`metrics` are those of the operations and searches of all libraries."""

    def __init__(
        self, runtime: ServiceRuntime[ServedLibrary], settings: AudiobooksSettings
    ) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._schema = runtime.system.schemas[0]
        self._first = settings.library
        self.has_tenants = settings.tenants
        self.remembered_hours = settings.remembered_session_hours
        self.metrics = SummedMetrics()
        self._open: dict[str, ServedLibrary] = {}
        self._lock = asyncio.Lock()
        self._opened = asyncio.Event()

    # The library of a request

    def of(self, caller: Caller) -> ServedLibrary:
        """Return the library of a caller; it was opened to find the caller's session."""
        return self._open[caller.tenant]

    async def named(self, name: str) -> ServedLibrary:
        """Return the library that a request without a caller names: by default the first one.
        NotFoundError if there is none."""
        library = await self._find(name)
        if library is None:
            raise NotFoundError("There is no such library.", tenant=name)
        return library

    async def sign_in(
        self, name: str, body: LoginBody, client: ClientAddress, headers: Agent
    ) -> SignedIn:
        """Sign in to the library that a request names. An absent one is like an unknown user."""
        library, username = await self._find(name), body.username
        if library is None:
            library, username = self._open[self._first], secrets.token_hex(16)
        return await library.accounts.sign_in(
            username,
            body.password,
            client,
            user_agent=headers.user_agent,
            remember=body.remember_me,
            cookies=headers.cookie,
        )

    def check_name(self, name: str | None) -> None:
        """Raise RecordError if a body names another library than the only one."""
        if not self.has_tenants and name not in (None, self._first):
            raise RecordError("The service has one library: leave `tenant` out.", tenant=name)

    async def session(self, id: str) -> StoredSession | None:
        """Return the session or API key of a token: `<library>-<ULID>`, where there are several
        libraries."""
        if not self.has_tenants:
            return await self._open[self._first].accounts.stored_session(id)
        match = _SESSION_ID.fullmatch(id)
        library = await self.find(match["library"]) if match else None
        return await library.accounts.stored_session(match["ulid"]) if library and match else None

    def is_first(self, caller: Caller) -> bool:
        return caller.tenant == self._first

    async def _find(self, name: str) -> ServedLibrary | None:
        return await self.find((name if self.has_tenants else "") or self._first)

    # All libraries

    async def names(self) -> list[str]:
        found = [name async for name in self._engine.spaces() if await self.exists(name)]
        return [self._first, *sorted(name for name in found if name != self._first)]

    async def exists(self, name: str) -> bool:
        if name == self._first:
            return True
        if not _NAME.fullmatch(name) or name in RESERVED_SPACES:
            return False
        return await _is_written(Store(self._schema, self._engine, name))

    async def find(self, name: str) -> ServedLibrary | None:
        """Return a library, which is opened if it exists."""
        library = self._open.get(name)
        if library is None and await self.exists(name):
            library = await self.open(name)
        return library

    async def open(self, name: str) -> ServedLibrary:
        """Open a library, creating it if it is new."""
        async with self._lock:
            if name not in self._open:
                library = self._runtime.tenants.get(name)
                await self._prepare(library)
                self.metrics.add(library.operations.background)
                self.metrics.add(library.search.index)
                self._open[name] = library
                self._opened.set()
        return self._open[name]

    @property
    def tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """The background tasks of all libraries."""
        return [self._run] if self.has_tenants else self._open[self._first].tasks

    async def _run(self) -> None:
        for name in await self.names():
            try:
                await self.find(name)
            except KeyhouseError as error:  # the others are served
                _log.error("library not opened", library=name, error=str(error))
        started: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                self._opened.clear()
                for name in self._open.keys() - started:
                    started.add(name)
                    for task in self._open[name].tasks:
                        group.create_task(_ran(task))
                await self._opened.wait()

    # Opening

    async def _prepare(self, library: ServedLibrary) -> None:
        """Check, migrate and seal the rows of a library. Waits for another process that migrates
        it, or for the lease of one that was killed."""
        for root in library.roots:
            if not root.is_dir():
                _log.warning("a root is not a folder", root=str(root), library=library.name)
        await self._check_prefix(library)
        await self._check_sealed(library)
        ring, in_clear = self._runtime.key_ring, self._schema_as(sealed=False)
        while True:
            try:
                await open_migrated(
                    self._schema, self._engine, library.name, key_ring=ring, wait_seconds=0
                )
                if ring is not None:
                    await reseal(library.store, before=in_clear)
                break
            except LeaseError as error:
                _log.info(
                    "waiting for another process", library=library.name, reason=error.sentence
                )
                await asyncio.sleep(LEASE_RETRY_SECONDS)
        await library.accounts.read_parameters()

    async def _check_prefix(self, library: ServedLibrary) -> None:
        """Raise UsageError if the keys of a library do not have the prefix that the settings
        say."""
        other = library_schema(tenants=not self.has_tenants, sealed=False)
        if await _is_written(Store(other, self._engine, library.name)):
            raise UsageError(
                "The keys of the library have no tenant prefix: stop the service and run"
                " `keyhouse audiobooks tenants on`."
                if self.has_tenants
                else "The keys of the library have a tenant prefix: set `tenants`, or run"
                " `keyhouse audiobooks tenants off`.",
                library=library.name,
            )

    async def _check_sealed(self, library: ServedLibrary) -> None:
        """Raise UsageError if a library has sealed members, and the service no key ring."""
        sealed = Store(self._schema_as(sealed=True), self._engine, library.name)
        if self._runtime.key_ring is None and await has_sealed(sealed):
            raise UsageError(
                "The library has sealed members: set `key_ring` to the file of its keys.",
                library=library.name,
            )

    def _schema_as(self, *, sealed: bool) -> Schema:
        return library_schema(tenants=self.has_tenants, sealed=sealed)


async def _ran(task: Callable[[], Awaitable[None]]) -> None:
    await task()


async def _is_written(store: Store) -> bool:
    """Return whether the library was opened before, by a service or an import with this schema."""
    return await store.get(META.version) is not None


def _roots(roots: Sequence[str], name: str, is_first: bool) -> list[str]:
    """Return the folders of one library: those with `{tenant}`, and for the first one, all."""
    named = [each.replace("{tenant}", name) for each in roots if "{tenant}" in each]
    return [*(each for each in roots if "{tenant}" not in each and is_first), *named]
