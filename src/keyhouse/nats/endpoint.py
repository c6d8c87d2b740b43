"""One subject that is answered, and by what."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec


class Publisher(Protocol):
    """What a handler may do besides answering: tell others, and leave something running that ends with the face."""

    async def publish(self, subject: str, data: bytes) -> None:
        """Send a message to whoever listens. Nothing is said of one that nobody hears."""
        ...

    async def has_listener(self, subject: str, data: bytes) -> bool:
        """Send a message, and say whether anybody listens there. An answer is not needed, and is not waited for long."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside the requests. The face cancels it when it drains, and waits for its end."""
        ...


class Request(msgspec.Struct, frozen=True, gc=False):
    """One message as it came. `reply` is empty when nobody waits for an answer."""

    subject: str
    data: bytes
    reply: str
    courier: Publisher


Handler = Callable[[Request], Awaitable[bytes | None]]
"""Gives the answer's bytes; `None`: there is nothing to answer. What it raises, the face answers by the error's type."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` may hold wildcards. Messages come to the handler one after the other, in their order; it holds the next one
    up only until it first waits for something.

    One subscription can answer several `operations`, told apart by the subject's last word: each is shown by the micro
    protocol as an endpoint of its own, at the subject given with it. `refused` is told what was not taken, and not counted
    there, because too much was waiting already: the subject and the reply subject; it says whether that may be answered.
    `queue` is the queue group, if it is not the face's.
    """

    name: str
    subject: str
    handler: Handler
    operations: Mapping[str, str] = {}
    refused: Callable[[str, str], bool] | None = None
    queue: str | None = None
