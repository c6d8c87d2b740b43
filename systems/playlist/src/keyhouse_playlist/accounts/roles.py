"""Roles of users: admin, blessed or viewer, resolved from the store on every request.

The first of these that names a user decides: the setting `admins`, the record `admins`, the record
`blessed`, the newest of the user's `roles/…`. Names compare without case.
"""

from collections.abc import Callable, Collection
from typing import Final

from keyhouse.errors import DocumentError, NotFoundError
from keyhouse.schema import SECONDS, Record
from keyhouse.store import Transaction
from keyhouse_playlist.names import comparable_name
from keyhouse_playlist.schema import ADMINS, BLESSED, ROLE, Role
from keyhouse_playlist.stores import PlaylistStores, readable

__all__ = ["ADMIN", "MEMBER", "READ", "ROLE_SCOPES", "WRITE", "Roles"]

READ: Final = "read"
MEMBER: Final = "member"
WRITE: Final = "write"
ADMIN: Final = "admin"

ROLE_SCOPES: Final[dict[str, tuple[str, ...]]] = {
    "viewer": (READ, MEMBER),
    "blessed": (READ, MEMBER, WRITE),
    "admin": (READ, MEMBER, WRITE, ADMIN),
}
"""Scopes of each role, for the routes. Those who are signed out may have READ (`public_read`)."""


class Roles:
    """`admins` are those of the settings."""

    def __init__(self, stores: PlaylistStores, admins: Collection[str] = ()) -> None:
        self._store = stores.acl
        self._template = self._store.binding.record(ROLE).template
        self._usernames: dict[str, list[str]] = {}
        self._revision: int | None = None
        self._admins = frozenset(map(comparable_name, admins))

    async def of(self, username: str) -> Role:
        """Return the role of a user now."""
        name = comparable_name(username)
        if name in self._admins or await self._lists(ADMINS, name):
            return "admin"
        if await self._lists(BLESSED, name):
            return "blessed"
        return await self._own(name)

    async def _lists(self, record: Record[list[str]], name: str) -> bool:
        return name in map(comparable_name, await readable(self._store, record) or ())

    async def _own(self, name: str) -> Role:
        """Return the newest role among the spellings of a name: other programs write any. Only rows
        of that name are read and decoded."""
        newest: tuple[int, Role] = (-1, "viewer")
        spellings = [{"username": each} for each in (await self._folded()).get(name, ())]
        if spellings:
            for role in await self._store.get_many(ROLE, spellings, unreadable="skip"):
                if role is not None:
                    newest = max(newest, (_time(role.updated_at), role.role))
        return newest[1]

    async def _folded(self) -> dict[str, list[str]]:
        """Return the usernames that have a role, by the form in which names compare. Their keys are
        listed again when the bucket has changed."""
        revision = await self._store.revision()
        if revision != self._revision:
            usernames: dict[str, list[str]] = {}
            cursor: str | None = ""
            while cursor is not None:
                keys, cursor = await self._store.keys(ROLE, cursor=cursor or None)
                for key in keys:
                    fields = self._template.parse(key)
                    assert fields is not None  # it was found by this template
                    username = str(fields["username"])
                    usernames.setdefault(comparable_name(username), []).append(username)
            self._usernames, self._revision = usernames, revision
        return self._usernames

    async def names(self, record: Record[list[str]]) -> list[str]:
        """Return the names in a list."""
        return await readable(self._store, record) or []

    async def add(self, record: Record[list[str]], username: str) -> list[str]:
        """Add a name to a list, unless it has it, and return the list."""
        name = username.strip()

        def added(names: list[str]) -> list[str]:
            known = comparable_name(name) in map(comparable_name, names)
            return names if known else [*names, name]

        return await self._change(record, added)

    async def remove(self, record: Record[list[str]], username: str) -> list[str]:
        """Remove a name, in any spelling, and return the list. Raises NotFoundError without it."""

        def removed(names: list[str]) -> list[str]:
            left = [each for each in names if comparable_name(each) != comparable_name(username)]
            if len(left) == len(names):
                raise NotFoundError("The list does not have this user.", username=username)
            return left

        return await self._change(record, removed)

    async def _change(
        self, record: Record[list[str]], change: Callable[[list[str]], list[str]]
    ) -> list[str]:
        async def work(tx: Transaction) -> list[str]:
            names = await tx.get(record) or []
            changed = change(names)
            if changed != names:
                await tx.put(record, changed)
            return changed

        return await self._store.transact(work)


def _time(text: str) -> int:
    try:
        return SECONDS.parse(text)
    except DocumentError:
        return 0
