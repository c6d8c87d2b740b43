"""The six buckets of one namespace, as stores."""

import asyncio
from typing import Final, TypeVar

from keyhouse.clock import Clock
from keyhouse.engine import Engine, Span
from keyhouse.errors import DataError
from keyhouse.schema import SECONDS, Record, Schema
from keyhouse.store import Store
from keyhouse.systems.playlist.schema import ACL, ANALYTICS, AUTH, LIKES, PLAYLISTS, SNAPSHOTS

__all__ = ["PlaylistStores", "folded_name", "readable"]

T = TypeVar("T")

_SECOND: Final = 1_000


class PlaylistStores:
    """The stores of a namespace, and the time in the form of the documents."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        def store(schema: Schema) -> Store:
            return Store(schema, engine, schema.name, namespace=namespace)

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


def folded_name(name: str) -> str:
    """Return a user's name in the form in which names compare."""
    return name.strip().casefold()


async def _create_space(store: Store) -> None:
    """Start a watch, which creates a missing bucket, and close it."""
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
