"""API keys: credentials of programs, which a user creates and deletes.

All keys of a user are in one value (`ua:`), with the hashes of their tokens. A request names a key
by its id alone: an index row leads to its user, which never changes, so the way from a key to its
user is kept in memory. Everything else, the hash, the user and its permissions, is compared with
the stored rows at every request: a key that was deleted, by whichever process, is rejected at once.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from keyhouse.auth import StoredSession, new_token
from keyhouse.errors import ConflictError, NotFoundError
from keyhouse.store import CachedReads, Transaction
from keyhouse_audiobooks.accounts.permissions import ROLES
from keyhouse_audiobooks.library import Library, Member
from keyhouse_audiobooks.limits import API_KEYS_MAX
from keyhouse_audiobooks.records import ApiKey, User, UserSecrets
from keyhouse_audiobooks.schema import API_KEY_OWNER, ROLE_PERMISSIONS, USER, USER_SECRETS

__all__ = ["ApiKeys", "member_of"]

OWNERS_MAX: Final = 10_000


class ApiKeys:
    """`token_prefix` is in front of the id in a token."""

    def __init__(self, library: Library, token_prefix: str) -> None:
        self._library = library
        self._store = library.store
        self._token_prefix = token_prefix
        self._owners: dict[str, str] = {}
        """The index rows that lead to the users of keys, by the ids of the keys."""
        self._stored = CachedReads(library.store, self._read)

    # Callers

    def __contains__(self, id: str) -> bool:
        """Return whether a key was used before, and may still be there."""
        return id in self._owners

    async def stored_again(self, id: str) -> StoredSession | None:
        """Return a key that was used before, by one read of the engine; None if it was deleted."""
        found = await self._stored.get(self._owners[id])
        if found is None:
            self._owners.pop(id, None)
        return found

    async def stored(self, id: str) -> StoredSession | None:
        """Return a key that its index row leads to."""
        keys, _ = await self._store.keys(API_KEY_OWNER, limit=1, key_id=id)
        if not keys:
            return None
        self._owners[id] = keys[0]
        if len(self._owners) > OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        return await self.stored_again(id)

    async def _read(self, row: str, tx: Transaction) -> StoredSession | None:
        """Return the key that an index row leads to."""
        fields = self._store.binding.derived(API_KEY_OWNER).template.parse(row)
        assert fields is not None  # it was found by this template
        user_id, id = str(fields["user_id"]), str(fields["key_id"])
        secrets, user = await tx.get_each(
            (USER_SECRETS, {"user_id": user_id}), (USER, {"id": user_id})
        )
        if secrets is None or id not in secrets.hashes:
            return None
        if user is None or user.status != "active":
            return None
        return StoredSession(
            caller=await member_of(self._library, tx, user, id, is_session=False),
            secret_hash=secrets.hashes[id],
            allows_cookie=False,
        )

    # Keys of a user

    async def list(self, user_id: str) -> Sequence[ApiKey]:
        secrets = await self._store.get(USER_SECRETS, user_id=user_id)
        return () if secrets is None else tuple(secrets.api_keys or ())

    async def get(self, user_id: str, id: str) -> ApiKey:
        for key in await self.list(user_id):
            if key.id == id:
                return key
        raise NotFoundError("There is no such API key.", id=id)

    async def create(self, user_id: str, name: str) -> tuple[ApiKey, str]:
        """Return the key and its token, which is shown once."""
        id = self._library.new_id()
        token = new_token(self._token_prefix + id)
        key = ApiKey(id=id, name=name, created_at=self._library.now())

        async def work(tx: Transaction) -> None:
            found = await tx.get(USER_SECRETS, user_id=user_id) or UserSecrets(user_id=user_id)
            keys = list(found.api_keys or ())
            if len(keys) >= API_KEYS_MAX:
                raise ConflictError(
                    "There are as many API keys as allowed: delete one first.", limit=API_KEYS_MAX
                )
            hashes = {**found.hashes, key.id: token.secret_hash}
            await tx.put(USER_SECRETS, replace(found, hashes=hashes, api_keys=[*keys, key]))

        await self._store.transact(work)
        return key, token.token

    async def rename(self, user_id: str, id: str, name: str) -> ApiKey:
        return await self._change(user_id, id, name)

    async def delete(self, user_id: str, id: str) -> None:
        await self._change(user_id, id, None)

    async def _change(self, user_id: str, id: str, name: str | None) -> ApiKey:
        async def work(tx: Transaction) -> ApiKey:
            found = await tx.get(USER_SECRETS, user_id=user_id)
            keys = {key.id: key for key in (found.api_keys or () if found else ())}
            if found is None or id not in keys:
                raise NotFoundError("There is no such API key.", id=id)
            hashes = dict(found.hashes)
            if name is None:
                key = keys.pop(id)
                hashes.pop(id, None)
            else:
                key = keys[id] = replace(keys[id], name=name)
            await tx.put(USER_SECRETS, replace(found, hashes=hashes, api_keys=[*keys.values()]))
            return key

        return await self._store.transact(work)


async def member_of(
    library: Library, tx: Transaction, user: User, device: str, *, is_session: bool
) -> Member:
    """Return the caller of a session or API key, with the permissions of its roles."""
    return Member(
        tenant=library.name,
        subject=user.id,
        turn="" if library.has_tenants else user.id,
        roles=frozenset(user.roles),
        scopes=await _permissions(tx, user.roles),
        device=device,
        is_session=is_session,
    )


async def _permissions(tx: Transaction, roles: Sequence[str]) -> frozenset[str]:
    rows = await tx.get_each(*[(ROLE_PERMISSIONS, {"role": role}) for role in roles])
    found: set[str] = set()
    for role, row in zip(roles, rows, strict=True):
        found.update(ROLES.get(role, ()) if row is None else row.permissions)
    return frozenset(found)
