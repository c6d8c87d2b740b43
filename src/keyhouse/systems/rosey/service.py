"""The service: subjects in, answers out. What it is made of is handed to whoever runs it, as a `ServiceSpec`."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, Final

from msgspec import UNSET

from keyhouse import sweep
from keyhouse.auth import jwt_auth
from keyhouse.errors import KeyFieldError, KeyhouseError
from keyhouse.metrics import Timing
from keyhouse.nats.endpoint import Body, Endpoint, Request
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings import read_settings
from keyhouse.systems.rosey import requests as asked
from keyhouse.systems.rosey.census import Census
from keyhouse.systems.rosey.errors import PluginNameError, SubjectError
from keyhouse.systems.rosey.figures import Figures
from keyhouse.systems.rosey.journal import Journal
from keyhouse.systems.rosey.plugin import Plugin
from keyhouse.systems.rosey.quota import Account, Quota
from keyhouse.systems.rosey.settings import OPERATOR_PATTERN, Settings
from keyhouse.systems.rosey.view import SCOPE, View
from keyhouse.systems.rosey.watches import Watches

__all__ = ["OPERATIONS", "SERVICE", "PluginService", "part"]

NAME: Final = "rosey"

PLUGINS_KEPT: Final = 10_000
"""Plugins whose store is kept at hand, and subjects whose meaning is; beyond it all are made anew as they come."""

READS: Final = frozenset({"get", "list", "mget", "scan", "count"})
"""What is not done when nobody waits for the answer."""

BODIES: Final[dict[str, Body[Any]]] = {
    "set": asked.SET,
    "get": asked.GET,
    "delete": asked.DELETE,
    "list": asked.LIST,
    "mget": asked.MGET,
    "incr": asked.INCR,
    "cas": asked.CAS,
    "batch": asked.BATCH,
    "scan": asked.SCAN,
    "count": asked.COUNT,
    "watch": asked.WATCH,
    "touch": asked.TOUCH,
}
OPERATIONS: Final = tuple(BODIES)

Work = Callable[[Any], Awaitable[bytes]]


class _Way:
    """Of one subject: who is meant, and what is done. Looked up once for each message."""

    __slots__ = ("operation", "plugin", "read", "timing", "work")

    def __init__(self, plugin: Plugin, operation: str) -> None:
        self.plugin = plugin
        self.operation = operation
        self.timing: Timing | None = None
        self.read = BODIES[operation].read
        self.work: Work | None = None if operation == "watch" else getattr(plugin, operation)


class PluginService:
    """Answers every operation of every plugin."""

    def __init__(self, context: ServiceContext) -> None:
        self.settings = read_settings(Settings, context.settings, table=NAME)
        self.figures = Figures(OPERATIONS)
        context.metrics.register(self.figures)
        self._engine = context.engine
        self._quota = Quota(self.settings.quota_keys, self.settings.quota_bytes)
        rate = self.settings.rate_per_second
        self._rates = (
            RateLimiter(rate, burst=self.settings.rate_burst or None, clock=context.engine.clock)
            if rate
            else None
        )
        self._journal = Journal(self.settings.slow_ms)
        self._watches = Watches(
            self.settings.changes_prefix, self.settings.heartbeat_seconds, self.figures
        )
        self._plugins: dict[str, Plugin] = {}
        self._ways: dict[str, _Way] = {}
        self.census = Census(self._engine, self.figures, self._journal, self._account)
        served = [*self.settings.prefixes, self.settings.changes_prefix]
        self._not_for_answers = ("_INBOX_", "$", *(f"{prefix}." for prefix in served))

    # Messages

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name=prefix.replace(".", "-"),
                subject=f"{prefix}.>",
                handler=self._answering(len(prefix) + 1),
                operations={name: f"{prefix}.*.{name}" for name in OPERATIONS},
                rejected=partial(self._refused, len(prefix) + 1),
                queue=self.settings.queue,
            )
            for prefix in self.settings.prefixes
        ]

    def _answering(self, start: int) -> Callable[[Request], Awaitable[bytes | None]]:
        """Its coroutine is the answer's own: one more between would be passed through by every message."""
        return lambda request: self._answer(request, start)

    async def _answer(self, request: Request, start: int) -> bytes | None:
        begun = perf_counter()
        body: Any = None
        way = self._ways.get(request.subject)
        try:
            if not request.reply.startswith("_INBOX.") and not self._may_answer(request, start):
                return None
            if way is None:
                way = self._find(request.subject, start)
            body = way.read(request.data)
            if self._rates is not None:
                self._rates.check(way.plugin.name, cost=_cost(body))
            if way.work is None:
                answer = await self._watches.watch(way.plugin.store, body, request.publisher)
            else:
                answer = await way.work(body)
        except Exception as error:
            self._failed(request, start, body, error)
            raise
        seconds = perf_counter() - begun
        if way.timing is None:
            way.timing = self.figures.timing(way.operation, way.plugin.name)
        way.timing.add(seconds)
        if self._journal.wants(seconds):
            self._journal.done(
                way.operation, way.plugin.name, seconds, _said(way.operation, body, answer)
            )
        return answer

    def _may_answer(self, request: Request, start: int) -> bool:
        """Whether it is done, or refused aloud. Not a read that nobody waits for; nor anything whose answer is to go to
        subjects that are not the plugin's to speak on: the service may, and must not be made to in its place."""
        words, reply = request.subject[start:].split("."), request.reply
        plugin, operation = words[0], words[-1]
        if not reply:
            return operation not in READS
        if not self._may_hear(plugin, reply):
            error = SubjectError(
                "An answer can't be sent to that subject.", reply=reply, subject=request.subject
            )
            known = operation if operation in BODIES else "request"
            self._journal.failed(known, plugin, error, answered=False, fields={})
            self.figures.failed(plugin if plugin in self._plugins else "", error.code)
            return False
        return True

    def _may_hear(self, plugin: str, reply: str) -> bool:
        return not reply.startswith(self._not_for_answers) or reply.startswith(f"_INBOX_{plugin}.")

    def _find(self, subject: str, start: int) -> _Way:
        name, operation = _read_subject(subject, start)
        plugin = self._plugins.get(name) or self._know(name)
        if len(self._ways) >= PLUGINS_KEPT:
            self._ways = {}
        way = self._ways[subject] = _Way(plugin, operation)
        return way

    def _know(self, name: str) -> Plugin:
        try:
            plugin = Plugin(name, self._engine, self._quota, self.settings.reply_bytes_max)
        except KeyFieldError as error:
            raise PluginNameError(
                "A plugin's name is 1 to 100 of a-z, 0-9, _ and -.",
                plugin=error.fields.get("value", name),
            ) from None
        if len(self._plugins) >= PLUGINS_KEPT:
            self._plugins = {
                name: known for name, known in self._plugins.items() if not known.turns.quiet
            }
            self._ways = {}
        self._plugins[name] = plugin
        return plugin

    def _failed(self, request: Request, start: int, body: Any, error: Exception) -> None:
        code = error.code if isinstance(error, KeyhouseError) else KeyhouseError.code
        try:
            plugin, operation = _read_subject(request.subject, start)
            fields = _said(operation, body, b"")
        except SubjectError:
            plugin, operation, fields = "", "request", {"subject": request.subject}
        self.figures.failed("" if isinstance(error, PluginNameError) else plugin, code)
        self._journal.failed(operation, plugin, error, answered=bool(request.reply), fields=fields)

    def _refused(self, start: int, subject: str, reply: str) -> bool:
        self.figures.failed("", "RATE_LIMITED")
        return self._may_hear(subject[start:].partition(".")[0], reply)

    # Tasks

    async def clean_up(self) -> None:
        """Remove what has expired, now and then, for as long as it is run."""
        while True:
            await asyncio.sleep(self.settings.sweep_seconds)
            await self.sweep()

    async def sweep(self) -> None:
        """Once. A failure is logged: the next time may be better."""
        begun = perf_counter()
        try:
            count = await sweep(self._engine)
        except KeyhouseError as error:
            self._journal.sweep_failed(error)
            return
        seconds = perf_counter() - begun
        self.figures.cleaned += count
        self.figures.cleanups.add(seconds)
        self._journal.swept(count, seconds)

    async def take_census(self) -> None:
        """Count what each plugin keeps, now and then, for as long as it is run."""
        await self.census.run(self.settings.census_seconds)

    def _account(self, name: str) -> Account | None:
        plugin = self._plugins.get(name)
        return None if plugin is None else plugin.account

    def view(self) -> View:
        """What an operator sees of it."""
        return View(self._engine, self.figures, self.census, self._quota, self._rates)


