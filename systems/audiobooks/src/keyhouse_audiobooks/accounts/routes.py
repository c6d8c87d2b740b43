"""Routes of `auth/` and `users`. Accounts change in a session only: each handler that changes one
requires it."""

from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from keyhouse.errors import ConflictError, NotFoundError, RateError, TokenError
from keyhouse.http import ClientAddress, Response, Route
from keyhouse.schema import SECONDS
from keyhouse_audiobooks.accounts import messages
from keyhouse_audiobooks.accounts.accounts import COOKIE
from keyhouse_audiobooks.accounts.permissions import MANAGE_USERS
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.lists import Items, PageQuery, page_of
from keyhouse_audiobooks.messages import Data, Id
from keyhouse_audiobooks.records import ApiKey, Session, User
from keyhouse_audiobooks.route_table import api

__all__ = ["account_routes"]


class AccountHandlers:
    """Requests without a caller name their library; those with one are for the caller's."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._library = libraries.of

    async def status(self, headers: messages.Agent) -> Data[messages.LibraryStatus]:
        """Return whether the library is set up."""
        library = await self._libraries.named(headers.tenant)
        has_users = await library.accounts.has_users()
        return Data(messages.LibraryStatus(has_users, True, True, not has_users))

    async def set_up(
        self, body: messages.SetupBody, headers: messages.Agent
    ) -> Response[Data[messages.SetupReply]]:
        """Create the first admin, once."""
        self._libraries.check_name(body.tenant)
        library = await self._libraries.named(body.tenant or headers.tenant)
        user = await library.accounts.set_up(body.username, body.password, body.email)
        return Response(Data(messages.SetupReply("The library is set up.", _shown(user))), 201)

    async def login(
        self, body: messages.LoginBody, client: ClientAddress, headers: messages.Agent, root: str
    ) -> Response[Data[messages.LoginReply]]:
        """Sign in: a session, as a cookie and as a token for `Authorization: Bearer`."""
        self._libraries.check_name(body.tenant)
        name = body.tenant or headers.tenant
        signed_in = await self._libraries.sign_in(name, body, client, headers)
        user, new = signed_in.user, signed_in.session
        session = messages.LoginSession(new.id, user.id, SECONDS.format(new.expires))
        reply = messages.LoginReply(_shown(user), session, new.token)
        return Response(Data(reply), headers=signed_in.cookies(root))

    async def logout(
        self, caller: Member, client: ClientAddress, root: str
    ) -> Response[Data[messages.MessageReply]]:
        """Sign out: the session ends."""
        await self._library(caller).accounts.sign_out(caller)
        cookie = COOKIE.delete(client, root)
        return Response(Data(messages.MessageReply("Signed out.")), headers=(cookie,))

    async def me(self, caller: Member) -> Data[messages.UserProfile]:
        """Return the signed-in user and its permissions."""
        return _profile(await self._library(caller).accounts.user(caller.subject), caller)

    async def change_me(
        self, body: messages.ProfileBody, caller: Member
    ) -> Data[messages.UserProfile]:
        """Change the email of the signed-in user, in a session."""
        caller.require_session()
        return _profile(await self._library(caller).accounts.set_email(caller, body.email), caller)

    async def change_password(
        self, body: messages.PasswordBody, caller: Member, client: ClientAddress
    ) -> Data[messages.MessageReply]:
        """Change the password, in a session; the other sessions end."""
        caller.require_session()
        await self._library(caller).accounts.change_password(
            caller, body.current_password, body.new_password, client
        )
        return Data(messages.MessageReply("The password is changed; other sessions have ended."))

    async def sessions(
        self, query: PageQuery, caller: Member
    ) -> Data[Items[messages.ShownSession]]:
        """List the sessions of the signed-in user."""
        found = await self._library(caller).accounts.sessions.of(user_id=caller.subject)
        return Data(page_of([_shown_session(each, caller) for each in found], query))

    async def end_session(self, id: Id, caller: Member) -> None:
        """End a session, in a session."""
        caller.require_session()
        await self._library(caller).accounts.end_session(caller.subject, id)

    async def api_keys(self, query: PageQuery, caller: Member) -> Data[Items[ApiKey]]:
        """List the API keys of the signed-in user, without their secrets."""
        found = await self._library(caller).accounts.api_keys.list(caller.subject)
        return Data(page_of(found, query))

    async def api_key(self, id: Id, caller: Member) -> Data[ApiKey]:
        """Return one API key, without its secret."""
        return Data(await self._library(caller).accounts.api_keys.get(caller.subject, id))

    async def create_api_key(
        self, body: messages.ApiKeyBody, caller: Member
    ) -> Response[Data[messages.NewApiKey]]:
        """Create an API key, in a session. Its secret is shown here and never again."""
        caller.require_session()
        keys = self._library(caller).accounts.api_keys
        key, token = await keys.create(caller.subject, body.name)
        return Response(Data(messages.NewApiKey(key.id, key.name, token, key.created_at)), 201)

    async def rename_api_key(
        self, id: Id, body: messages.ApiKeyBody, caller: Member
    ) -> Data[ApiKey]:
        """Rename an API key, in a session."""
        caller.require_session()
        keys = self._library(caller).accounts.api_keys
        return Data(await keys.rename(caller.subject, id, body.name))

    async def delete_api_key(self, id: Id, caller: Member) -> None:
        """Delete an API key, in a session: requests with it are rejected from now on."""
        caller.require_session()
        await self._library(caller).accounts.api_keys.delete(caller.subject, id)

    async def users(self, query: PageQuery, caller: Member) -> Data[Items[messages.ShownUser]]:
        """List all users."""
        found = await self._library(caller).accounts.users()
        return Data(page_of([_shown(each) for each in found], query))

    async def user(self, id: Id, caller: Member) -> Data[messages.ShownUser]:
        """Return one user."""
        return Data(_shown(await self._library(caller).accounts.user(id)))

    async def create_user(
        self, body: messages.UserBody, caller: Member
    ) -> Response[Data[messages.ShownUser]]:
        """Create a user, in a session."""
        caller.require_session()
        user = await self._library(caller).accounts.create_user(
            body.username, body.password, body.email, body.roles
        )
        return Response(Data(_shown(user)), 201)

    async def change_user(
        self, id: Id, body: messages.UserPatch, caller: Member
    ) -> Data[messages.ShownUser]:
        """Change roles, status, email or password, in a session. The last admin stays one."""
        caller.require_session()
        return Data(_shown(await self._library(caller).accounts.patch_user(id, body)))

    async def delete_user(self, id: Id, caller: Member) -> None:
        """Delete a user with its sessions, progress and playlists, in a session. The last admin
        stays."""
        caller.require_session()
        await self._library(caller).accounts.delete_user(id)


def _shown(user: User) -> messages.ShownUser:
    return messages.ShownUser(
        user.id, user.username, user.email, user.roles, user.status, user.created_at
    )


def _profile(user: User, caller: Member) -> Data[messages.UserProfile]:
    shown = _shown(user)
    permissions = sorted(caller.scopes)
    return Data(messages.UserProfile(**asdict(shown), permissions=permissions, user=shown))


def _shown_session(session: Session, caller: Member) -> messages.ShownSession:
    return messages.ShownSession(
        id=session.id,
        user_id=session.user_id,
        created_at=session.created_at,
        expires_at=session.expires_at,
        ip_address=session.ip,
        user_agent=session.user_agent,
        current=session.id == caller.device,
    )


def account_routes(libraries: Libraries) -> Mapping[str, Route]:
    on = AccountHandlers(libraries)
    login = {"username": "ann", "password": "correct horse"}
    absent: Sequence[type[NotFoundError]] = [NotFoundError]
    changing = [NotFoundError, ConflictError]
    return {
        "auth_status": api.get("/auth/status", on.status, scope=None),
        "set_up": api.post(
            "/auth/setup",
            on.set_up,
            scope=None,
            replies={201: Data[messages.SetupReply]},
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
            "/auth/api-keys",
            on.create_api_key,
            scope="",
            replies={201: Data[messages.NewApiKey]},
            problems=[ConflictError],
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
            "/users",
            on.create_user,
            scope=MANAGE_USERS,
            replies={201: Data[messages.ShownUser]},
            problems=[ConflictError],
        ),
        "user": api.get("/users/{id}", on.user, scope=MANAGE_USERS, problems=absent),
        "change_user": api.patch(
            "/users/{id}", on.change_user, scope=MANAGE_USERS, problems=changing
        ),
        "delete_user": api.delete(
            "/users/{id}", on.delete_user, scope=MANAGE_USERS, problems=changing
        ),
    }
