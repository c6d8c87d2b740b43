"""Event streams over watches: one watch for all clients that watch the same records.

A feed is one watch (of a store, a record and a filter). It encodes each change once and offers
whole commits to its subscriptions, one per client:

    state        reads from                          next
    -----------  ----------------------------------  ---------------------------------------------
    live         the commits that the feed offers    more unsent bytes than allowed -> catching up
    catching up  its own watch, since the last       a commit that the feed offers  -> live
                 commit that the client was sent     as well

A client that starts at an old revision is catching up first. While a client reads slowly, several
changes of one key may become the newest. The id of the last event of a commit is its revision, so a
client that reconnects neither misses nor repeats a part of a commit.

A commit has ended when a change of the next one follows, or when the watch has delivered all
changes (`caught_up`). Once a client that starts has been sent all changes, a comment says up to
which revision: `: caught-up 17`. `EventSource` of browsers ignores comments.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import copy_context
from typing import Any, Final

import msgspec
import structlog

from keyhouse.engine import CaughtUp, check_since
from keyhouse.errors import KeyhouseError, WatchExpiredError
from keyhouse.http.event_stream import event_block
from keyhouse.schema import Record
from keyhouse.service.push_pacer import PushPacer
from keyhouse.store import Event, Store, UnreadableRow

__all__ = ["HEARTBEAT", "EventEncoder", "Feed", "Subscription", "UnreadableEncoder", "Watched"]

HEARTBEAT: Final = b":\n\n"
_EXPIRED: Final = event_block("expired", b"{}", id="")

_log = structlog.get_logger("keyhouse.service")
_encode = msgspec.json.Encoder().encode

EventEncoder = Callable[[Event[Any]], tuple[str, Any]]
"""Returns the name of an event and its data, which is encoded as JSON."""

UnreadableEncoder = Callable[[UnreadableRow], tuple[str, Any]]
"""Returns the name and data of the event of a row that does not decode."""


class Commit:
    """The changes of one commit, encoded once. `blocks` maps a key to its event without an id."""

    __slots__ = ("blocks", "encoded", "revision")

    def __init__(self, revision: int, blocks: dict[str, bytes]) -> None:
        self.revision = revision
        self.blocks = blocks
        *others, last = blocks.values()
        self.encoded = b"".join((*others, b"id: %d\n" % revision, last))


class Watched(msgspec.Struct, frozen=True):
    """The records that a feed watches, and the encoder of their changes. Several records have no
    prefix and no fields. A row that does not decode is logged, and skipped unless it has an encoder
    too."""

    store: Store
    records: tuple[Record[Any], ...]
    prefix: str | None
    fields: dict[str, Any]
    encode: EventEncoder
    encode_unreadable: UnreadableEncoder | None = None

    async def commits(
        self, since: int, on_caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Commit, None]:
        """Iterate over the commits after `since`. `on_caught_up` is called with a revision when all
        commits up to it were delivered."""
        caught_up, position = asyncio.Event(), since

        def note(revision: int) -> None:
            nonlocal position
            position = revision
            caught_up.set()

        events = self._changes(since, note)
        step: asyncio.Future[Event[Any] | UnreadableRow] | None = None
        revision, blocks = since, dict[str, bytes]()
        try:
            while True:
                caught_up.clear()
                step = asyncio.ensure_future(anext(events))
                if blocks or on_caught_up is not None:
                    ended = asyncio.ensure_future(caught_up.wait())
                    await asyncio.wait({step, ended}, return_when=asyncio.FIRST_COMPLETED)
                    ended.cancel()
                    if blocks and (not step.done() or step.exception() is not None):
                        yield Commit(revision, blocks)
                        blocks = {}
                    if on_caught_up is not None and caught_up.is_set() and not step.done():
                        on_caught_up(position)
                event = await step
                at = event.row if isinstance(event, UnreadableRow) else event
                if blocks and at.revision != revision:
                    yield Commit(revision, blocks)
                    blocks = {}
                revision = at.revision
                if (block := self._block(event)) is not None:
                    blocks[at.key] = block
        finally:
            if step is not None:
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            await events.aclose()

    def _block(self, event: Event[Any] | UnreadableRow) -> bytes | None:
        if isinstance(event, Event):
            name, data = self.encode(event)
            return event_block(name, _encode(data))
        _log.warning("a watched row does not decode", error=str(event.error))
        if self.encode_unreadable is None:
            return None
        name, data = self.encode_unreadable(event)
        return event_block(name, _encode(data))

    def _changes(
        self, since: int, caught_up: CaughtUp
    ) -> AsyncGenerator[Event[Any] | UnreadableRow, None]:
        return self.store.record_changes(
            *self.records, since=since, prefix=self.prefix, caught_up=caught_up, **self.fields
        )


class Feed:
    """One watch and its subscriptions. `position` is the revision up to which it has offered."""

    def __init__(
        self, watched: Watched, pacer: PushPacer, stopped: Callable[["Feed"], object]
    ) -> None:
        self.watched = watched
        self._pacer = pacer
        self.position = 0
        self._stopped = stopped
        self._subscriptions: dict[Subscription, None] = {}
        self._start: asyncio.Task[int] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def join(self, subscription: "Subscription", since: int | None) -> None:
        """Add a subscription that is sent every commit after `since`."""
        self._subscriptions[subscription] = None
        if self._start is None:
            self._start = asyncio.ensure_future(self.watched.store.revision())
        start = await asyncio.shield(self._start)
        if self._pump is None:
            self.position = start
            self._pump = asyncio.ensure_future(self._run(start))
        if since is not None and since > self.position:
            try:
                check_since(since, await self.watched.store.revision())
            except WatchExpiredError:
                subscription.finish(_EXPIRED)
                return
        subscription.start(self.position if since is None else since, self.position)

    def leave(self, subscription: "Subscription") -> None:
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions:
            self._stop()

    async def _run(self, since: int) -> None:
        try:
            async with aclosing(self.watched.commits(since)) as commits:
                async for commit in commits:
                    await self._offer(commit)
        except WatchExpiredError:
            await self._end(_EXPIRED)
        except KeyhouseError as error:
            _log.warning("event streams ended", error=str(error))
            await self._end(b"")
        except Exception:
            _log.exception("event streams ended")
            await self._end(b"")

    async def _offer(self, commit: Commit) -> None:
        """Offer a commit to all subscriptions."""
        self.position = commit.revision
        await self._pacer.push(lambda each: each.offer(commit), self._subscriptions)

    async def _end(self, last: bytes) -> None:
        self._stopped(self)
        await self._pacer.push(lambda each: each.finish(last), self._subscriptions)

    def _stop(self) -> None:
        self._stopped(self)
        for task in (self._pump, self._start):
            if task is not None:
                task.cancel()


class Subscription:
    """The events of one client: see the states above.

    `pending` are the commits to send next. While it catches up, `offered` are those that the feed
    has offered meanwhile; everything after revision `joined` is offered.

    It may start to catch up in the task of the feed, which is that of another client's request: it
    reads in the context of its request, whose meter counts what is read.
    """

    __slots__ = (
        "_bytes_max",
        "_catching_up",
        "_caught_up",
        "_closed",
        "_context",
        "_feed",
        "_has_beat",
        "_has_ended",
        "_joined",
        "_last",
        "_offered",
        "_offered_bytes",
        "_pending",
        "_sent",
        "_taken",
        "_woken",
        "pending_bytes",
    )

    def __init__(
        self, feed: Feed, bytes_max: int, closed: Callable[["Subscription"], object]
    ) -> None:
        self._feed = feed
        self._context = copy_context()
        self._bytes_max = bytes_max
        self._closed: Callable[[Subscription], object] | None = closed
        self._pending: list[Commit] = []
        self.pending_bytes = 0
        self._offered: list[Commit] = []
        self._offered_bytes = 0
        self._sent: int | None = None  # the newest revision sent
        self._joined = 0
        self._catching_up: asyncio.Task[None] | None = None
        self._last = b""
        self._caught_up: int | None = None  # a revision to report, once nothing is pending
        self._has_ended = self._has_beat = False
        self._woken = asyncio.Event()
        self._taken = asyncio.Event()

    async def next(self) -> bytes | None:
        while True:
            if self._pending:
                return self._take()
            if self._last:
                last, self._last = self._last, b""
                return last
            if self._has_ended:
                return None
            if self._caught_up is not None:
                revision, self._caught_up = self._caught_up, None
                return b": caught-up %d\n\n" % revision
            if self._has_beat:
                self._has_beat = False
                return HEARTBEAT
            self._woken.clear()
            await self._woken.wait()

    def close(self) -> None:
        if self._closed is None:
            return
        closed, self._closed = self._closed, None
        self._pending, self._offered, self._last = [], [], b""
        self.finish(b"")
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._feed.leave(self)
        closed(self)

    def start(self, since: int, position: int) -> None:
        """Start after revision `since`. The feed has offered everything up to `position`."""
        self._sent = since
        self._joined = max(since, position)
        if since < position:
            self._catch_up()
        else:
            self._note_caught_up(since)

    def offer(self, commit: Commit) -> None:
        """Take a commit of the feed."""
        if self._sent is None or self._has_ended or commit.revision <= self._joined:
            return
        if self._catching_up is None:
            self._add(commit)
            if self.pending_bytes > self._bytes_max:
                self._compact(commit.revision)
            return
        self._offered.append(commit)
        self._offered_bytes += len(commit.encoded)
        if self._offered_bytes > self._bytes_max:
            self._drop_offered(commit.revision)

    def beat(self) -> None:
        """Send a heartbeat, unless something else is to be sent."""
        self._has_beat = not self._pending
        self._woken.set()

    def finish(self, last: bytes) -> None:
        """End the stream after what is unsent and these last bytes."""
        self._last = last
        self._has_ended = True
        self._woken.set()

    def _add(self, commit: Commit) -> None:
        self._pending.append(commit)
        self.pending_bytes += len(commit.encoded)
        self._woken.set()

    def _take(self) -> bytes:
        commits, self._pending = self._pending, []
        self.pending_bytes = 0
        self._sent = commits[-1].revision
        self._taken.set()
        self._has_beat = False
        return b"".join([commit.encoded for commit in commits])

    def _compact(self, revision: int) -> None:
        """Keep the newest change of each key; drop all and catch up if that is still too much."""
        newest: dict[str, tuple[int, bytes]] = {}
        for commit in self._pending:
            for key, block in commit.blocks.items():
                newest.pop(key, None)
                newest[key] = commit.revision, block
        self.pending_bytes = sum(len(block) for _, block in newest.values())
        if self.pending_bytes <= self._bytes_max // 2:
            self._pending = _grouped(newest)
            return
        self._pending, self.pending_bytes = [], 0
        self._drop_offered(revision)
        self._catch_up()

    def _drop_offered(self, position: int) -> None:
        self._offered, self._offered_bytes = [], 0
        self._joined = position

    def _note_caught_up(self, revision: int) -> None:
        """Report that all changes up to a revision were sent, after what is pending."""
        self._caught_up = revision
        self._woken.set()

    def _catch_up(self) -> None:
        self._catching_up = self._context.run(asyncio.ensure_future, self._read_missed())

    async def _read_missed(self) -> None:
        assert self._sent is not None
        try:
            read = self._feed.watched.commits(self._sent, self._note_caught_up)
            async with aclosing(read) as commits:
                async for commit in commits:
                    if commit.revision > self._joined:
                        break  # the feed offers it
                    self._add(commit)
                    while self.pending_bytes > self._bytes_max // 2:
                        self._taken.clear()
                        await self._taken.wait()
        except WatchExpiredError:
            self.finish(_EXPIRED)
        except KeyhouseError as error:
            _log.warning("event stream ended", error=str(error))
            self.finish(b"")
        self._catching_up = None
        offered = self._offered
        self._drop_offered(self._joined)
        for commit in offered:
            self._add(commit)


def _grouped(newest: dict[str, tuple[int, bytes]]) -> list[Commit]:
    """Return the changes as commits; they are in the order of their revisions."""
    by_revision: dict[int, dict[str, bytes]] = {}
    for key, (revision, block) in newest.items():
        by_revision.setdefault(revision, {})[key] = block
    return [Commit(revision, blocks) for revision, blocks in by_revision.items()]
