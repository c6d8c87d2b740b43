"""A robot without a channel: it takes the commands of `kryten-py` and shows a queue as the real one
does, in its bucket and by events. For demonstrations and tests.

Every command that it gets is recorded. `rejects` are manifest addresses that it does not take: with
`inner`, the rejection is inside of `data`, as some versions of the robot report it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from nats.js.kv import KeyValue

from keyhouse.errors import UnavailableError

__all__ = ["DemoRobot"]

COMMANDS: Final = "kryten.robot.command"
LIFECYCLE: Final = "kryten.lifecycle.robot"
SHOWN_EVERY_SECONDS: Final = 5


class DemoRobot:
    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._client = Client()
        self._bucket: KeyValue | None = None
        self._uid = 0
        self.queue: list[dict[str, Any]] = []
        self.current: dict[str, Any] | None = None
        self.commands: list[dict[str, Any]] = []
        self.rejects: dict[str, str] = {}
        self.delay_seconds = 0.0
        """Time that the channel takes to confirm an addition."""

        self.titles: dict[str, tuple[str, int]] = {}
        """Titles and durations by manifest: a real robot learns them from the manifest."""
        self.messages: list[tuple[str, str]] = []
        """Private messages that were sent: the user and the text."""
        self.on_message: Callable[[str, str], None] | None = None

    async def __aenter__(self) -> Self:
        self._client = await nats.connect(self._url, error_cb=_ignore)
        stream = self._client.jetstream()
        name = f"kryten_{self._channel}_playlist"
        try:
            self._bucket = await stream.key_value(name)
        except NotFoundError:
            self._bucket = await stream.create_key_value(bucket=name)
        await self._client.subscribe(COMMANDS, cb=self._answer)
        await self._show()
        await self.publish_lifecycle("startup")
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(Exception):
            await self.publish_lifecycle("shutdown")
            await self._client.close()

    async def publish_lifecycle(self, event: str) -> None:
        """Publish that the robot has started, or stops, as `kryten-py` does."""
        about = {"service": "robot", "channel": self._channel, "domain": "cytu.be"}
        await self._client.publish(f"{LIFECYCLE}.{event}", msgspec.json.encode(about))
        await self._client.flush()

    async def enqueue(self, manifests: Sequence[str]) -> None:
        """Add items to the end of the queue."""
        for id in manifests:
            self._add({"id": id, "type": "cm", "pos": "end"})
        await self._show()

    async def play(self, position: int = 0) -> None:
        """Start an item of the queue."""
        self.current = {**self.queue[position], "currentTime": 0, "paused": False}
        await self._show()
        await self.announce()

    async def play_media(
        self, manifest: str, title: str, seconds: int, *, announced: bool = True
    ) -> None:
        """Start an item that was not in the queue."""
        self._uid += 1
        media = {"id": manifest, "title": title, "seconds": seconds, "type": "cm"}
        self.queue = [{"uid": self._uid, "media": media, "queueby": "keyhouse", "temp": True}]
        if announced:
            await self.play()
        else:
            self.current = {**self.queue[0], "currentTime": 0, "paused": False}
            await self._show()

    async def announce(self, at: datetime | None = None) -> None:
        """Publish that the current item started, as the robot does; `at` is the time of that."""
        if self.current is None:
            return
        media = self.current["media"]
        event = {
            "event_name": "changeMedia",
            "payload": {**media, "uid": self.current["uid"], "currentTime": 0, "paused": False},
            "channel": self._channel,
            "domain": "cytu.be",
            "timestamp": (at or datetime.now(UTC)).isoformat(),
        }
        subject = f"kryten.events.cytube.{self._channel.lower()}.changemedia"
        await self._client.publish(subject, msgspec.json.encode(event))
        await self._client.flush()

    async def run(self, seconds: float | None = None) -> None:
        """Play the queue, item after item, without end. `seconds`: of each, whatever it lasts.

        The time of the current item is shown every five seconds, as CyTube does. Raises
        UnavailableError when the NATS server has stopped.
        """
        try:
            while True:
                if self.queue:
                    await self._play_first(seconds or self.queue[0]["media"]["seconds"])
                else:
                    await asyncio.sleep(1)
        except NatsError:
            raise UnavailableError(
                "The NATS server has stopped: start the service again, then the demonstration."
            ) from None

    async def _play_first(self, lasts: float) -> None:
        """Play the first item of the queue, and remove it."""
        await self.play()
        playing, passed = self.queue[0]["uid"], 0.0
        while passed < lasts and any(item["uid"] == playing for item in self.queue):
            step = min(1, lasts - passed)
            await asyncio.sleep(step)
            passed += step
            if self.current is not None and not passed % SHOWN_EVERY_SECONDS:
                self.current["currentTime"] = passed
                await self._show()
        self.queue = [item for item in self.queue if item["uid"] != playing]
        self.current = None
        await self._show()

    async def _answer(self, request: Msg) -> None:
        command = msgspec.json.decode(request.data)
        self.commands.append(command)
        arguments = command.get("args", {})
        reply: dict[str, Any] = {"success": True}
        match command.get("command"):
            case "addvideo":
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                reply = self._add(arguments)
            case "rmvideo":
                self.queue = [item for item in self.queue if item["uid"] != arguments.get("uid")]
            case "clear":
                self.queue, self.current = [], None
            case "pm":
                message = (str(arguments.get("to")), str(arguments.get("msg")))
                self.messages.append(message)
                if self.on_message is not None:
                    self.on_message(*message)
        await self._show()
        if request.reply:
            await self._client.publish(request.reply, msgspec.json.encode(reply))

    def _add(self, arguments: dict[str, Any]) -> dict[str, Any]:
        id = arguments["id"]
        if (how := self.rejects.get(id)) is not None:
            rejection = {"success": False, "error": "queue_fail"}
            return {"success": True, "data": rejection} if how == "inner" else rejection
        self._uid += 1
        title, seconds = self.titles.get(id, (id.rpartition("/")[2], 60))
        item = {
            "uid": self._uid,
            "media": {"id": id, "title": title, "seconds": seconds, "type": arguments["type"]},
            "queueby": "keyhouse",
            "temp": True,
        }
        playing = None if self.current is None else self.current["uid"]
        place = next((at + 1 for at, each in enumerate(self.queue) if each["uid"] == playing), 0)
        self.queue.insert(place if arguments["pos"] == "next" else len(self.queue), item)
        return {"success": True, "data": {"success": True, "uid": self._uid}}

    async def _show(self) -> None:
        if self._bucket is not None:
            await self._bucket.put("items", msgspec.json.encode(self.queue))
            await self._bucket.put("current", msgspec.json.encode(self.current))


async def _ignore(error: Exception) -> None:
    """Print nothing while the connection is lost: `run` raises if it stays so."""
