"""A running service as the data commands see it: the rows of one space, through the service's API.

A system that offers this has a module with `connect(url, space, token)`, which returns a `Remote`,
and with `space_of(token)` if a token names a space. An API may tell less than an engine: what it
does not tell is unset, never guessed, and what it cannot do is rejected with the alternative.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec
from msgspec import UNSET, UnsetType

from keyhouse.errors import UsageError
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


class Remote(ABC):
    """One space of a running service, read only unless `put` and `delete` are defined. Raises
    Keyhouse's own errors, whatever the service's client raises."""

    lists_derived: bool = False
    """True if `rows` has derived rows too."""

    no_watch: str = ""
    """The error of a watch, with the alternative, of a service that has none."""

    @abstractmethod
    async def get(self, key: str) -> RemoteRow | None: ...

    @abstractmethod
    def rows(self, prefix: str, *, reverse: bool, keys_only: bool) -> AsyncIterator[RemoteRow]:
        """Iterate over the rows whose keys begin with `prefix`, in key order."""

    async def count(self, prefix: str) -> int:
        return sum([1 async for _ in self.rows(prefix, reverse=False, keys_only=True)])

    async def closed(self, prefix: str) -> list[str]:
        """Return the records with such keys that the service closes to its callers."""
        return []

    def watch(
        self, prefix: str, since: int | None, started: Callable[[int], None]
    ) -> AsyncGenerator[RemoteRow, None]:
        """Iterate over the changes from now on, or after a revision, without end.

        `started` is called with the revision at which the watch starts.
        """
        raise UsageError(self.no_watch)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        """Write a row of JSON; RevisionError if it is not at the expected revision."""
        raise _read_only()

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        """Delete a row and return whether it existed."""
        raise _read_only()

    @abstractmethod
    async def close(self) -> None: ...


def _read_only() -> UsageError:
    return UsageError("Rows of this service are read only: change them through its API.")
