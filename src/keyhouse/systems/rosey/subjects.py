"""The NATS subjects: `<prefix>.<plugin>.<operation>`, each message resolved to a plugin and an
operation, measured and logged.

The plugin is taken from the subject, never from the payload.
"""

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

import msgspec

from keyhouse.errors import KeyFieldError
from keyhouse.metrics import Timing
from keyhouse.nats.endpoint import Endpoint, Request, may_receive_reply
from keyhouse.nats.limits import TENANTS_CACHED
from keyhouse.service.errors import SubjectError
from keyhouse.service.nats_watches import Watches
from keyhouse.service.operation_log import error_code
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.watch_peers import WatchPeers
from keyhouse.systems.rosey.errors import PluginNameError
from keyhouse.systems.rosey.limits import BODY_BYTES_PER_REQUEST
from keyhouse.systems.rosey.messages import BODIES, COSTS, OPERATIONS, Watch, log_fields
from keyhouse.systems.rosey.operations import Plugin
from keyhouse.systems.rosey.payload_form import payload_endpoint
from keyhouse.systems.rosey.schema import VALUE
from keyhouse.systems.rosey.settings import RoseySettings

READS: Final = frozenset({"get", "list", "mget", "scan", "count"})
"""Operations that are skipped if nobody waits for the reply."""

_encode = msgspec.json.Encoder().encode


class ResolvedSubject:
    """The plugin and operation of one subject, cached: one lookup per message."""

    __slots__ = ("cost", "operation", "plugin", "read", "run", "timing")

    def __init__(self, plugin: Plugin, operation: str) -> None:
        self.plugin = plugin
        self.operation = operation
        self.timing: Timing | None = None
        self.read = BODIES[operation].read
        self.cost = COSTS.get(operation)
        self.run: Callable[[Any], Awaitable[bytes]] | None = (
            None if operation == "watch" else getattr(plugin, operation)
        )


