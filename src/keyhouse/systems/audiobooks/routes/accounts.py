"""Routes of `auth/` and `users`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from keyhouse.errors import ConflictError, NotFoundError, RateError, RecordError, TokenError
from keyhouse.http import ClientAddress, Response, Route, delete_cookie, set_cookie
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.accounts import (
    REMEMBERED_SECONDS,
    SESSION_SECONDS,
    Accounts,
)
from keyhouse.systems.audiobooks.library import Data, Items, Member, data, items, page_of
from keyhouse.systems.audiobooks.messages import Id
from keyhouse.systems.audiobooks.permissions import MANAGE_USERS
from keyhouse.systems.audiobooks.records import ApiKey, Session, User
from keyhouse.systems.audiobooks.routes.table import CREATED, api

__all__ = ["COOKIE", "account_routes"]

COOKIE: Final = "session_id"
Json = dict[str, Any]


class AccountHandlers:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def status(self) -> Data[Json]:
        """Return whether the library is set up."""
        has_users = await self._accounts.has_users()
        return data(
            {
                "has_users": has_users,
                "auth_enabled": True,
                "requires_auth": True,
                "bootstrap_ready": not has_users,
            }
        )

    async def set_up(self, body: messages.SetupBody) -> Response[Data[Json]]:
        """Create the first admin, once."""
        self._check_library(body.tenant)
        user = await self._accounts.set_up(body.username, body.password, body.email)
        return Response(data({"message": "The library is set up.", "user": _user(user)}), 201)

    def _check_library(self, tenant: str | None) -> None:
        if tenant is not None and tenant != self._accounts.library.name:
            raise RecordError("The service has one library: leave `tenant` out.", tenant=tenant)

    async def login(
        self, body: messages.LoginBody, client: ClientAddress, headers: messages.Agent, root: str
    ) -> Response[Data[Json]]:
        """Sign in: a session, as a cookie and as a token for `Authorization: Bearer`."""
        self._check_library(body.tenant)
        user, session, token = await self._accounts.sign_in(
            body.username,
            body.password,
            client,
            user_agent=headers.user_agent,
            remember=body.remember_me,
            cookies=headers.cookie,
        )
        path = f"{root}/audiobooks"
        seconds = REMEMBERED_SECONDS if body.remember_me else SESSION_SECONDS
        cookie = set_cookie(
            COOKIE,
            token,
            client,
            path=path,
            max_age_seconds=seconds,
            same_site="Strict",
        )
        kept = {"id": session.id, "user_id": user.id, "expires_at": session.expires_at}
        reply = {"user": _user(user), "session": kept, "token": token}
        device = self._accounts.device_cookie(user.username, client, path)
        return Response(data(reply), headers=(cookie, device))

    async def logout(
        self, caller: Member, client: ClientAddress, root: str
    ) -> Response[Data[Json]]:
        """Sign out: the session ends."""
        if caller.is_session:
            await self._accounts.end_session(caller.subject, caller.device)
        cookie = delete_cookie(COOKIE, client, path=f"{root}/audiobooks")
        return Response(data({"message": "Signed out."}), headers=(cookie,))

    async def me(self, caller: Member) -> Data[Json]:
        """Return the signed-in user and its permissions."""
        return self._profile(await self._accounts.user(caller.subject), caller)

    async def change_me(self, body: messages.ProfileBody, caller: Member) -> Data[Json]:
        """Change the email of the signed-in user."""
        email = body.email or None
        user = await self._accounts.change_user(
            caller.subject, lambda user: replace(user, email=email)
        )
        return self._profile(user, caller)

    def _profile(self, user: User, caller: Member) -> Data[Json]:
        shown = _user(user)
        return data({**shown, "permissions": sorted(caller.scopes), "user": shown})

    async def change_password(
        self, body: messages.PasswordBody, caller: Member, client: ClientAddress
    ) -> Data[Json]:
        """Change the password; the other sessions end."""
        await self._accounts.change_password(
            caller, body.current_password, body.new_password, client
        )
        return data({"message": "The password is changed; other sessions have ended."})

    async def sessions(self, query: messages.PageQuery, caller: Member) -> Data[Items[Json]]:
        """List the sessions of the signed-in user."""
        found = await self._accounts.sessions(caller.subject)
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        return items([_session(each, caller) for each in page], total=len(found), cursor=cursor)

    async def end_session(self, id: Id, caller: Member) -> None:
        """End a session."""
        await self._accounts.end_session(caller.subject, id)

    async def api_keys(self, query: messages.PageQuery, caller: Member) -> Data[Items[ApiKey]]:
        """List the API keys of the signed-in user, without their secrets."""
        found = await self._accounts.api_keys.list(caller.subject)
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        return items(page, total=len(found), cursor=cursor)

    async def api_key(self, id: Id, caller: Member) -> Data[ApiKey]:
        """Return one API key, without its secret."""
        for key in await self._accounts.api_keys.list(caller.subject):
            if key.id == id:
                return data(key)
        raise NotFoundError("There is no such API key.", id=id)

    async def create_api_key(
        self, body: messages.ApiKeyBody, caller: Member
    ) -> Response[Data[Json]]:
        """Create an API key, in a session. Its secret is shown here and never again."""
        key, token = await self._accounts.api_keys.create(caller, body.name)
        shown = {"id": key.id, "name": key.name, "key": token, "created_at": key.created_at}
        return Response(data(shown), 201)

    async def rename_api_key(
        self, id: Id, body: messages.ApiKeyBody, caller: Member
    ) -> Data[ApiKey]:
        """Rename an API key."""
        return data(await self._accounts.api_keys.rename(caller.subject, id, body.name))

    async def delete_api_key(self, id: Id, caller: Member) -> None:
        """Delete an API key: requests with it are rejected from now on."""
        await self._accounts.api_keys.delete(caller.subject, id)

    async def users(self, query: messages.PageQuery) -> Data[Items[Json]]:
        """List all users."""
        found = await self._accounts.users()
        page, cursor = page_of(found, query.limit, query.cursor, query.offset)
        return items([_user(each) for each in page], total=len(found), cursor=cursor)

    async def user(self, id: Id) -> Data[Json]:
        """Return one user."""
        return data(_user(await self._accounts.user(id)))

    async def create_user(self, body: messages.UserBody, caller: Member) -> Response[Data[Json]]:
        """Create a user, in a session."""
        caller.require_session()
        user = await self._accounts.create_user(
            body.username, body.password, body.email, body.roles
        )
        return Response(data(_user(user)), 201)

    async def change_user(self, id: Id, body: messages.UserPatch, caller: Member) -> Data[Json]:
        """Change roles, status, email or password, in a session. The last admin stays one."""
        caller.require_session()

        def change(user: User) -> User:
            if body.roles is not UNSET:
                user.roles = list(dict.fromkeys(body.roles))
            if body.status is not UNSET:
                user.status = body.status
            if body.email is not UNSET:
                user.email = body.email or None
            return user

        user = await self._accounts.change_user(id, change)
        if body.password is not UNSET:
            await self._accounts.set_password(id, body.password)
        return data(_user(user))

    async def delete_user(self, id: Id, caller: Member) -> None:
        """Delete a user with its sessions, progress and playlists, in a session. The last admin
        stays."""
        caller.require_session()
        await self._accounts.delete_user(id)


def _user(user: User) -> Json:
    return {
        "id": user.id,
        "username": user.username,
        "email": user.email,
        "roles": user.roles,
        "status": user.status,
        "created_at": user.created_at,
    }


def _session(session: Session, caller: Member) -> Json:
    return {
        "id": session.id,
        "user_id": session.user_id,
        "created_at": session.created_at,
        "expires_at": session.expires_at,
        "ip_address": session.ip,
        "user_agent": session.user_agent,
        "current": session.id == caller.device,
    }


def account_routes(accounts: Accounts) -> Mapping[str, Route]:
    on = AccountHandlers(accounts)
    login = {"username": "ann", "password": "correct horse"}
    absent: Sequence[type[NotFoundError]] = [NotFoundError]
    return {
        "auth_status": api.get("/auth/status", on.status, scope=None),
        "set_up": api.post(
            "/auth/setup",
            on.set_up,
            scope=None,
            replies=CREATED,
            problems=[ConflictError],
            example=login,
        ),
        "login": api.post(
            "/auth/login", on.login, scope=None, problems=[TokenError, RateError], example=login
        ),
        "logout": api.post("/auth/logout", on.logout, scope=""),
        "me": api.get("/auth/me", on.me, scope=""),
        "change_me": api.patch("/auth/me", on.change_me, scope="", problems=[ConflictError]),
        "change_password": api.put(
            "/auth/me/password", on.change_password, scope="", problems=[RateError]
        ),
        "sessions": api.get("/auth/sessions", on.sessions, scope=""),
        "end_session": api.delete("/auth/sessions/{id}", on.end_session, scope="", problems=absent),
        "api_keys": api.get("/auth/api-keys", on.api_keys, scope=""),
        "create_api_key": api.post(
            "/auth/api-keys", on.create_api_key, scope="", replies=CREATED, problems=[ConflictError]
        ),
        "api_key": api.get("/auth/api-keys/{id}", on.api_key, scope="", problems=absent),
        "rename_api_key": api.patch(
            "/auth/api-keys/{id}", on.rename_api_key, scope="", problems=absent
        ),
        "delete_api_key": api.delete(
            "/auth/api-keys/{id}", on.delete_api_key, scope="", problems=absent
        ),
        "users": api.get("/users", on.users, scope=MANAGE_USERS),
        "create_user": api.post(
            "/users", on.create_user, scope=MANAGE_USERS, replies=CREATED, problems=[ConflictError]
        ),
        "user": api.get("/users/{id}", on.user, scope=MANAGE_USERS, problems=absent),
        "change_user": api.patch(
            "/users/{id}",
            on.change_user,
            scope=MANAGE_USERS,
            problems=[NotFoundError, ConflictError],
        ),
        "delete_user": api.delete(
            "/users/{id}",
            on.delete_user,
            scope=MANAGE_USERS,
            problems=[NotFoundError, ConflictError],
        ),
    }
