"""Users, sessions and roles. API keys are in `api_keys`.

The password is hashed outside of transactions. The first admin is created by one commit that
expects `meta:auth:setup` absent; changes that take a role away write that row again, so that two of
them at once cannot remove the last two admins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from keyhouse.auth import NewToken, StoredSession, new_token
from keyhouse.clock import Clock
from keyhouse.errors import (
    AccessError,
    ConflictError,
    KeyFieldError,
    NotFoundError,
    RecordError,
    TokenError,
)
from keyhouse.http import ClientAddress
from keyhouse.keys import normal
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import SECONDS
from keyhouse.service.known_clients import KnownClients
from keyhouse.service.login_guard import LoginGuard
from keyhouse.service.passwords import PasswordParameters, Passwords
from keyhouse.store import CachedReads, Transaction
from keyhouse.systems.audiobooks.api_keys import ApiKeys, member_of
from keyhouse.systems.audiobooks.library import Library, Member, valid_body
from keyhouse.systems.audiobooks.limits import SESSIONS_MAX
from keyhouse.systems.audiobooks.permissions import ADMIN, ROLES
from keyhouse.systems.audiobooks.records import (
    Argon2Params,
    RolePermissions,
    Session,
    Setup,
    User,
)
from keyhouse.systems.audiobooks.schema import (
    ARGON2_PARAMS,
    ROLE_PERMISSIONS,
    SESSION,
    SESSIONS_OF_USER,
    SETUP,
    USER,
    USER_BY_NAME,
)

__all__ = [
    "REMEMBERED_SECONDS",
    "SESSION_SECONDS",
    "Accounts",
    "login_guard",
    "password_parameters",
]

SESSION_SECONDS: Final = 24 * 3_600
REMEMBERED_SECONDS: Final = 7 * 24 * 3_600
DEVICE_COOKIE: Final = "audiobooks_device"
"""The cookie of a device from which a user has signed in."""


def login_guard(clock: Clock, key: bytes) -> LoginGuard:
    """15 failures of an address in 15 minutes are rejected; an account is slowed down after 5.
    `key` signs the cookies of devices."""
    return LoginGuard(
        account_attempts=5,
        account_delay_seconds=0.1,
        account_delay_seconds_max=2.0,
        address_attempts=15,
        address_delay_seconds=900.0,
        clock=clock,
        known=KnownClients(cookie=DEVICE_COOKIE, key=key, clock=clock),
    )


class Accounts:
    """`sleep` waits before the password of a guessed account is verified; tests pass their own."""

    def __init__(
        self,
        library: Library,
        passwords: Passwords,
        guard: LoginGuard,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.library = library
        self.store = library.store
        self.passwords = passwords
        self._guard = guard
        self._token_prefix = f"{library.name}-" if library.has_tenants else ""
        self._sleep = sleep
        self._sessions = CachedReads(library.store, self._read_session)
        self.api_keys = ApiKeys(library, self._token_prefix)

    # Callers

    async def stored_session(self, id: str) -> StoredSession | None:
        """Return the session or API key of a token."""
        if id in self.api_keys:
            return await self.api_keys.stored_again(id)
        return await self._sessions.get(id) or await self.api_keys.stored(id)

    async def _read_session(self, id: str, tx: Transaction) -> StoredSession | None:
        session = await tx.get(SESSION, id=id)
        if session is None or session.revoked:
            return None
        user = await tx.get(USER, id=session.user_id)
        if user is None or user.status != "active":
            return None
        return StoredSession(
            caller=await member_of(self.library, tx, user, id, is_session=True),
            secret_hash=session.token_hash or "",
            expires=SECONDS.parse(session.expires_at),
        )

    async def is_allowed(self, member: Member, permission: str) -> bool:
        """Return whether a session or API key is still valid, and its user has a permission."""
        found = await self.stored_session(member.device)
        if found is None or permission not in found.caller.scopes:
            return False
        return found.expires is None or self.store.engine.clock.now() < found.expires

    # Set-up and login

    async def has_users(self) -> bool:
        keys, _ = await self.store.keys(USER, limit=1)
        return bool(keys)

    async def set_up(self, username: str, password: str, email: str | None) -> User:
        """Create the first admin. ConflictError if there is one."""
        await self._reject_second_setup()
        user = await self._new_user(username, password, email, [ADMIN])

        async def work(tx: Transaction) -> None:
            if await tx.get(SETUP) is not None:
                raise _set_up_already()
            await tx.put(SETUP, Setup(user_id=user.id), expect=None)
            await tx.put(USER, user, expect=None)
            for role, permissions in ROLES.items():
                row = RolePermissions(role=role, permissions=list(permissions))
                if await tx.get(ROLE_PERMISSIONS, role=role) is None:
                    await tx.put(ROLE_PERMISSIONS, row)
            if await tx.get(ARGON2_PARAMS) is None:
                await tx.put(ARGON2_PARAMS, _stored_parameters(PasswordParameters()))

        with valid_body():
            await self.store.transact(work)
        return await self.user(user.id)

    async def _reject_second_setup(self) -> None:
        if await self.store.get(SETUP) is not None or await self.has_users():
            raise _set_up_already()

    async def sign_in(
        self,
        username: str,
        password: str,
        client: ClientAddress,
        *,
        user_agent: str,
        remember: bool,
        cookies: str = "",
    ) -> tuple[User, Session, str]:
        """Return the user, the new session and its token. TokenError for an unknown user, a wrong
        password and a disabled user alike."""
        account = self._account(username)
        device = self._guard.known.device(account, cookies)
        await self._sleep_before(account, client, device)
        self.passwords.use(await password_parameters(self.library))
        try:
            found = await self.store.lookup(USER, USER_BY_NAME, username=username)
        except KeyFieldError:  # a name that no user can have
            found = None
        user = None if found is None else found.record
        is_active = user is not None and user.status == "active"
        stored = user.password_hash if user is not None and is_active else None
        check = await self.passwords.verify(
            stored,
            password,
            preferred=account if self._guard.is_known(account, client, device) else "",
        )
        if user is None or not check.is_valid:
            raise TokenError("The user name or the password is wrong.")
        self._guard.succeeded(account, client, device)
        id = self.library.new_id()
        token = new_token(self._token_prefix + id)
        session = self._session(id, user, token, client, user_agent, remember)

        async def work(tx: Transaction) -> None:
            current = await tx.get(USER, id=user.id)
            if current is None or current.password_hash != user.password_hash:
                raise TokenError("The user name or the password is wrong.")
            if check.new_hash is not None:
                await tx.put(USER, replace(current, password_hash=check.new_hash))
            await tx.put(SESSION, session)

        await self.store.transact(work)
        await self._end_oldest_sessions(user.id)
        return user, session, token.token

    def device_cookie(self, username: str, client: ClientAddress, path: str) -> tuple[str, str]:
        """Return the header that makes the device of a user known, who has signed in."""
        return self._guard.known.device_cookie(self._account(username), client, path=path)

    async def _sleep_before(self, account: str, client: ClientAddress, device: str) -> None:
        seconds = self._guard.check(account, client, device)
        if seconds > 0:
            await self._sleep(seconds)

    def _account(self, username: str) -> str:
        """Return the name under which attempts are counted, over all libraries: one for all
        spellings that find the same user."""
        try:
            name = normal(username)
        except KeyFieldError:  # a name that no user can have
            name = username
        return f"{self.library.name}/{name}".casefold()

    def _session(
        self,
        id: str,
        user: User,
        token: NewToken,
        client: ClientAddress,
        user_agent: str,
        remember: bool,
    ) -> Session:
        seconds = REMEMBERED_SECONDS if remember else SESSION_SECONDS
        expires = self.store.engine.clock.now() + seconds * 1_000
        return Session(
            id=id,
            user_id=user.id,
            expires_at=SECONDS.format(expires),
            ip=client.address,
            user_agent=user_agent[:300],
            token_hash=token.secret_hash,
        )

    # Sessions

    async def sessions(self, user_id: str) -> list[Session]:
        entries = self.store.scan(SESSION, by=SESSIONS_OF_USER, user_id=user_id)
        return [entry.record async for entry in entries]

    async def _end_oldest_sessions(self, user_id: str) -> None:
        """End the sessions of a user beyond the maximum. It runs after the commit of a login, so
        that of several logins at once, the last one sees the sessions of all."""
        keys, _ = await self.store.keys(SESSIONS_OF_USER, limit=PAGE_ROWS_MAX, user_id=user_id)
        template = self.store.binding.derived(SESSIONS_OF_USER).template
        for key in keys[:-SESSIONS_MAX]:
            row = template.parse(key)
            assert row is not None  # it was found by this template
            await self.store.delete(SESSION, id=row["id"])

    async def end_session(self, user_id: str, id: str) -> None:
        session = await self.store.get(SESSION, id=id)
        if session is None or session.user_id != user_id:
            raise NotFoundError("There is no such session.", id=id)
        await self.store.delete(SESSION, id=id)

    async def change_password(
        self, member: Member, current: str, new: str, client: ClientAddress
    ) -> None:
        """Change the password and end the other sessions of the user. Guesses of the current one
        are limited like those of a login, by session and address."""
        user = await self.user(member.subject)
        account = self._account(user.username)
        source = f"{member.device} {client.network}"  # a stolen session has other addresses
        await self._sleep_before(account, client, source)
        self.passwords.use(await password_parameters(self.library))
        check = await self.passwords.verify(
            user.password_hash,
            current,
            preferred=account,
        )
        if not check.is_valid:
            raise AccessError("The current password is wrong.")
        self._guard.succeeded(account, client, source)
        await self._set_password(user.id, new)
        await self.end_sessions(user.id, except_for=member.device)

    async def _set_password(self, user_id: str, password: str) -> None:
        hashed = await self.passwords.hash(password)

        async def work(tx: Transaction) -> None:
            user = await tx.get(USER, id=user_id)
            if user is not None:
                await tx.put(USER, replace(user, password_hash=hashed))

        await self.store.transact(work)

    async def end_sessions(self, user_id: str, *, except_for: str = "") -> None:
        for session in await self.sessions(user_id):
            if session.id != except_for:
                await self.store.delete(SESSION, id=session.id)

    # Users

    async def user(self, id: str) -> User:
        return (await self.library.require(USER, "user", id=id)).record

    async def users(self) -> list[User]:
        return [entry.record async for entry in self.store.scan(USER)]

    async def create_user(
        self, username: str, password: str, email: str | None, roles: list[str]
    ) -> User:
        await self._check_roles(roles)
        user = await self._new_user(username, password, email, roles)
        with valid_body():
            await self.store.put(USER, user, expect=None)
        return await self.user(user.id)

    async def _new_user(
        self, username: str, password: str, email: str | None, roles: list[str]
    ) -> User:
        return User(
            id=self.library.new_id(),
            username=username,
            email=email or None,
            password_hash=await self.passwords.hash(password),
            roles=roles,
        )

    async def _check_roles(self, roles: Sequence[str]) -> None:
        stored = {entry.record.role async for entry in self.store.scan(ROLE_PERMISSIONS)}
        unknown = sorted(set(roles) - stored - ROLES.keys())
        if unknown:
            raise RecordError("There is no such role.", roles=unknown, known=sorted(ROLES))

    async def change_user(self, id: str, change: Callable[[User], User]) -> User:
        """Change roles, status or email. ConflictError if no active admin would be left."""

        async def work(tx: Transaction) -> User:
            before = await tx.get(USER, id=id)
            if before is None:
                raise NotFoundError("There is no such user.", id=id)
            after = change(replace(before))
            await self._check_roles(after.roles)
            if _is_admin(before) and not _is_admin(after):
                await self._keep_an_admin(tx, id)
            await tx.put(USER, after)
            return after

        with valid_body():
            after = await self.store.transact(work)
        if after.status != "active":
            await self.end_sessions(id)
        return await self.user(id)

    async def set_password(self, id: str, password: str) -> None:
        await self._set_password(id, password)
        await self.end_sessions(id)

    async def delete_user(self, id: str) -> None:
        """Delete a user with all that belongs to it."""
        await self.change_user(id, lambda user: replace(user, roles=[], status="disabled"))
        await self.store.delete(USER, id=id)

    async def _keep_an_admin(self, tx: Transaction, id: str) -> None:
        setup = await tx.get(SETUP) or Setup(user_id=id)
        others = [user for user in await self.users() if user.id != id and _is_admin(user)]
        if not others:
            raise ConflictError("This is the last admin: make another user an admin first.")
        await tx.put(SETUP, setup)


def _is_admin(user: User) -> bool:
    return user.status == "active" and ADMIN in user.roles


def _set_up_already() -> ConflictError:
    return ConflictError("The library is set up: sign in.")


def _stored_parameters(cost: PasswordParameters) -> Argon2Params:
    return Argon2Params(
        time_cost=cost.time_cost,
        memory_cost_kib=cost.memory_kib,
        parallelism=cost.parallelism,
        hash_bytes=cost.hash_bytes,
        salt_bytes=cost.salt_bytes,
    )


async def password_parameters(library: Library) -> PasswordParameters:
    """Return the stored parameters of password hashes, or the default ones."""
    stored = await library.store.get(ARGON2_PARAMS)
    if stored is None:
        return PasswordParameters()
    return PasswordParameters(
        time_cost=stored.time_cost,
        memory_kib=stored.memory_cost_kib,
        parallelism=stored.parallelism,
        hash_bytes=stored.hash_bytes,
        salt_bytes=stored.salt_bytes,
    )
