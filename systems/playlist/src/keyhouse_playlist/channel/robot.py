"""The channel's robot, as `kryten-py` speaks to it: commands on `kryten.robot.command`.

A command is `{"command", "args", "meta"}`. Additions are requests, which the robot answers when the
channel has confirmed them; everything else is published without an answer. A rejection is
`success: false`, in the reply itself or in its member `data`.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec

from keyhouse.clock import Clock
from keyhouse.errors import UnavailableError, UnknownOutcomeError
from keyhouse.nats.bus import Bus
from keyhouse.schema import MILLISECONDS
from keyhouse_playlist.errors import RobotUnavailableError
from keyhouse_playlist.stores import foreign_json

__all__ = ["Robot"]

COMMANDS: Final = "kryten.robot.command"
MEDIA_TYPE: Final = "cm"
"""CyTube's type for custom media, whose id is the address of a manifest."""


class Robot:
    def __init__(
        self, bus: Bus, clock: Clock, *, channel: str, domain: str, timeout_seconds: float
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._channel = channel
        self._domain = domain
        self._timeout_seconds = timeout_seconds

    async def add(self, manifest_url: str, position: str) -> str | None:
        """Add media to the queue, at its `end` or as the `next`; return why the channel rejected
        it, or None. Raises RobotUnavailableError if no robot listens."""
        arguments = {"type": MEDIA_TYPE, "id": manifest_url, "pos": position, "temp": True}
        command = self._command("addvideo", arguments)
        try:
            reply = await self._bus.request(
                COMMANDS, command, timeout_seconds=self._timeout_seconds
            )
        except UnavailableError as error:
            raise _unavailable() from error
        except UnknownOutcomeError:
            return "no_reply: it may have been added"
        return _rejection(reply)

    async def remove(self, uid: int | str) -> None:
        await self._publish("rmvideo", {"uid": uid})

    async def clear(self) -> None:
        await self._publish("clear", {})

    async def send_private_message(self, username: str, text: str) -> None:
        await self._publish("pm", {"to": username, "msg": text})

    async def _publish(self, command: str, arguments: Mapping[str, Any]) -> None:
        try:
            await self._bus.publish(COMMANDS, self._command(command, arguments))
        except UnavailableError as error:
            raise _unavailable() from error

    def _command(self, command: str, arguments: Mapping[str, Any]) -> bytes:
        return msgspec.json.encode(
            {
                "command": command,
                "service": "robot",
                "args": arguments,
                "meta": {
                    "source": "playlist",
                    "timestamp": MILLISECONDS.format(self._clock.now()),
                    "domain": self._domain,
                    "channel": self._channel,
                    "request_id": str(uuid4()),
                },
            }
        )


def _rejection(reply: bytes) -> str | None:
    """Return the reason of a rejection, or None."""
    answer = foreign_json(reply)
    if not isinstance(answer, dict):
        return "the robot's reply is not a JSON object"
    inner = answer.get("data")
    for part in (answer, inner if isinstance(inner, dict) else {}):
        if part.get("success") is False:
            return str(part.get("error") or answer.get("error") or "rejected by the channel")
    return None


def _unavailable() -> RobotUnavailableError:
    return RobotUnavailableError("The channel's robot does not answer: try again later.")
