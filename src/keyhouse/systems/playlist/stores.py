"""The six buckets of one namespace, as stores."""

from typing import Final, TypeVar

from keyhouse.clock import Clock
from keyhouse.engine import Engine
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
