"""The six buckets of one namespace, as stores, and the JSON of other programs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Final, Never, TypeVar

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Engine, Span
from keyhouse.errors import DataError, NewerError, UnreadableError
from keyhouse.schema import SECONDS, Record, Schema
from keyhouse.store import Store, Transaction
from keyhouse_playlist.errors import ForeignRowError, NewerRowError
from keyhouse_playlist.schema import ACL, ANALYTICS, AUTH, LIKES, PLAYLISTS, SNAPSHOTS

__all__ = ["PlaylistStores", "foreign_json", "readable"]

T = TypeVar("T")

_SECOND: Final = 1_000


class SharedStore(Store):
    """A store of rows that other programs write too. A row that this code cannot read, and a
    request needs, is a conflict that names the row, and not a fault of this service; the row is
    left as it is."""

    async def get(self, record: Record[T], /, *positional: Never, **fields: Any) -> T | None:
        with _conflicts():
            return await super().get(record, *positional, **fields)

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, batch_id: str | None = None
    ) -> T:
        with _conflicts():
            return await super().transact(work, batch_id=batch_id)


@contextmanager
def _conflicts() -> Iterator[None]:
    try:
        yield
    except NewerError as error:
        raise NewerRowError(
            "A newer program wrote a row that this needs: use that program.", **error.fields
        ) from error
    except UnreadableError as error:
        raise ForeignRowError(
            "Another program left a row that cannot be read: correct it, or delete it.",
            **error.fields,
        ) from error


class PlaylistStores:
    """The stores of a namespace, and the time in the form of the documents."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        def store(schema: Schema) -> Store:
            return SharedStore(schema, engine, schema.name, namespace=namespace)

        self.namespace = namespace
        self.clock: Clock = engine.clock
        self.snapshots = store(SNAPSHOTS)
        self.acl = store(ACL)
        self.playlists = store(PLAYLISTS)
        self.auth = store(AUTH)
        self.analytics = store(ANALYTICS)
        self.likes = store(LIKES)

    @property
    def all(self) -> tuple[Store, ...]:
        return (
            self.snapshots,
            self.acl,
            self.playlists,
            self.auth,
            self.analytics,
            self.likes,
        )

    async def create_buckets(self) -> None:
        """Create the buckets that do not exist yet: other programs use existing ones only."""
        for store in self.all:
            await _create_space(store)

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self.clock.now()

    def today(self) -> date:
        """Return the day (UTC)."""
        return datetime.fromtimestamp(self.now() / 1_000, UTC).date()

    def now_text(self, seconds_later: float = 0) -> str:
        """Return the time as the documents have it: UTC with `Z`."""
        return SECONDS.format(self.now() + round(seconds_later * _SECOND))

    def seconds_until(self, text: str) -> int:
        """Return the whole seconds until a time, rounded up; 0 or less if it is past."""
        return -((self.now() - SECONDS.parse(text)) // _SECOND)


async def readable(store: Store, record: Record[T], /, **fields: str) -> T | None:
    """Return a record, or None if it is absent or another program left something unreadable."""
    try:
        return await store.get(record, **fields)
    except DataError:
        return None


def foreign_json(data: bytes) -> Any:
    """Return the value of JSON that another program wrote; None if it is not JSON, or nested too
    deeply."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


async def _create_space(store: Store) -> None:
    """Start a watch, which creates a missing bucket and changes no other, and close it."""
    has_started = asyncio.Event()
    changes = store.row_watch(Span.only("ns"), caught_up=lambda _: has_started.set())
    first = asyncio.ensure_future(anext(changes))
    started = asyncio.ensure_future(has_started.wait())
    try:
        await asyncio.wait({first, started}, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
    finally:
        first.cancel()
        started.cancel()
        await asyncio.gather(first, started, return_exceptions=True)
        await changes.aclose()
