"""A running service as the data commands see it: the rows of one space, through the service's API.

A system that offers this has a module with `connect(url, space, token)`, which returns a `Remote`,
and with `space_of(token)` if a token names a space. A `Remote` whose service may close records has
`closed(prefix)`, their names. An API may tell less than an engine: what it
does not tell is unset, never guessed, and what it cannot do is rejected with the alternative.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.store import Unset

__all__ = ["Remote", "RemoteRow"]


class RemoteRow(msgspec.Struct, frozen=True):
    """A row as a service reports it. `value` is JSON, `expires` in milliseconds since 1970; `gone`
    only in a watch. `unreadable` is why the service could not read the row."""

    key: str
    value: bytes | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    expires: int | UnsetType | None = UNSET
    gone: bool = False
    unreadable: str | UnsetType = UNSET


class Remote(Protocol):
    """One space of a running service. Raises Keyhouse's own errors, whatever the service's client
    raises."""

    async def get(self, key: str) -> RemoteRow | None: ...

    def rows(self, prefix: str, *, reverse: bool, keys_only: bool) -> AsyncIterator[RemoteRow]:
        """Iterate over the rows whose keys begin with `prefix`, in key order."""
        ...

    async def count(self, prefix: str) -> int: ...

    def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        """Iterate over the changes from now on, or after a revision, without end.

        `started` is called with the revision at which the watch starts.
        """
        ...

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        """Write a row of JSON; RevisionError if it is not at the expected revision."""
        ...

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        """Delete a row and return whether it existed."""
        ...

    async def close(self) -> None: ...