def part(context: ServiceContext) -> ServiceSpec:
    """Plugin storage, to be served."""
    service = PluginService(context)
    return ServiceSpec(
        name=NAME,
        title="Plugin storage",
        about="What plugins keep, for their operator. Plugins themselves ask over NATS.",
        routes=service.view().routes(),
        auth=jwt_auth(
            service.settings,
            context.data,
            system=NAME,
            tenant_pattern=OPERATOR_PATTERN,
            clock=context.engine.clock,
        ),
        endpoints=service.endpoints(),
        queue=service.settings.queue,
        tasks=[service.clean_up, service.take_census],
    )


SERVICE: Final = Service(
    settings=Settings, build=part, tenant_pattern=OPERATOR_PATTERN, operator_scopes=(SCOPE,)
)


def _read_subject(subject: str, start: int) -> tuple[str, str]:
    """The plugin and the operation behind the prefix; SubjectError where they are not."""
    words = subject[start:].split(".")
    if len(words) != 2:
        raise SubjectError("A subject is <prefix>.<plugin>.<operation>.", subject=subject)
    plugin, operation = words
    if operation not in BODIES:
        raise SubjectError("There is no such operation.", subject=subject, known=list(OPERATIONS))
    return plugin, operation


def _cost(body: Any) -> int:
    if isinstance(body, asked.Batch) and isinstance(body.ops, list):
        return max(1, len(body.ops))
    if isinstance(body, asked.Mget) and isinstance(body.keys, list):
        return max(1, len(body.keys))
    return 1


def _said(operation: str, body: Any, answer: bytes) -> dict[str, Any]:
    """What the log says of an operation: no value, ever."""
    fields: dict[str, Any] = {}
    for name in ("key", "ttl", "prefix", "limit"):
        value = getattr(body, name, UNSET)
        if value is not UNSET:
            fields[name] = value
    if operation == "get" and answer:
        fields["hit"] = b'"exists":true' in answer[:40]
    if answer:
        fields["size"] = len(answer)
    return fields