class Subjects:
    """Handles every message of every plugin."""

    def __init__(self, runtime: ServiceRuntime[Plugin], settings: RoseySettings) -> None:
        self._settings = settings
        self._tenants = runtime.tenants
        self._metrics = runtime.metrics
        self._log = runtime.log
        self._rates = runtime.rates
        self.watches = Watches(
            settings.changes_prefix,
            settings.heartbeat_seconds,
            runtime.metrics,
            runtime.log,
            WatchPeers(runtime.bus, settings.queue, secrets.token_hex(8)),
        )
        self._resolved: dict[str, ResolvedSubject] = {}
        self._tenants.on_evict = self._resolved.clear
        own = [*settings.prefixes, settings.changes_prefix]
        if settings.payload_prefix is not None:
            own.append(settings.payload_prefix)
        self._own = tuple(f"{prefix}." for prefix in own)

    def endpoints(self) -> list[Endpoint]:
        endpoints = [
            Endpoint(
                name=prefix.replace(".", "-"),
                subject=f"{prefix}.*.*",
                handler=self._handler(len(prefix) + 1),
                operations={name: f"{prefix}.*.{name}" for name in OPERATIONS},
                rejected=partial(self._rejected, len(prefix) + 1),
                queue=self._settings.queue,
                tenant=partial(_plugin_of, len(prefix) + 1),
                partition_by=1,
                public=True,
            )
            for prefix in self._settings.prefixes
        ]
        if (payload_prefix := self._settings.payload_prefix) is not None:
            first = self._settings.prefixes[0]
            handler = self._handler(len(first) + 1)
            endpoints.append(
                payload_endpoint(
                    payload_prefix, first, handler, self._settings.queue, self._may_receive
                )
            )
        return endpoints

    def _handler(self, start: int) -> Callable[[Request], Awaitable[bytes | None]]:
        """Return no coroutine function: it would add one more step to every message."""
        return partial(self._handle, start)

    async def _handle(self, start: int, request: Request) -> bytes | None:
        started = perf_counter()
        body: Any = None
        resolved = self._resolved.get(request.subject)
        try:
            if not request.reply.startswith("_INBOX.") and not self._is_allowed(request, start):
                return None
            if resolved is None:
                resolved = self._resolve(request.subject, start)
            rates = self._rates
            if rates is not None:  # before the body is read: a malformed one counts too
                rates.check(resolved.plugin.name, 1 + len(request.data) // BODY_BYTES_PER_REQUEST)
            body = resolved.read(request.data)
            if rates is not None and resolved.cost is not None:
                rates.check(resolved.plugin.name, resolved.cost(body))
            if resolved.run is None:
                reply = await self._watch(resolved.plugin, body, request)
            else:
                reply = await resolved.run(body)
        except Exception as error:
            self._failed(request, start, body, error)
            raise
        seconds = perf_counter() - started
        if resolved.timing is None:
            resolved.timing = self._metrics.timing(resolved.operation, resolved.plugin.name)
        resolved.timing.add(seconds)
        if seconds >= self._log.logged_from:
            operation = resolved.operation
            fields = log_fields(operation, body, reply)
            self._log.done(operation, resolved.plugin.name, seconds, fields)
        return reply

    async def _watch(self, plugin: Plugin, body: Watch, request: Request) -> bytes:
        subject: Any = body.subject
        if body.stop:
            stopped = await self.watches.stop(plugin.name, subject)
            return _encode({"success": True, "stopped": stopped})
        if body.prefix:  # it is held in memory: reject one that is longer than any key
            VALUE.template.check({"key": body.prefix})
        revision = await self.watches.start(
            plugin.store,
            VALUE,
            subject,
            request.publisher,
            prefix=body.prefix or None,
            since=body.since,
        )
        return _encode({"success": True, "subject": subject, "revision": revision})

    def _is_allowed(self, request: Request, start: int) -> bool:
        """Return False for a read without a reply subject, and for a reply to a subject that is not
        the plugin's own: the service may publish there, and must not be made to on a plugin's
        behalf."""
        words, reply = request.subject[start:].split("."), request.reply
        plugin, operation = words[0], words[-1]
        if not reply:
            return operation not in READS
        if self._may_receive(plugin, reply):
            return True
        error = SubjectError(
            "Replies to that subject are not allowed.", reply=reply, subject=request.subject
        )
        known = operation if operation in BODIES else "request"
        self._log.failed(known, plugin, error, answered=False, fields={})
        self._metrics.failed(plugin if self._tenants.cached(plugin) else "", error.code)
        return False

    def _may_receive(self, plugin: str, reply: str) -> bool:
        return may_receive_reply(plugin, reply, self._own)

    def _resolve(self, subject: str, start: int) -> ResolvedSubject:
        name, operation = _parse(subject, start)
        try:
            plugin = self._tenants.get(name)
        except KeyFieldError as error:
            raise PluginNameError(
                "A plugin's name is 1 to 100 of a-z, 0-9, _ and -.",
                plugin=error.fields.get("value", name),
            ) from None
        if len(self._resolved) >= TENANTS_CACHED:
            self._resolved.clear()
        resolved = self._resolved[subject] = ResolvedSubject(plugin, operation)
        return resolved

    def _failed(self, request: Request, start: int, body: Any, error: Exception) -> None:
        try:
            plugin, operation = _parse(request.subject, start)
            fields = log_fields(operation, body, b"")
        except SubjectError:
            plugin, operation, fields = "", "request", {"subject": request.subject}
        label = "" if isinstance(error, PluginNameError) else plugin
        self._metrics.failed(label, error_code(error))
        self._log.failed(operation, plugin, error, answered=bool(request.reply), fields=fields)

    def _rejected(self, start: int, subject: str, reply: str) -> bool:
        """Count a message that was rejected under overload; return whether its sender may be
        told."""
        self._metrics.failed("", "RATE_LIMITED")
        return self._may_receive(subject[start:].partition(".")[0], reply)


def _plugin_of(start: int, subject: str) -> str:
    return subject[start:].partition(".")[0]


def _parse(subject: str, start: int) -> tuple[str, str]:
    """Return the plugin and the operation after the prefix; SubjectError if there are none."""
    words = subject[start:].split(".")
    if len(words) != 2:
        raise SubjectError("A subject is <prefix>.<plugin>.<operation>.", subject=subject)
    plugin, operation = words
    if operation not in BODIES:
        raise SubjectError("Unknown operation.", subject=subject, known=list(OPERATIONS))
    return plugin, operation
