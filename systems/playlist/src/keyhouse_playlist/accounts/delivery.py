"""Delivery of codes to users: a private message through the channel's robot, or the console."""

import sys
from typing import Literal

from keyhouse_playlist.channel.robot import Robot

__all__ = ["Delivery"]


class Delivery:
    """Calls send a code. A code is never logged."""

    def __init__(self, how: Literal["bus", "console"], robot: Robot) -> None:
        self._how = how
        self._robot = robot

    async def __call__(self, username: str, code: str) -> None:
        if self._how == "console":
            print(f"Code for {username}: {code}", file=sys.stderr, flush=True)
            return
        await self._robot.send_private_message(
            username,
            f"Your code for the playlist page is {code}. It is valid for five minutes. If you did"
            " not ask for it, ignore it.",
        )
