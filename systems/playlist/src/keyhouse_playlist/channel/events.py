"""Events of the channel for the pages that are open: now playing, queue, likes, pushed playlists.

Every process watches the robot's bucket for the first two. The others happen in one process and go
over the bus to all of them. A page that is opened gets the state: the current item, the queue, and
the push that runs.
"""

import asyncio
from contextlib import aclosing
from typing import Any, Final, Literal

import msgspec

from keyhouse.errors import EngineError, KeyhouseError, UnavailableError
from keyhouse.http import EventStream
from keyhouse.nats.bus import Bus
from keyhouse.service.event_hub import EventHub
from keyhouse.store import RawRows
from keyhouse_playlist.channel.plays import PlayCounter, subject_token
from keyhouse_playlist.channel.pushes import PushRecords
from keyhouse_playlist.channel.queue import CURRENT, Channel
from keyhouse_playlist.stores import foreign_json

__all__ = ["ChannelEvents", "EventName"]

EventName = Literal["nowplaying", "queue", "like", "apply"]

ABSENT_SECONDS: Final = 2.0
"""Pause between two looks for a robot that has not shown its queue."""

LOST_SECONDS: Final = 5.0
"""Pause between two looks for a push whose process died."""

LIFECYCLE: Final = "kryten.lifecycle.robot"
"""The robot's messages `startup`, `connected`, `heartbeat`, `shutdown` and others."""

RELAYED: Final = ("like", "apply")
"""Events that go from the process in which they happen to all."""


class ChannelEvents:
    """`rows` are those of the robot's bucket; None without NATS. `name` is the channel's."""

    def __init__(
        self,
        rows: RawRows | None,
        channel: Channel,
        pushes: PushRecords,
        plays: PlayCounter,
        bus: Bus,
        *,
        name: str,
        namespace: str,
    ) -> None:
        self._rows = rows
        self._channel = channel
        self.pushes = pushes
        self._plays = plays
        self._bus = bus
        self._name = name
        self._subject = f"kryten.playlist.event.{subject_token(namespace)}"
        self.hub = EventHub()
        self._pushing: dict[str, Any] | None = None  # the last event of a push that runs
        self._stopped_at = 0
        self._is_suspect = False

    def stream(self) -> EventStream:
        """Return the response of a handler. It starts with the current item, the queue, and the
        push that runs."""

        async def state() -> list[tuple[str, object]]:
            return [*await self._state(), *await self._running_push()]

        return self.hub.broadcasts(state)

    async def publish(self, name: EventName, data: object) -> None:
        """Send an event to the clients of all processes; without NATS, to those of this one."""
        try:
            await self._bus.publish(f"{self._subject}.{name}", msgspec.json.encode(data))
        except (UnavailableError, EngineError):
            await self.send(name, data)

    async def send(self, name: str, data: object) -> None:
        """Send an event to the clients of this process."""
        if name == "apply":
            push = msgspec.to_builtins(data)
            self._pushing = push if push.get("status") == "running" else None
            self._is_suspect = False
        await self.hub.broadcast(name, data)

    async def _state(self) -> list[tuple[str, object]]:
        try:
            events: list[tuple[str, object]] = [("nowplaying", await self._channel.now_playing())]
            events.append(("queue", await self._channel.queue()))
        except KeyhouseError:
            return [("nowplaying", None)]
        return events

    async def _running_push(self) -> list[tuple[str, object]]:
        try:
            push = await self.pushes.running()
        except EngineError:
            return []
        if push is None:
            return []
        event = push.event()
        self._pushing = self._pushing or msgspec.to_builtins(event)
        return [("apply", event)]

    # Background tasks

    async def relay(self) -> None:
        """Pass events of all processes on to the clients of this one, without end."""
        if not self._bus.is_on:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._relay())
            tasks.create_task(self._end_lost_pushes())
            tasks.create_task(self._follow_robot())

    async def _relay(self) -> None:
        async with self._bus.subscribe(f"{self._subject}.*") as messages:
            async for message in messages:
                name = message.subject.rpartition(".")[2]
                data = foreign_json(message.data)
                if name in RELAYED and isinstance(data, dict):
                    await self.send(name, data)

    async def _follow_robot(self) -> None:
        """Note when the robot stops and starts, as its messages say."""
        async with self._bus.subscribe(f"{LIFECYCLE}.*") as messages:
            async for message in messages:
                about = foreign_json(message.data)
                named = about.get("channel") if isinstance(about, dict) else None
                if named is None or named == self._name:
                    is_stopped = message.subject == f"{LIFECYCLE}.shutdown"
                    if is_stopped != self._channel.is_stopped:
                        if is_stopped:  # what it wrote before may be seen after its message
                            self._stopped_at = await self._newest_row()
                        self._channel.is_stopped = is_stopped
                        await self._send_state()

    async def _newest_row(self) -> int:
        try:
            if self._rows is not None and await self._channel.exists():
                return await self._rows.revision()
        except EngineError:  # it is away: every later row is new
            pass
        return 0

    async def _end_lost_pushes(self) -> None:
        while True:
            await asyncio.sleep(LOST_SECONDS)
            await self.end_lost_push()

    async def end_lost_push(self) -> None:
        """Tell the clients that a push has failed whose process died: its row has expired, and no
        event has ended it. Looks twice, since the row of a push goes before its last event."""
        push = self._pushing
        if push is None:
            return
        try:
            running = await self.pushes.running()
        except EngineError:
            return
        is_lost = running is None or running.apply_id != push["apply_id"]
        if is_lost and self._is_suspect and push is self._pushing:
            await self.send("apply", {**push, "status": "failed"})
        self._is_suspect = is_lost

    async def watch(self) -> None:
        """Send the queue and the current item whenever the robot changes them, without end.

        The bucket is watched only once it exists: a watch would create it. Then the state is sent,
        which the robot has written before.
        """
        if self._rows is None:
            return
        while not await self._channel.exists():
            await asyncio.sleep(ABSENT_SECONDS)
        since = await self._rows.revision()
        await self._plays.reconcile()
        await self._send_state()
        async with aclosing(self._rows.row_watch(since=since)) as changes:
            async for change in changes:
                if change.revision > self._stopped_at:
                    self._channel.is_stopped = False  # a robot that writes runs
                if change.key == CURRENT:
                    await self._plays.reconcile()
                await self._send_state(is_queue_alone=change.key != CURRENT)

    async def _send_state(self, *, is_queue_alone: bool = False) -> None:
        if len(self.hub):
            for name, data in await self._state():
                if name == "queue" or not is_queue_alone:
                    await self.send(name, data)
