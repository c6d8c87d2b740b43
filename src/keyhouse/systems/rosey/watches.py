"""Watches: a plugin's changes, pushed to a subject that it names, until nobody listens there.

A plugin may name only subjects that are its own: below its inbox, `_INBOX_<plugin>.`, or below `<changes prefix>.<plugin>.`.
Else it could have the service, which may publish anywhere, speak to others in its place.

Every message has a number, `n`, that grows by one: who misses one watches again, `since` the last revision seen. Between
changes a heartbeat asks whether anybody listens; when nobody does, the watch ends by itself. When the service leaves, it
says so (`end`), and who listens can ask again, and is answered by another process.
"""

import asyncio
import re
from contextlib import aclosing
from typing import Any, Final

import msgspec
import structlog

from keyhouse.engine import check_since
from keyhouse.errors import BusyError, KeyhouseError, QuotaError
from keyhouse.nats.endpoint import Publisher
from keyhouse.store import Event, Store
from keyhouse.systems.rosey.errors import SubjectError
from keyhouse.systems.rosey.figures import Figures
from keyhouse.systems.rosey.journal import origin
from keyhouse.systems.rosey.limits import PLUGIN_WATCHES_MAX, WATCH_SUBJECT_CHARS_MAX, WATCHES_MAX
from keyhouse.systems.rosey.requests import Watch
from keyhouse.systems.rosey.schema import VALUE

__all__ = ["Watches"]

_WORDS: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")

_encode = msgspec.json.Encoder().encode
_log: Any = structlog.get_logger("keyhouse.rosey")


class Watches:
    """All that run in this process."""

    def __init__(self, changes_prefix: str, heartbeat_seconds: float, figures: Figures) -> None:
        self._changes_prefix = changes_prefix
        self._heartbeat_seconds = heartbeat_seconds
        self._figures = figures
        self._running: dict[tuple[str, str], asyncio.Event] = {}

    async def watch(self, store: Store, body: Watch, courier: Publisher) -> bytes:
        """Begin one, or end it; one that is asked for again at the same subject begins anew."""
        subject = self._own_subject(store.space, body.subject)
        place = store.space, subject
        if (earlier := self._running.pop(place, None)) is not None:
            earlier.set()
        if body.stop:
            return _encode({"success": True, "stopped": earlier is not None})
        if len(self._running) >= WATCHES_MAX:
            raise BusyError(
                "As many watches are running as there may be; try again later.", limit=WATCHES_MAX
            )
        if sum(plugin == store.space for plugin, _ in self._running) >= PLUGIN_WATCHES_MAX:
            raise QuotaError(
                "The plugin has as many watches as it may: stop one.", limit=PLUGIN_WATCHES_MAX
            )
        if body.prefix:
            VALUE.template.check(
                {"key": body.prefix}
            )  # it is kept: one longer than any key would only fill the memory
        ended = self._running[place] = (
            asyncio.Event()
        )  # before anything is waited for: others may ask meanwhile
        try:
            page = await store.page(VALUE, limit=1)
            check_since(body.since, page.revision)
        except BaseException:
            self._forget(place, ended)
            raise
        since = page.revision if body.since is None else body.since
        courier.spawn(self._run(store, body.prefix, since, subject, courier, ended))
        return _encode({"success": True, "subject": subject, "revision": since})

    def _forget(self, place: tuple[str, str], ended: asyncio.Event) -> None:
        """Unless it has been begun anew since."""
        if self._running.get(place) is ended:
            del self._running[place]

    def _own_subject(self, plugin: str, subject: Any) -> str:
        for own in (f"_INBOX_{plugin}.", f"{self._changes_prefix}.{plugin}."):
            if (
                len(subject) <= WATCH_SUBJECT_CHARS_MAX
                and subject.startswith(own)
                and _WORDS.fullmatch(subject)
            ):
                return str(subject)
        raise SubjectError(
            "Changes can be sent only to subjects of the plugin's own, without wildcards.",
            subject=subject,
            allowed=[f"_INBOX_{plugin}.*", f"{self._changes_prefix}.{plugin}.*"],
        )

    async def _run(
        self,
        store: Store,
        prefix: str,
        since: int,
        subject: str,
        courier: Publisher,
        ended: asyncio.Event,
    ) -> None:
        push = _Push(subject, courier, since)
        changes = asyncio.create_task(self._push_changes(store, prefix, since, push))
        beating = asyncio.create_task(self._beat(push))
        stopping = asyncio.create_task(ended.wait())
        self._figures.watches += 1
        reason = "drained"
        try:
            done, _ = await asyncio.wait(
                (changes, beating, stopping), return_when=asyncio.FIRST_COMPLETED
            )
            reason = (
                "stopped"
                if stopping in done
                else "nobody listens"
                if beating in done
                else _failure(changes)
            )
        finally:
            self._figures.watches -= 1
            self._forget((store.space, subject), ended)
            for task in (changes, beating, stopping):
                task.cancel()
            await asyncio.gather(changes, beating, stopping, return_exceptions=True)
            await push.send({"end": reason})
            _log.debug(
                "kv watch ended",
                operation="kv_watch",
                plugin=store.space,
                subject=subject,
                reason=reason,
            )

    async def _push_changes(self, store: Store, prefix: str, since: int, push: "_Push") -> None:
        async with aclosing(store.watch(VALUE, since=since, prefix=prefix or None)) as events:
            async for event in events:
                await push.change(event)

    async def _beat(self, push: "_Push") -> None:
        """Ends when nobody listens."""
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            if not await push.has_listener():
                return


def _failure(changes: "asyncio.Task[None]") -> str:
    error = changes.exception()
    code = error.code if isinstance(error, KeyhouseError) else KeyhouseError.code
    if not isinstance(error, KeyhouseError) or error.status >= 500:
        _log.error(
            "kv watch failed", operation="kv_watch", error=code, reason=str(error), **origin(error)
        )
    return code


class _Push:
    """The numbered messages of one watch."""

    def __init__(self, subject: str, courier: Publisher, revision: int) -> None:
        self._subject = subject
        self._courier = courier
        self._number = 0
        self._revision = revision

    async def change(self, event: Event[Any]) -> None:
        self._revision = event.revision
        said = {"key": event.key, "revision": event.revision, "deleted": event.gone}
        await self.send(said if event.gone else said | {"value": event.record})

    async def has_listener(self) -> bool:
        return await self._courier.has_listener(
            self._subject, self._numbered({"heartbeat": True, "revision": self._revision})
        )

    async def send(self, message: dict[str, Any]) -> None:
        await self._courier.publish(self._subject, self._numbered(message))

    def _numbered(self, message: dict[str, Any]) -> bytes:
        self._number += 1
        return _encode({"n": self._number, **message})
