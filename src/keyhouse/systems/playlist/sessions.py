"""Sessions: the cookie, the stored session behind it, and the user with the role of this moment."""

from typing import Final

from keyhouse.auth import HASHED_KEY, Caller, SessionAuth, StoredSession
from keyhouse.errors import DataError, TokenError
from keyhouse.systems.playlist.errors import RoleError
from keyhouse.systems.playlist.names import comparable_name
from keyhouse.systems.playlist.roles import ROLE_SCOPES, Roles
from keyhouse.systems.playlist.schema import SESSION
from keyhouse.systems.playlist.stores import PlaylistStores

__all__ = ["COOKIE", "ChannelMember", "MemberSessions"]

COOKIE: Final = "kryten_playlist_session"


class ChannelMember(Caller, frozen=True, kw_only=True):
    """A signed-in user. `role` is the one that the user has now."""

    username: str
    role: str
    session_id: str
    expires_at: str

    def require_writer(self) -> None:
        """Raise RoleError for a viewer."""
        if "write" not in self.scopes:
            raise RoleError("Viewers cannot change playlists or the queue.", role=self.role)

    def require_admin(self) -> None:
        """Raise RoleError unless the user is an admin."""
        if not self.is_admin:
            raise RoleError("Only admins may do this.", role=self.role)

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def is_named(self, name: str) -> bool:
        return comparable_name(name) == comparable_name(self.username)


class MemberSessions:
    def __init__(self, stores: PlaylistStores, roles: Roles, *, public_read: bool) -> None:
        self._stores = stores
        self._roles = roles
        self._public_read = public_read
        self.auth = SessionAuth(
            self._session,
            cookie=COOKIE,
            bearer=True,
            form=HASHED_KEY,
            role_scopes=ROLE_SCOPES,
            clock=stores.clock,
        )

    async def _session(self, id: str) -> StoredSession | None:
        try:
            session = await self._stores.auth.get(SESSION, session_id=id)
        except DataError:  # another program's row
            return None
        if session is None:
            return None
        role = await self._roles.of(session.username)
        member = ChannelMember(
            tenant=comparable_name(session.username),
            subject=session.username,
            roles=frozenset({role}),
            username=session.username,
            role=role,
            session_id=id,
            expires_at=session.expires_at,
        )
        return StoredSession(caller=member)

    async def end(self, member: ChannelMember) -> None:
        await self._stores.auth.delete(SESSION, session_id=member.session_id)

    def check_reader(self, member: ChannelMember | None) -> None:
        """Raise TokenError for a signed-out caller, unless everybody may read."""
        if member is None and not self._public_read:
            raise TokenError("Sign in to read this.", missing=True)
