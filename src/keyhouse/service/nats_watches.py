"""Watches over NATS: publish a tenant's changes to a subject that it names, until nobody listens
there.

A tenant may name only its own subjects: below its inbox, `_INBOX_<tenant>.`, or below `<changes
prefix>.<tenant>.`. The service may publish anywhere, and must not be made to publish to others on a
tenant's behalf.

Every message has a sequence number `n`. A client that misses one watches again, `since` the last
revision it saw. Heartbeats between changes check for a listener; without one the watch stops. When
the service shuts down it sends `end`, and the client can watch again through another process. So
it can if the tenant's watches have too many changes waiting to be sent. A watch that is replaced
sends nothing more: the next message of its subject is the first of the new watch. The old one may
run in another process (`watch_peers`).
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from keyhouse.engine import check_since
from keyhouse.errors import BusyError, KeyhouseError, QuotaError
from keyhouse.nats.endpoint import Publisher
from keyhouse.schema import Record
from keyhouse.service.errors import SubjectError
from keyhouse.service.limits import TENANT_WATCHES_MAX, WATCH_SUBJECT_CHARS_MAX, WATCHES_MAX
from keyhouse.service.metrics import OperationMetrics
from keyhouse.service.operation_log import OperationLog, error_code
from keyhouse.service.watch_peers import WatchPeers
from keyhouse.store import Event, Store, UnreadableRow

__all__ = ["Watches"]

_WORDS: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")

OVERFLOW: Final = "overflow"
"""The `end` of a watch whose tenant has too many changes waiting to be sent; `since` resumes it."""

_STOPPED: Final = "stopped"
_REPLACED: Final = "replaced"

Encode = Callable[[Event[Any] | UnreadableRow], dict[str, Any] | None]
"""Returns the message of a change, or None if none is sent."""

_encode = msgspec.json.Encoder().encode


class Watches:
    """All watches of one service in this process. Run `follow_peers` as a task of the service."""

    def __init__(
        self,
        changes_prefix: str,
        heartbeat_seconds: float,
        metrics: OperationMetrics,
        log: OperationLog,
        peers: WatchPeers,
    ) -> None:
        self._changes_prefix = changes_prefix
        self._heartbeat_seconds = heartbeat_seconds
        self._metrics = metrics
        self._log = log
        self._peers = peers
        self._active: dict[tuple[str, str], _Watch] = {}

    async def follow_peers(self) -> None:
        """Stop watches that other processes stop or replace, until cancelled."""
        await self._peers.run(self._stop_for)

    async def stop(self, tenant: str, subject: str) -> bool:
        """Stop a watch, of any process, and return whether it was active."""
        watch = self._active.pop((tenant, self._own_subject(tenant, subject)), None)
        if watch is not None:
            watch.stop(_STOPPED)
        return await self._peers.stop(tenant, subject, _STOPPED) or watch is not None

    async def _stop_for(self, tenant: str, subject: str, reason: str, process: str) -> bool:
        """Stop a watch for another process; return after its last message. Of two that start at the
        same time, the one of the process with the greater name stays."""
        watch = self._active.get((tenant, subject))
        if watch is None or (watch.is_starting and process < self._peers.process):
            return False
        del self._active[tenant, subject]
        watch.stop(reason)
        await watch.ended.wait()
        return True

    async def start(
        self,
        store: Store,
        record: Record[Any],
        subject: str,
        publisher: Publisher,
        *,
        prefix: str | None,
        since: int | None,
        encode: Encode | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> int:
        """Start a watch and return the revision at which it starts. It replaces an earlier one of
        the same subject.

        `encode` returns the message of a change or of a row that does not decode, or None to skip
        it; `fields` are leading key fields of the records.
        """
        id = store.space, self._own_subject(store.space, subject)
        old = self._active.pop(id, None)
        if old is not None:
            old.stop(_REPLACED)
        self._check_limits(store.space)
        watch = self._active[id] = _Watch()  # before the first await: others may come between
        try:
            if old is not None:
                await old.ended.wait()
            await self._peers.stop(*id, _REPLACED)
            revision = await store.revision()
            check_since(since, revision)
        except BaseException:
            self._remove(id, watch)
            watch.ended.set()
            raise
        watch.is_starting = False
        start = revision if since is None else since
        push = WatchPush(store.space, subject, publisher, start, encode or _change_message)
        events = store.record_changes(
            record, since=start, prefix=prefix, caught_up=push.caught_up, **(fields or {})
        )
        publisher.spawn(self._run(store, self._pushed(events, push), push, watch))
        return start

    def _check_limits(self, tenant: str) -> None:
        if len(self._active) >= WATCHES_MAX:
            raise BusyError("Too many watches are active: try again later.", limit=WATCHES_MAX)
        if sum(name == tenant for name, _ in self._active) >= TENANT_WATCHES_MAX:
            raise QuotaError("Too many active watches: stop one.", limit=TENANT_WATCHES_MAX)

    def _remove(self, id: tuple[str, str], watch: "_Watch") -> None:
        """Remove a watch, unless another has replaced it."""
        if self._active.get(id) is watch:
            del self._active[id]

    def _own_subject(self, tenant: str, subject: str) -> str:
        prefixes = (f"_INBOX_{tenant}.", f"{self._changes_prefix}.{tenant}.")
        if (
            len(subject) <= WATCH_SUBJECT_CHARS_MAX
            and subject.startswith(prefixes)
            and _WORDS.fullmatch(subject)
        ):
            return subject
        raise SubjectError(
            "Changes are sent only to the tenant's own subjects, without wildcards.",
            subject=subject,
            allowed=[f"{prefix}*" for prefix in prefixes],
        )

    async def _run(
        self,
        store: Store,
        pushing: Coroutine[Any, Any, None],
        push: "WatchPush",
        watch: "_Watch",
    ) -> None:
        changes = asyncio.create_task(pushing)
        heartbeat = asyncio.create_task(self._heartbeat(push))
        stopping = asyncio.create_task(watch.stopping.wait())
        tasks = (changes, heartbeat, stopping)
        self._metrics.watches += 1
        reason = "drained"
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopping in done:
                reason = watch.reason
            elif heartbeat in done:
                reason = "nobody listens"
            else:
                reason = self._failure(changes)
        finally:
            self._metrics.watches -= 1
            self._remove((store.space, push.subject), watch)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if reason != _REPLACED:
                await push.end(reason)
            watch.ended.set()
            self._log.watch_ended(store.space, push.subject, reason)

    async def _pushed(
        self, changes: AsyncGenerator[Event[Any] | UnreadableRow, None], push: "WatchPush"
    ) -> None:
        async with aclosing(changes) as events:
            async for event in events:
                if isinstance(event, UnreadableRow):
                    self._log.task_failed("watch", event.error)
                await push.change(event)

    async def _heartbeat(self, push: "WatchPush") -> None:
        """Return when nobody listens."""
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            if not await push.has_listener():
                return

    def _failure(self, changes: "asyncio.Task[None]") -> str:
        error = changes.exception()
        if isinstance(error, BusyError):  # of the push queue
            return OVERFLOW
        if not isinstance(error, KeyhouseError) or error.status >= 500:
            self._log.task_failed("watch", error)
        return error_code(error)


class _Watch:
    """The state of a watch: it starts, runs, is stopped for a `reason`, and has ended when its last
    message is sent."""

    def __init__(self) -> None:
        self.is_starting = True
        self.reason = ""
        self.stopping = asyncio.Event()
        self.ended = asyncio.Event()

    def stop(self, reason: str) -> None:
        self.reason = reason
        self.stopping.set()


class WatchPush:
    """The numbered messages of one watch."""

    def __init__(
        self,
        tenant: str,
        subject: str,
        publisher: Publisher,
        revision: int,
        encode: Encode,
    ) -> None:
        self._encode = encode
        self.subject = subject
        self._tenant = tenant
        self._publisher = publisher
        self._number = 0
        self._order = asyncio.Lock()
        self._revision = self._complete = revision

    async def change(self, event: Event[Any] | UnreadableRow) -> None:
        revision = event.revision if isinstance(event, Event) else event.row.revision
        if revision != self._revision:  # all changes of the commit before it are sent
            self._complete, self._revision = self._revision, revision
        message = self._encode(event)
        if message is None:
            return
        async with self._order:
            data = self._numbered(message)
            await self._publisher.publish(self.subject, data, tenant=self._tenant)

    def caught_up(self, revision: int) -> None:
        """Note that all changes up to a revision were sent."""
        self._complete = self._revision = revision

    async def has_listener(self) -> bool:
        async with self._order:  # a heartbeat must not overtake a change that waits to be sent
            # the commit of the last change may have others: a client would resume behind them
            heartbeat = self._numbered({"heartbeat": True, "revision": self._complete})
            return await self._publisher.has_listener(self.subject, heartbeat)

    async def end(self, reason: str) -> None:
        message: dict[str, Any] = {"end": reason}
        if reason == OVERFLOW:
            message["since"] = self._complete
        await self._publisher.publish(self.subject, self._numbered(message))

    def _numbered(self, message: dict[str, Any]) -> bytes:
        self._number += 1
        return _encode({"n": self._number, **message})


def _change_message(event: Event[Any] | UnreadableRow) -> dict[str, Any] | None:
    if isinstance(event, UnreadableRow):
        return None
    message = {"key": event.key, "revision": event.revision, "deleted": event.gone}
    return message if event.gone else message | {"value": event.record}
