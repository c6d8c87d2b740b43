"""Work that a killed process has left in a space: deletions of owned rows, and `forget`."""

import msgspec

from keyhouse.schema import Schema
from keyhouse.store.jobs.cascade_delete import resume_expired
from keyhouse.store.jobs.erase_space import WATCH_SECONDS, has_mark, resume_forget
from keyhouse.store.store import Store


class Resumed(msgspec.Struct, frozen=True):
    """`deletions` were finished, and the space was `forgotten`.

    `lease_until` is the time (clock milliseconds) when the lease of other work expires that its
    runner may still do; None if there is none.
    """

    deletions: int = 0
    forgotten: bool = False
    lease_until: int | None = None


def can_be_interrupted(schema: Schema) -> bool:
    """Return whether a space of the schema can have such work."""
    return has_mark(schema) or schema.meta is not None


async def resume_interrupted(store: Store, *, watch_seconds: float = WATCH_SECONDS) -> Resumed:
    """Finish the work of a space whose runner was killed: each of it once, by one runner at a time.

    A running service calls this for all of its spaces. `watch_seconds` is that of `Store.forget`.
    """
    if has_mark(store.schema):
        forgotten, lease = await resume_forget(
            store.engine, store.space, watch_seconds=watch_seconds
        )
        if forgotten or lease is not None:
            return Resumed(forgotten=forgotten, lease_until=lease)
    deletions, lease = await resume_expired(store)
    return Resumed(deletions=deletions, lease_until=lease)
