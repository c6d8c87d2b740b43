"""The library that is served: its store, clock and folders, as every handler uses them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from keyhouse.auth import Caller
from keyhouse.engine import Engine
from keyhouse.errors import (
    AccessError,
    ConflictError,
    DocumentError,
    KeyFieldError,
    LimitError,
    LinkError,
    NotFoundError,
    RecordError,
    UniqueError,
)
from keyhouse.keyring import KeyRing
from keyhouse.schema import SECONDS, Declared, Record, Schema
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.store import Entry, Transaction
from keyhouse_audiobooks.records import Setup, UserLimits
from keyhouse_audiobooks.schema import SCHEMAS, SETUP, USER_LIMITS

__all__ = [
    "Check",
    "Library",
    "Member",
    "Run",
    "unchecked",
    "valid_body",
]

T = TypeVar("T")

Run = Callable[..., Awaitable[Any]]
"""Calls a function in a thread."""

Check = Callable[[int | None], None]
"""Raises RevisionError if a record must not be changed at this revision: the check of If-Match."""

_MEMBERS = {"normalized_name": "name", "normalized_title": "title"}
"""Members of a body, by the members of a record that are computed from them."""


class Member(Caller, frozen=True, kw_only=True):
    """A signed-in user: `subject` is its id. `device` is the session or API key of the request."""

    device: str = ""
    is_session: bool = True

    def require_session(self) -> None:
        """Raise AccessError for an API key: a leaked one could take over the account, or make keys,
        users and passwords that outlive it."""
        if not self.is_session:
            raise AccessError("This needs a session, not an API key: sign in with a password.")


@contextmanager
def valid_body() -> Iterator[None]:
    """Report a value of the body that cannot be stored, such as a title without letters, or that
    refers to a record that does not exist, as an invalid body (422)."""
    try:
        yield
    except (KeyFieldError, DocumentError) as error:
        fields = dict(error.fields)
        if (member := fields.get("field")) in _MEMBERS:
            fields["field"] = _MEMBERS[str(member)]
        raise RecordError(error.sentence, **fields) from None
    except LinkError as error:
        absent: Any = error.fields.get("fields") or {}
        name = error.fields.get("record", "record")
        raise RecordError(f"There is no such {name}.", **absent) from None
    except UniqueError as error:
        held: Any = error.fields.get("value") or {}
        value = {_MEMBERS.get(name, name): each for name, each in held.items()}
        raise UniqueError(error.sentence, holder=error.fields.get("holder"), value=value) from None
    except LimitError as error:
        if error.status != 413:
            raise
        raise RecordError(error.sentence, **error.fields) from None


def unchecked(revision: int | None) -> None:
    """Allow a change of whatever revision."""


class Library(Tenant):
    """`roots` are the folders of audio files, resolved; `folder` is for the service's own files.
    `has_tenants`: it is one of several libraries, whose names are part of tokens. `run` calls a
    function in a thread."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        roots: Sequence[Path],
        folder: Path,
        schema: Schema | None = None,
        key_ring: KeyRing | None = None,
        has_tenants: bool = False,
        run: Run = asyncio.to_thread,
    ) -> None:
        super().__init__(name, schema or SCHEMAS[0], engine, Quota(), key_ring=key_ring)
        self.has_tenants = has_tenants
        self.roots = tuple(roots)
        self.folder = folder
        self.run = run
        self.new_id: Callable[[], str] = self.store.ids.new

    def now(self, *, seconds_ago: float = 0.0) -> str:
        return SECONDS.format(self.store.engine.clock.now() - round(1_000 * seconds_ago))

    async def require(self, record: Record[T], /, **fields: Any) -> Entry[T]:
        """Return a record; NotFoundError if there is none."""
        return _required(record, await self.store.entry(record, **fields), fields)

    async def check_room(
        self, tx: Transaction, declared: Declared, limit: int, /, *, noun: str, **fields: Any
    ) -> None:
        """Raise ConflictError if a user, or all users together, have as many rows as allowed.

        A scan does not see rows that others are about to add. So each transaction that adds one
        writes the same row first: of two at once, one is repeated, and counts the row of the other.
        """
        if "user_id" in fields:
            limits = await tx.get(USER_LIMITS, **fields) or UserLimits(**fields)
            await tx.put(USER_LIMITS, limits)
        else:
            await tx.put(SETUP, await tx.get(SETUP) or Setup(user_id=""))
        keys, _ = await self.store.keys(declared, limit=limit, **fields)
        if len(keys) >= limit:
            raise ConflictError(
                f"There are as many {noun} as allowed: delete one first.", limit=limit
            )

    async def change(
        self,
        record: Record[T],
        check: Check,
        work: Callable[[Transaction, Entry[T]], Awaitable[None]],
        /,
        **fields: Any,
    ) -> Entry[T]:
        """Change a record in a transaction and return it as stored."""

        async def run(tx: Transaction) -> None:
            entry = _required(record, await tx.entry(record, **fields), fields)
            check(entry.revision)
            await work(tx, entry)

        with valid_body():
            await self.store.transact(run)
        return await self.require(record, **fields)


def _required(record: Record[T], entry: Entry[T] | None, fields: Mapping[str, Any]) -> Entry[T]:
    if entry is None:
        raise NotFoundError(f"There is no such {record.name}.", **fields)
    return entry
