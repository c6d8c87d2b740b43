"""Operations of tenants over NATS: `<prefix>.<tenant>.<operation>`.

The tenant is taken from the subject, never from the payload: permissions of the server decide who
may publish there. A message is handled in these steps, the same for every service:

    reply subject   one that the tenant may not publish to is not answered; a read without one
                    is skipped
    resolve         tenant and operation, cached by subject: one lookup per message
    rate            by the size of the message, before its body is read: a malformed one counts too
    read            the body; some operations cost more by what they ask for
    run             returns the bytes of the reply, or raises; what it reads counts, as over HTTP
    measure         the timing of the operation; slow ones, and errors, are logged
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from keyhouse.errors import RateError
from keyhouse.http.read_meter import ReadMeter, read_meter
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.limits import TENANTS_CACHED
from keyhouse.scheduling.timing import Timing
from keyhouse.schema import Record
from keyhouse.service.errors import SubjectError
from keyhouse.service.nats_watches import Watches
from keyhouse.service.operation_log import error_code
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.service.tenants import Tenant
from keyhouse.service.watch_peers import WatchPeers
from keyhouse.store import Store

__all__ = ["ResolvedSubject", "TenantSubjects"]

T = TypeVar("T", bound=Tenant)

_encode = msgspec.json.Encoder().encode

LogFields = Callable[[str, Any, bytes], Mapping[str, Any]]
"""Returns the fields that describe an operation in the log, from its name, body and reply."""


class ResolvedSubject:
    """The tenant and operation of one subject.

    `read` decodes the body, and `run` makes the reply of it; a watch `takes_request`, as its second
    argument. `cost` is what a body costs beside one request.
    """

    __slots__ = ("cost", "meter", "operation", "read", "run", "takes_request", "tenant", "timing")

    def __init__(
        self,
        tenant: str,
        operation: str,
        read: Callable[[bytes], Any],
        run: Callable[..., Awaitable[bytes]],
        *,
        cost: Callable[[Any], int] | None = None,
        takes_request: bool = False,
    ) -> None:
        self.tenant = tenant
        self.operation = operation
        self.read = read
        self.run = run
        self.cost = cost
        self.takes_request = takes_request
        self.meter: ReadMeter | None = None
        self.timing: Timing | None = None


class TenantSubjects:
    """Handles every message of every tenant.

    `resolve` returns the subject of a tenant and an operation, or raises. Subjects below `own` are
    those of the service: a tenant may not have replies sent there. `rate_delay_seconds` is the
    time before a message beyond the rate is rejected.
    """

    def __init__(
        self,
        runtime: ServiceRuntime[T],
        resolve: Callable[[str, str, str], ResolvedSubject],
        *,
        prefixes: Sequence[str],
        operations: Collection[str],
        reads: Collection[str],
        changes_prefix: str,
        heartbeat_seconds: float,
        queue: str,
        bytes_per_request: int,
        own: Sequence[str | None] = (),
        rate_delay_seconds: float = 0.0,
        log_fields: LogFields = lambda operation, body, reply: {},
    ) -> None:
        self._prefixes = prefixes
        self._find = resolve
        self._operations = operations
        self._reads = reads
        self._tenants = runtime.tenants
        self._metrics = runtime.metrics
        self._log = runtime.log
        self._rates = runtime.rates
        self._bytes_per_request = bytes_per_request
        self._rate_delay_seconds = rate_delay_seconds
        self._log_fields = log_fields
        self._replies = runtime.bus.replies
        self._replies.protect(*(f"{prefix}." for prefix in own if prefix is not None))
        self._resolved: dict[str, ResolvedSubject] = {}
        self._tenants.on_evict = self._resolved.clear
        self.watches = Watches(
            changes_prefix,
            heartbeat_seconds,
            runtime.metrics,
            runtime.log,
            WatchPeers(runtime.bus, queue, secrets.token_hex(8)),
        )

    def endpoints(self, **options: Any) -> list[Endpoint]:
        """Return an endpoint for each prefix. `options` are further ones of an Endpoint."""
        return [
            Endpoint(
                **{"name": prefix.replace(".", "-"), **options},
                subject=f"{prefix}.*.*",
                handler=self.handler(prefix),
                operations={name: f"{prefix}.*.{name}" for name in self._operations},
                rejected=partial(self._rejected, len(prefix) + 1),
                tenant=partial(_tenant_of, len(prefix) + 1),
                partition_by=1,
                public=True,
            )
            for prefix in self._prefixes
        ]

    def handler(self, prefix: str) -> Callable[[Request], Awaitable[bytes | None]]:
        """Return the handler of the subjects below a prefix. It is not a coroutine function, which
        would add one more step to every message."""
        return partial(self._handle, len(prefix) + 1)

    async def start_watch(
        self, request: Request, store: Store, record: Record[Any], subject: str, **options: Any
    ) -> bytes:
        """Start a watch for a tenant and return the reply. `options` are those of Watches.start."""
        revision = await self.watches.start(store, record, subject, request.publisher, **options)
        return _encode({"success": True, "subject": subject, "revision": revision})

    async def stop_watch(self, tenant: str, subject: str) -> bytes:
        """Stop a watch of a tenant and return the reply."""
        stopped = await self.watches.stop(tenant, subject)
        return _encode({"success": True, "stopped": stopped})

    def may_receive(self, tenant: str, reply: str) -> bool:
        """Return whether a request of a tenant may name this reply subject."""
        return self._replies.may_receive(tenant, reply)

    async def _handle(self, start: int, request: Request) -> bytes | None:
        started = perf_counter()
        body: Any = None
        resolved = self._resolved.get(request.subject)
        try:
            if not request.reply.startswith("_INBOX.") and not self._is_allowed(request, start):
                return None
            rates = self._rates
            size_cost = 1 + len(request.data) // self._bytes_per_request
            if resolved is None:
                resolved = self._resolve(request, start, size_cost)
            elif rates is not None:
                rates.check(resolved.tenant, size_cost)
            body = resolved.read(request.data)
            if rates is not None and resolved.cost is not None:
                rates.check(resolved.tenant, resolved.cost(body), taken=size_cost)
            read_meter.set(resolved.meter)
            if resolved.takes_request:
                reply = await resolved.run(body, request)
            else:
                reply = await resolved.run(body)
        except Exception as error:
            self._failed(request, start, resolved, body, error)
            if self._rate_delay_seconds and isinstance(error, RateError):
                await asyncio.sleep(self._rate_delay_seconds)
            raise
        seconds = perf_counter() - started
        if resolved.timing is None:
            resolved.timing = self._metrics.timing(resolved.operation, resolved.tenant)
        resolved.timing.add(seconds)
        if seconds >= self._log.logged_from:
            operation = resolved.operation
            fields = self._log_fields(operation, body, reply)
            self._log.done(operation, resolved.tenant, seconds, fields)
        return reply

    def _resolve(self, request: Request, start: int, size_cost: int) -> ResolvedSubject:
        tenant, _, operation = request.subject[start:].partition(".")
        if self._rates is not None:
            self._rates.check(tenant, size_cost)
        resolved = self._find(tenant, operation, request.subject)
        if self._rates is not None:
            resolved.meter = partial(self._rates.spend_read, tenant)
        if len(self._resolved) >= TENANTS_CACHED:
            self._resolved.clear()
        self._resolved[request.subject] = resolved
        return resolved

    def _is_allowed(self, request: Request, start: int) -> bool:
        """Return False for a read without a reply subject, and for a reply to a subject that is not
        the tenant's own: the service may publish there, and must not be made to on a tenant's
        behalf."""
        words, reply = request.subject[start:].split("."), request.reply
        tenant, operation = words[0], words[-1]
        if not reply:
            return operation not in self._reads
        if self.may_receive(tenant, reply):
            return True
        error = SubjectError(
            "Replies to that subject are not allowed.", reply=reply, subject=request.subject
        )
        known = operation if operation in self._operations else "request"
        self._log.failed(known, tenant, error, answered=False, fields={})
        self._metrics.failed(tenant if self._tenants.cached(tenant) else "", error.code)
        return False

    def _failed(
        self,
        request: Request,
        start: int,
        resolved: ResolvedSubject | None,
        body: Any,
        error: Exception,
    ) -> None:
        tenant, _, operation = request.subject[start:].partition(".")
        fields: Mapping[str, Any] = {"subject": request.subject}
        if operation in self._operations:
            fields = self._log_fields(operation, body, b"")
        else:
            operation = "request"
        self._metrics.failed("" if resolved is None else tenant, error_code(error))
        self._log.failed(operation, tenant, error, answered=bool(request.reply), fields=fields)

    def _rejected(self, start: int, subject: str, reply: str) -> bool:
        """Count a message that was rejected under overload; return whether its sender may be
        told."""
        self._metrics.failed("", "RATE_LIMITED")
        return self.may_receive(_tenant_of(start, subject), reply)


def _tenant_of(start: int, subject: str) -> str:
    return subject[start:].partition(".")[0]
