"""The other processes of a service that watch over NATS.

A request reaches any process of the queue group; the watch that it stops or replaces may run in
another. So all processes publish and read messages on one control subject:

| message | sent | the others |
|---|---|---|
| `join` | at start | know the process, and send `here` |
| `here` | to a process that joins | know the process |
| `leave` | at shutdown | forget the process |
| `stop` | for a watch that is stopped or replaced | stop it, if it is theirs, and send `done` |
| `done` | when the watch has sent its last message, or is not theirs | count the answer |

`stop` returns when every known process has answered. One that does not answer in time is forgotten:
it was killed, or cannot be reached. It is known again as soon as it sends anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal

import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.nats.bus import Bus

__all__ = ["WatchPeers"]

ANSWER_SECONDS: Final = 1.0
"""Timeout of the answers of other processes to a stop."""


class _Message(msgspec.Struct, omit_defaults=True, frozen=True):
    kind: Literal["join", "here", "leave", "stop", "done"]
    process: str
    to: str = ""
    number: int = 0
    tenant: str = ""
    subject: str = ""
    reason: str = ""
    stopped: bool = False


class _Answers:
    def __init__(self, expected: set[str]) -> None:
        self.missing = expected
        self.stopped = False
        self.complete = asyncio.Event()

    def add(self, process: str, stopped: bool) -> None:
        self.missing.discard(process)
        self.stopped |= stopped
        if not self.missing:
            self.complete.set()


StopWatch = Callable[[str, str, str, str], Awaitable[bool]]
"""Stops a watch of this process: tenant, subject, reason, and the process that asks for it."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Message).decode


class WatchPeers:
    """`group` is the queue group of the processes, `process` the name of this one."""

    def __init__(self, bus: Bus, group: str, process: str) -> None:
        self.process = process
        self._bus = bus
        self._subject = f"keyhouse.control.{group}"
        self._known: set[str] = set()
        self._requests = 0
        self._waiting: dict[int, _Answers] = {}

    async def run(self, stop_watch: StopWatch) -> None:
        """Exchange messages until cancelled; return at once if NATS is off."""
        if not self._bus.is_on:
            return
        answering = set[asyncio.Task[None]]()
        async with self._bus.subscribe(self._subject) as messages:
            await self._send(_Message("join", self.process))
            try:
                async for message in messages:
                    with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # of another program
                        received = _decode(message.data)
                        if received.kind == "stop" and received.process != self.process:
                            task = asyncio.create_task(self._answer(received, stop_watch))
                            answering.add(task)
                            task.add_done_callback(answering.discard)
                        await self._receive(received)
            finally:
                for task in answering:
                    task.cancel()
                with suppress(KeyhouseError):
                    await self._send(_Message("leave", self.process))

    async def stop(self, tenant: str, subject: str, reason: str) -> bool:
        """Stop a watch in the other processes, and return whether one of them had it."""
        if not self._known:
            return False
        self._requests = number = self._requests + 1
        answers = self._waiting[number] = _Answers(set(self._known))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._send(
                    _Message(
                        "stop",
                        self.process,
                        number=number,
                        tenant=tenant,
                        subject=subject,
                        reason=reason,
                    )
                )
                await answers.complete.wait()
        except TimeoutError:
            self._known -= answers.missing
        finally:
            del self._waiting[number]
        return answers.stopped

    async def _receive(self, message: _Message) -> None:
        if message.process == self.process:
            return
        if message.kind == "leave":
            self._known.discard(message.process)
            return
        self._known.add(message.process)
        if message.kind == "join":
            await self._send(_Message("here", self.process, to=message.process))
        answers = self._waiting.get(message.number)
        if message.kind == "done" and message.to == self.process and answers is not None:
            answers.add(message.process, message.stopped)

    async def _answer(self, message: _Message, stop_watch: StopWatch) -> None:
        stopped = await stop_watch(message.tenant, message.subject, message.reason, message.process)
        done = _Message(
            "done", self.process, to=message.process, number=message.number, stopped=stopped
        )
        with suppress(KeyhouseError):  # the connection is lost
            await self._send(done)

    async def _send(self, message: _Message) -> None:
        await self._bus.publish(self._subject, _encode(message))
