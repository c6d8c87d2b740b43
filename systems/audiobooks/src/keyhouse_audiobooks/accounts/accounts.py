"""Users, sessions and roles. API keys are in `api_keys`.

The password is hashed outside of transactions. The first admin is created by one commit that
expects `meta:auth:setup` absent; changes that take a role away write that row again, so that two of
them at once cannot remove the last two admins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET, convert
from msgspec.structs import asdict, replace

from keyhouse.advice import nearest
from keyhouse.auth import StoredSession
from keyhouse.clock import Clock
from keyhouse.engine import Engine
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
from keyhouse.schema import SECONDS
from keyhouse.service.accounts.known_clients import KnownClients
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.service.accounts.passwords import PasswordParameters, Passwords
from keyhouse.service.accounts.sessions import NewSession, SessionCookie, SessionStore
from keyhouse.store import CachedReads, Transaction
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.accounts.api_keys import ApiKeys, member_of
from keyhouse_audiobooks.accounts.messages import UserPatch
from keyhouse_audiobooks.accounts.permissions import ADMIN, ROLES
from keyhouse_audiobooks.library import Library, Member, valid_body
from keyhouse_audiobooks.limits import SESSIONS_MAX
from keyhouse_audiobooks.records import Argon2Params, RolePermissions, Session, Setup, User
from keyhouse_audiobooks.schema import (
    ARGON2_PARAMS,
    ROLE_PERMISSIONS,
    SESSION,
    SESSIONS_OF_USER,
    SETUP,
    USER,
    USER_BY_NAME,
)

__all__ = [
    "COOKIE",
    "Accounts",
    "SignedIn",
    "login_guard",
]

COOKIE: Final = SessionCookie(name="session_id", path=f"/{SYSTEM.name}", same_site="Strict")
DEVICE_COOKIE: Final = "audiobooks_device"
"""The cookie of a device from which a user has signed in."""


def login_guard(clock: Clock, key: bytes, shared: Engine | None = None) -> LoginGuard:
    """15 failures of an address in 15 minutes are rejected; an account is slowed down after 5.
    `key` signs the cookies of devices; processes share failures on the engine `shared`."""
    return LoginGuard(
        account_attempts=5,
        account_delay_seconds=0.1,
        account_delay_seconds_max=2.0,
        address_attempts=15,
        address_delay_seconds=900.0,
        clock=clock,
        known=KnownClients(cookie=DEVICE_COOKIE, key=key, clock=clock),
        shared=shared,
    )


class SignedIn(NamedTuple):
    """A user who has signed in, with the new session."""

    accounts: "Accounts"
    user: User
    session: NewSession
    client: ClientAddress

    def cookies(self, root: str) -> tuple[tuple[str, str], ...]:
        """Return the headers that sign a browser in, and make its device known."""
        return self.accounts.cookies(self.user, self.session, self.client, root)


class Accounts:
    """`remembered_hours` is the lifetime of the session of a user who chose to stay signed in.
    `sleep` waits before the password of a guessed account is verified; tests pass their own."""

    def __init__(
        self,
        library: Library,
        guard: LoginGuard,
        *,
        session_hours: float,
        remembered_hours: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.library = library
        self.store = library.store
        self._passwords = Passwords()
        self._guard = guard
        self._sleep = sleep
        self._remembered_hours = remembered_hours
        token_prefix = f"{library.name}-" if library.has_tenants else ""
        self.sessions = SessionStore(
            library.store,
            SESSION,
            hours=session_hours,
            token_prefix=token_prefix,
            by=SESSIONS_OF_USER,
        )
        self._callers = CachedReads(library.store, self._read_session)
        self.api_keys = ApiKeys(library, token_prefix)

    async def read_parameters(self) -> None:
        """Hash passwords by the stored parameters from now on, or by the default ones."""
        stored = await self.store.get(ARGON2_PARAMS)
        self._passwords.use(PasswordParameters() if stored is None else _cost(stored))

    # Callers

    async def stored_session(self, id: str) -> StoredSession | None:
        """Return the session or API key of a token."""
        if id in self.api_keys:
            return await self.api_keys.stored_again(id)
        return await self._callers.get(id) or await self.api_keys.stored(id)

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
    ) -> "SignedIn":
        """Return the user and the new session. TokenError for an unknown user, a wrong password
        and a disabled user alike."""
        account = self._account(username)
        device = self._guard.known.device(account, cookies)
        await self._sleep_before(account, client, device)
        await self.read_parameters()
        try:
            found = await self.store.lookup(USER, USER_BY_NAME, username=username)
        except KeyFieldError:  # a name that no user can have
            found = None
        user = None if found is None else found.record
        is_active = user is not None and user.status == "active"
        stored = user.password_hash if user is not None and is_active else None
        check = await self._passwords.verify(
            stored,
            password,
            preferred=account if self._guard.is_known(account, client, device) else "",
        )
        if user is None or not check.is_valid:
            raise TokenError("The user name or the password is wrong.")
        await self._guard.succeeded(account, client, device)
        new = self.sessions.new(self._remembered_hours if remember else None)
        session = Session(
            id=new.id,
            user_id=user.id,
            expires_at=SECONDS.format(new.expires),
            ip=client.address,
            user_agent=user_agent[:300],
            token_hash=new.secret_hash,
        )

        async def work(tx: Transaction) -> None:
            current = await tx.get(USER, id=user.id)
            if current is None or current.password_hash != user.password_hash:
                raise TokenError("The user name or the password is wrong.")
            if check.new_hash is not None:
                await tx.put(USER, replace(current, password_hash=check.new_hash))
            await self.sessions.put(new, session, tx)

        await self.store.transact(work)
        await self.sessions.end_oldest(SESSIONS_MAX, user_id=user.id)
        return SignedIn(self, user, new, client)

    def cookies(
        self, user: User, new: NewSession, client: ClientAddress, root: str
    ) -> tuple[tuple[str, str], ...]:
        path = f"{root}{COOKIE.path}"
        device = self._guard.known.device_cookie(self._account(user.username), client, path=path)
        return COOKIE.set(new, client, root), device

    async def _sleep_before(self, account: str, client: ClientAddress, device: str) -> None:
        seconds = await self._guard.check(account, client, device)
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

    # Sessions

    async def sign_out(self, member: Member) -> None:
        """End the session of a request; an API key has none."""
        if member.is_session:
            await self.end_session(member.subject, member.device)

    async def end_session(self, user_id: str, id: str) -> None:
        """End a session of a user. NotFoundError if it is none of theirs."""
        session = await self.sessions.get(id)
        if session is None or session.user_id != user_id:
            raise NotFoundError("There is no such session.", id=id)
        await self.sessions.end(id)

    async def change_password(
        self, member: Member, current: str, new: str, client: ClientAddress
    ) -> None:
        """Change the password and end the other sessions of the user. Guesses of the current one
        are limited like those of a login, by session and address."""
        user = await self.user(member.subject)
        account = self._account(user.username)
        source = f"{member.device} {client.network}"  # a stolen session has other addresses
        await self._sleep_before(account, client, source)
        await self.read_parameters()
        check = await self._passwords.verify(
            user.password_hash,
            current,
            preferred=account,
        )
        if not check.is_valid:
            raise AccessError("The current password is wrong.")
        await self._guard.succeeded(account, client, source)
        await self._set_password(user.id, new)
        await self.sessions.end_all(user_id=user.id, except_for=member.device)

    async def _set_password(self, user_id: str, password: str) -> None:
        hashed = await self._passwords.hash(password)

        async def work(tx: Transaction) -> None:
            user = await tx.get(USER, id=user_id)
            if user is not None:
                await tx.put(USER, replace(user, password_hash=hashed))

        await self.store.transact(work)

    # Users

    async def user(self, id: str) -> User:
        return (await self.library.require(USER, id=id)).record

    async def users(self) -> list[User]:
        return [entry.record async for entry in self.store.scan(USER)]

    async def names(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of users by their ids."""
        return {user.id: user.username for user in await self.users() if user.id in ids}

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
            password_hash=await self._passwords.hash(password),
            roles=roles,
        )

    async def _check_roles(self, roles: Sequence[str]) -> None:
        stored = {entry.record.role async for entry in self.store.scan(ROLE_PERMISSIONS)}
        unknown = sorted(set(roles) - stored - ROLES.keys())
        if unknown:
            raise RecordError(
                "There is no such role.",
                roles=unknown,
                **nearest(unknown[0], sorted({*stored, *ROLES})),
            )

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
            await self.sessions.end_all(user_id=id)
        return await self.user(id)

    async def patch_user(self, id: str, patch: UserPatch) -> User:
        """Change the members that a request has."""

        def change(user: User) -> User:
            if patch.roles is not UNSET:
                user = replace(user, roles=list(dict.fromkeys(patch.roles)))
            if patch.status is not UNSET:
                user = replace(user, status=patch.status)
            return user if patch.email is UNSET else replace(user, email=patch.email or None)

        user = await self.change_user(id, change)
        if patch.password is not UNSET:
            await self.set_password(id, patch.password)
        return user

    async def set_email(self, member: Member, email: str | None) -> User:
        return await self.change_user(
            member.subject, lambda user: replace(user, email=email or None)
        )

    async def set_password(self, id: str, password: str) -> None:
        await self._set_password(id, password)
        await self.sessions.end_all(user_id=id)

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
    members = asdict(cost)
    return Argon2Params(memory_cost_kib=members.pop("memory_kib"), **members)


def _cost(stored: Argon2Params) -> PasswordParameters:
    return convert(
        {**asdict(stored), "memory_kib": stored.memory_cost_kib}, type=PasswordParameters
    )
