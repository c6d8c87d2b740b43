"""The library that is served: its store, clock and folders, as every handler uses them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

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
    UsageError,
)
from keyhouse.keyring import KeyRing
from keyhouse.schema import SECONDS, Declared, Record, Schema
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Quota
from keyhouse.store import Entry, Transaction
from keyhouse.systems.audiobooks.records import Setup, UserLimits
from keyhouse.systems.audiobooks.schema import SCHEMAS, SETUP, USER_LIMITS

__all__ = [
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "Data",
    "Items",
    "Library",
    "Member",
    "absent_reference",
    "data",
    "items",
    "offset_cursor",
    "page_limit",
    "page_of",
    "valid_body",
]

_CURSOR_CHARS_MAX = 12

T = TypeVar("T")
R = TypeVar("R")

_MEMBERS = {"normalized_name": "name", "normalized_title": "title"}
"""Members of a body, by the members of a record that are computed from them."""

LIMIT_DEFAULT = 50
LIMIT_MAX = 500


class Member(Caller, frozen=True, kw_only=True):
    """A signed-in user: `subject` is its id. `device` is the session or API key of the request."""

    device: str = ""
    is_session: bool = True

    def require_session(self) -> None:
        """Raise AccessError for an API key: a leaked one could make keys, users and passwords that
        outlive it."""
        if not self.is_session:
            raise AccessError(
                "An API key cannot create API keys, nor create, change or delete users: sign in"
                " with a password."
            )


class Data(Struct, Generic[T]):
    data: T


class Items(Struct, Generic[T]):
    items: Sequence[T]
    count: int
    total: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET


def data(value: T) -> Data[T]:
    return Data(value)


def items(
    found: Sequence[T], *, total: int | None = None, cursor: str | None = None
) -> Data[Items[T]]:
    """Return a list as it is sent."""
    return Data(Items(found, len(found), UNSET if total is None else total, cursor or UNSET))


def page_limit(limit: int) -> int:
    """Return the limit of a list. Raises UsageError (400) if it is out of range."""
    if not 1 <= limit <= LIMIT_MAX:
        raise UsageError("The limit of a list is from 1 to 500.", limit=limit)
    return limit


def offset_cursor(cursor: str | None, offset: int) -> int:
    """Return where a sorted list continues: its cursor is an offset, `@50`."""
    if cursor is None:
        if offset < 0:
            raise UsageError("An offset is not negative.", offset=offset)
        return offset
    if not cursor.startswith("@") or not cursor[1:].isdecimal() or len(cursor) > _CURSOR_CHARS_MAX:
        raise UsageError("This is not the cursor of this list.", cursor=cursor)
    return int(cursor[1:])


def page_of(
    found: Sequence[T], limit: int, cursor: str | None, offset: int
) -> tuple[Sequence[T], str | None]:
    """Return a page of a list that is read whole, and the cursor of the next one."""
    size, start = page_limit(limit), offset_cursor(cursor, offset)
    following = start + size
    return found[start:following], f"@{following}" if following < len(found) else None


@contextmanager
def valid_body() -> Iterator[None]:
    """Report a value of the body that cannot be stored, such as a title without letters, as an
    invalid body (422)."""
    try:
        yield
    except (KeyFieldError, DocumentError) as error:
        fields = dict(error.fields)
        if (member := fields.get("field")) in _MEMBERS:
            fields["field"] = _MEMBERS[str(member)]
        raise RecordError(error.sentence, **fields) from None
    except UniqueError as error:
        held: Any = error.fields.get("value") or {}
        value = {_MEMBERS.get(name, name): each for name, each in held.items()}
        raise UniqueError(error.sentence, holder=error.fields.get("holder"), value=value) from None
    except LimitError as error:
        if error.status != 413:
            raise
        raise RecordError(error.sentence, **error.fields) from None


def absent_reference(error: LinkError) -> RecordError:
    """Return the error of a body that refers to a record that does not exist (422)."""
    named: Any = error.fields.get("fields") or {}
    return RecordError(f"There is no such {error.fields.get('record', 'record')}.", **named)


class Library(Tenant):
    """`roots` are the folders of audio files, resolved; `folder` is for the service's own files.
    `has_tenants`: it is one of several libraries, whose names are part of tokens."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        quota: Quota,
        *,
        roots: Sequence[Path],
        folder: Path,
        schema: Schema | None = None,
        key_ring: KeyRing | None = None,
        has_tenants: bool = False,
    ) -> None:
        super().__init__(name, schema or SCHEMAS[0], engine, quota, key_ring=key_ring)
        self.has_tenants = has_tenants
        self.roots = tuple(roots)
        self.folder = folder
        self.new_id: Callable[[], str] = self.store.ids.new

    def now(self, *, seconds_ago: float = 0.0) -> str:
        return SECONDS.format(self.store.engine.clock.now() - round(1_000 * seconds_ago))

    async def require(self, record: Record[T], what: str, /, **fields: Any) -> Entry[T]:
        """Return a record; NotFoundError if there is none."""
        return found(await self.store.entry(record, **fields), what, fields)

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
        what: str,
        check: Callable[[int | None], None],
        work: Callable[[Transaction, Entry[T]], Awaitable[None]],
        /,
        **fields: Any,
    ) -> Entry[T]:
        """Change a record in a transaction and return it as stored. `check` is that of If-Match."""

        async def run(tx: Transaction) -> None:
            entry = found(await tx.entry(record, **fields), what, fields)
            check(entry.revision)
            await work(tx, entry)

        with valid_body():
            await self.store.transact(run)
        return await self.require(record, what, **fields)


def found(entry: Entry[T] | None, what: str, fields: Mapping[str, Any]) -> Entry[T]:
    if entry is None:
        raise NotFoundError(f"There is no such {what}.", **fields)
    return entry
