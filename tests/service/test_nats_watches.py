"""The messages of a watch over NATS: from which revision a client can resume."""

import asyncio
from typing import Any, cast

import msgspec

from keyhouse.service.nats_watches import WatchPush
from keyhouse.store import Event


class Sent:
    """Keeps what is published."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def publish(self, subject: str, data: bytes, *, tenant: str = "") -> None:
        self.messages.append(msgspec.json.decode(data))

    async def has_listener(self, subject: str, data: bytes) -> bool:
        await self.publish(subject, data)
        return True


def test_a_heartbeat_within_a_commit_does_not_skip_its_other_changes() -> None:
    """It named the revision of the commit: a client that reconnected then missed the rest of it."""

    async def scenario() -> None:
        sent = Sent()
        push = WatchPush("ann", "changes", cast(Any, sent), 5, lambda event: {"key": str(event)})
        await push.change(Event("1", "a", ("a",), 7))
        await push.has_listener()
        await push.change(Event("1", "b", ("b",), 7))
        push.caught_up(9)
        await push.has_listener()
        beats = [each["revision"] for each in sent.messages if "heartbeat" in each]
        assert beats == [5, 9]

    asyncio.run(scenario())
