"""Watches: each reads the tail of the mirror's entries on its own.

Nothing is buffered for a watcher, however slow it is. A change is yielded only if it is still the
newest of its row; otherwise a newer one follows. An expired row is yielded as deleted: the watcher
may still hold the value that it replaced.
"""

from collections.abc import AsyncGenerator, Callable

from keyhouse.clock import Clock
from keyhouse.engine import CaughtUp, Change, Span, check_since, outdated
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import MirrorState
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.errors import UnavailableError


async def changes(
    bucket: Bucket,
    space: str,
    span: Span,
    since: int | None,
    clock: Clock,
    check_open: Callable[[], None],
    caught_up: CaughtUp | None,
) -> AsyncGenerator[Change, None]:
    await until_available(bucket.sync)
    check_since(since, bucket.mirror.position)
    position = bucket.mirror.position if since is None else since
    while True:
        check_open()
        mirror = bucket.mirror
        published, changed = mirror.position, mirror.next_change()
        if mirror.state is MirrorState.SERVING:
            if position < mirror.horizon:
                raise outdated(position, mirror.horizon)
            for key, entry in mirror.changes_since(space, position):
                if (
                    key in span
                    and (change := await _newest(bucket, space, key, entry, clock, check_open))
                    is not None
                ):
                    yield change
            position = max(position, published)
        if mirror is bucket.mirror and mirror.position == published:
            if caught_up is not None and mirror.state is MirrorState.SERVING:
                caught_up(position)
            await changed.wait()


async def _newest(
    bucket: Bucket, space: str, key: str, entry: Entry, clock: Clock, check_open: Callable[[], None]
) -> Change | None:
    if bucket.mirror.entry(space, key) is not entry:
        return None
    if not entry.is_live(clock.now()):
        return Change(key, entry.revision, None)
    value = await _value(bucket, entry, check_open)
    return None if value is None else Change(key, entry.revision, value, entry.expires)


async def _value(bucket: Bucket, entry: Entry, check_open: Callable[[], None]) -> bytes | None:
    """Return the entry's value, waiting as long as the server is unavailable."""
    while True:
        try:
            return await until_available(lambda: bucket.value(entry))
        except UnavailableError:
            check_open()
