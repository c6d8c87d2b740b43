"""The NATS subjects: `<prefix>.<plugin>.<operation>`, each resolved to a plugin and an operation.

The plugin is taken from the subject, never from the payload.
"""

from functools import partial
from typing import Any

from keyhouse.advice import nearest
from keyhouse.errors import KeyFieldError
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.service.errors import SubjectError
from keyhouse.service.nats_operations import ResolvedSubject, TenantSubjects
from keyhouse.service.runtime import ServiceRuntime
from keyhouse_rosey.errors import invalid_name
from keyhouse_rosey.limits import BODY_BYTES_PER_REQUEST
from keyhouse_rosey.messages import OPERATIONS, READS, Watch, log_fields
from keyhouse_rosey.operations import Plugin
from keyhouse_rosey.payload_form import payload_endpoint
from keyhouse_rosey.schema import VALUE
from keyhouse_rosey.settings import RoseySettings


class Subjects:
    """Answers the messages of every plugin."""

    def __init__(self, runtime: ServiceRuntime[Plugin], settings: RoseySettings) -> None:
        self._settings = settings
        self._tenants = runtime.tenants
        self._subjects = TenantSubjects(
            runtime,
            self._resolve,
            prefixes=settings.prefixes,
            operations=OPERATIONS,
            reads=READS,
            changes_prefix=settings.changes_prefix,
            heartbeat_seconds=settings.heartbeat_seconds,
            queue=settings.queue,
            bytes_per_request=BODY_BYTES_PER_REQUEST,
            own=[*settings.prefixes, settings.changes_prefix, settings.payload_prefix],
            log_fields=log_fields,
        )
        self.watches = self._subjects.watches

    def endpoints(self) -> list[Endpoint]:
        queue, subjects = self._settings.queue, self._subjects
        endpoints = subjects.endpoints(queue=queue)
        if (prefix := self._settings.payload_prefix) is not None:
            first = self._settings.prefixes[0]
            handler = subjects.handler(first)
            endpoints.append(payload_endpoint(prefix, first, handler, queue, subjects.may_receive))
        return endpoints

    def _resolve(self, name: str, operation: str, subject: str) -> ResolvedSubject:
        check_operation(operation, subject)
        try:
            plugin = self._tenants.get(name)
        except KeyFieldError as error:
            raise invalid_name(error.fields.get("value", name)) from None
        read, cost = OPERATIONS[operation].body.read, OPERATIONS[operation].cost
        if operation == "watch":
            run = partial(self._watch, plugin)
            return ResolvedSubject(name, operation, read, run, cost=cost, takes_request=True)
        return ResolvedSubject(name, operation, read, getattr(plugin, operation), cost=cost)

    async def _watch(self, plugin: Plugin, body: Watch, request: Request) -> bytes:
        subject: Any = body.subject
        if body.stop:
            return await self._subjects.stop_watch(plugin.name, subject)
        if body.prefix:  # it is held in memory: reject one that is longer than any key
            VALUE.template.check({"key": body.prefix})
        return await self._subjects.start_watch(
            request, plugin.store, VALUE, subject, prefix=body.prefix or None, since=body.since
        )


def check_operation(operation: str, subject: str) -> None:
    """Raise SubjectError if the end of a subject is not an operation."""
    if "." in operation:
        raise SubjectError("A subject is <prefix>.<plugin>.<operation>.", subject=subject)
    if operation not in OPERATIONS:
        raise SubjectError("Unknown operation.", subject=subject, **nearest(operation, OPERATIONS))
