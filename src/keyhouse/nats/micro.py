"""The micro protocol of NATS: a service says that it is there, what it answers, and how that goes (`nats micro ls`).

The driver has this too (`nats.micro`), but makes an object and a second await of every request, counts no request that is
under way, and knows one endpoint for each subscription. Here it is only the answers to three questions.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

VERBS: Final = ("PING", "INFO", "STATS")
_TYPE: Final = "io.nats.micro.v1.{}_response"


class Tally:
    """What has been asked of one endpoint."""

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
    """One running service, as `id`, among those of the same name."""

    def __init__(
        self, client: Client, *, name: str, version: str, description: str, id: str
    ) -> None:
        self.tallies: list[Tally] = []
        self._client = client
        self._identity = {"name": name, "id": id, "version": version, "metadata": {}}
        self._description = description
        self._started = datetime.now(UTC)
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "PING": dict,
            "INFO": self._info,
            "STATS": self._stats,
        }
        for verb in VERBS:
            answer = self._answering(verb, answers[verb])
            for tail in (
                "",
                f".{self._identity['name']}",
                f".{self._identity['name']}.{self._identity['id']}",
            ):
                self._subscriptions.append(
                    await self._client.subscribe(f"$SRV.{verb}{tail}", cb=answer)
                )

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        self._subscriptions.clear()

    def _answering(
        self, verb: str, more: Callable[[], dict[str, Any]]
    ) -> Callable[[Msg], Awaitable[None]]:
        async def answer(message: Msg) -> None:
            if message.reply:
                kind = {"type": _TYPE.format(verb.lower())}
                await self._client.publish(
                    message.reply, msgspec.json.encode(kind | self._identity | more())
                )

        return answer

    def _info(self) -> dict[str, Any]:
        return {
            "description": self._description,
            "endpoints": [
                {
                    "name": each.name,
                    "subject": each.subject,
                    "queue_group": each.queue,
                    "metadata": {},
                }
                for each in self.tallies
            ],
        }

    def _stats(self) -> dict[str, Any]:
        return {
            "started": self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "endpoints": [
                {
                    "name": each.name,
                    "subject": each.subject,
                    "queue_group": each.queue,
                    "num_requests": each.requests,
                    "num_errors": each.errors,
                    "last_error": each.last_error,
                    "processing_time": each.nanoseconds,
                    "average_processing_time": each.nanoseconds // max(each.requests, 1),
                }
                for each in self.tallies
            ],
        }


now_ns = time.perf_counter_ns
