"""The micro protocol of NATS: discovery and statistics of services (`nats micro ls`).

nats-py implements it too (`nats.micro`), but adds an object and an await per request, does not
count requests in flight, and has one endpoint per subscription. Here are only the replies to its
three requests.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from keyhouse.nats.endpoint import ReplySubjects

VERBS: Final = ("PING", "INFO", "STATS")
_TYPE: Final = "io.nats.micro.v1.{}_response"


class EndpointStats:
    """Counters of one endpoint."""

    __slots__ = ("errors", "last_error", "name", "nanoseconds", "queue", "requests", "subject")

    def __init__(self, name: str, subject: str, queue: str) -> None:
        self.name = name
        self.subject = subject
        self.queue = queue
        self.requests = 0
        self.errors = 0
        self.nanoseconds = 0
        self.last_error = ""


class Micro:
    """One running instance, named `id`, of the service `name`."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        version: str,
        description: str,
        id: str,
        replies: ReplySubjects,
    ) -> None:
        self._replies = replies
        self.endpoints: list[EndpointStats] = []
        self._client = client
        self._identity = {"name": name, "id": id, "version": version, "metadata": {}}
        self._description = description
        self._started = datetime.now(UTC)
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        replies: dict[str, Callable[[], dict[str, Any]]] = {
            "PING": dict,
            "INFO": self._info,
            "STATS": self._stats,
        }
        name, id = self._identity["name"], self._identity["id"]
        for verb in VERBS:
            callback = self._callback(verb, replies[verb])
            for suffix in ("", f".{name}", f".{name}.{id}"):
                self._subscriptions.append(
                    await self._client.subscribe(f"$SRV.{verb}{suffix}", cb=callback)
                )

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        self._subscriptions.clear()

    def _callback(
        self, verb: str, details: Callable[[], dict[str, Any]]
    ) -> Callable[[Msg], Awaitable[None]]:
        async def respond(message: Msg) -> None:
            # anybody may send these requests, so nobody is a tenant
            if message.reply and self._replies.may_receive("", message.reply):
                kind = {"type": _TYPE.format(verb.lower())}
                reply = msgspec.json.encode(kind | self._identity | details())
                await self._client.publish(message.reply, reply)

        return respond

    def _info(self) -> dict[str, Any]:
        return {
            "description": self._description,
            "endpoints": [
                {
                    "name": endpoint.name,
                    "subject": endpoint.subject,
                    "queue_group": endpoint.queue,
                    "metadata": {},
                }
                for endpoint in self.endpoints
            ],
        }

    def _stats(self) -> dict[str, Any]:
        return {
            "started": self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "endpoints": [
                {
                    "name": endpoint.name,
                    "subject": endpoint.subject,
                    "queue_group": endpoint.queue,
                    "num_requests": endpoint.requests,
                    "num_errors": endpoint.errors,
                    "last_error": endpoint.last_error,
                    "processing_time": endpoint.nanoseconds,
                    "average_processing_time": endpoint.nanoseconds // max(endpoint.requests, 1),
                }
                for endpoint in self.endpoints
            ],
        }


now_ns = time.perf_counter_ns
