"""Sessions: the cookie, the stored session behind it, and the user with the role of this moment."""

from typing import Final

from keyhouse.auth import HASHED_KEY, Caller, StoredSession
from keyhouse.errors import DataError
from keyhouse.http import ClientAddress
from keyhouse.schema import SECONDS
from keyhouse.service.accounts.sessions import NewSession, SessionCookie, SessionStore
from keyhouse.store import Transaction
from keyhouse_playlist.accounts.roles import ADMIN, READ, ROLE_SCOPES, WRITE, Roles
from keyhouse_playlist.errors import RoleError
from keyhouse_playlist.names import comparable_name
from keyhouse_playlist.schema import SESSION, Role, Session
from keyhouse_playlist.stores import PlaylistStores

__all__ = ["COOKIE", "ChannelMember", "CommandSender", "MemberSessions"]

COOKIE: Final = SessionCookie(name="kryten_playlist_session")


class ChannelMember(Caller, frozen=True, kw_only=True):
    """A user with the role of this moment, or a reader who is signed out, without a name."""

    tenant: str = ""
    username: str = ""
    role: str = ""
    session_id: str = ""
    expires_at: str = ""

    def require(self, scope: str) -> None:
        """Raise RoleError unless the user's role gives the scope."""
        if scope in self.scopes:
            return
        if scope == ADMIN:
            raise RoleError("Only admins may do this.", role=self.role)
        raise RoleError("Viewers cannot change playlists or the queue.", role=self.role)

    @property
    def can_write(self) -> bool:
        return WRITE in self.scopes

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.scopes

    def is_named(self, name: str) -> bool:
        return comparable_name(name) == comparable_name(self.username)


class CommandSender(ChannelMember, frozen=True, kw_only=True):
    """The user that a command over NATS names as its sender."""

    def require(self, scope: str) -> None:
        if scope not in self.scopes:
            raise RoleError(
                "The role of requested_by does not allow this.",
                requested_by=self.username,
                role=self.role,
            )


class MemberSessions:
    def __init__(
        self, stores: PlaylistStores, roles: Roles, *, hours: float, public_read: bool
    ) -> None:
        self._roles = roles
        self.anonymous = ChannelMember(scopes=frozenset({READ} if public_read else ()))
        self._stored = SessionStore(
            stores.auth, SESSION, hours=hours, id_field="session_id", form=HASHED_KEY
        )
        self.auth = self._stored.auth(
            self._session, COOKIE, bearer=True, role_scopes=ROLE_SCOPES, anonymous=self.anonymous
        )

    def new(self) -> NewSession:
        return self._stored.new()

    async def put(
        self, tx: Transaction, new: NewSession, username: str, role: Role, client: ClientAddress
    ) -> None:
        """Store the new session of a user."""
        session = Session(
            username=username.strip(),
            role=role,
            created_at=SECONDS.format(new.created),
            expires_at=SECONDS.format(new.expires),
            ip=client.address,
        )
        await self._stored.put(new, session, tx)

    async def _session(self, id: str) -> StoredSession | None:
        try:
            session = await self._stored.get(id)
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

    async def end(self, member: ChannelMember, client: ClientAddress) -> tuple[str, str]:
        """End the session of a member, and return the header that deletes its cookie."""
        await self._stored.end(member.session_id)
        return COOKIE.delete(client)
