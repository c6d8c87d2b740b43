"""A running service as the commands over data see it: the rows of one space, through the face that the service has.

A system that has one offers a module `remote` with `connect(url, space, token)`, which answers with a Remote, and with
`space_of(token)` where a token stands for a space. A face says less than an engine does: what it does not say is left unset,
never guessed, and what it can't do is refused with what to do instead.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.store import Unset

__all__ = ["Remote", "Told"]


class Told(msgspec.Struct, frozen=True):
    """A row as a service tells it. `value` is JSON, and `expires` in milliseconds since 1970; `gone`: of a watch."""

    key: str
    value: bytes | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    expires: int | UnsetType | None = UNSET
    gone: bool = False


class Remote(Protocol):
    """One space of a running service. Errors are Keyhouse's own, whatever the face's client raises."""

    async def get(self, key: str) -> Told | None: ...

    def rows(self, prefix: str, *, reverse: bool, keys_only: bool) -> AsyncIterator[Told]:
        """Those whose keys begin so, in the order of their keys."""
        ...

    async def count(self, prefix: str) -> int: ...

    def watch(
        self, prefix: str, since: int | None, begun: Callable[[int], None]
    ) -> AsyncGenerator[Told, None]:
        """The changes from now on, or after a revision, without end. `begun` is told the revision at which it begins."""
        ...

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> Told:
        """Write it, if it is as expected: RevisionError when it is not. `value` is JSON."""
        ...

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        """Whether it was there."""
        ...

    async def close(self) -> None: ...
