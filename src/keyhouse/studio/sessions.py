"""Sessions of operators: a row with a hashed secret, a cookie for `/studio` only, and a lock.

An operator signs in with an operator's token (`keyhouse token --operator`) or with the one-time
link that `keyhouse serve` prints. Edits are locked until the session is unlocked.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.auth import (
    AnyAuth,
    Authenticator,
    Caller,
    HeaderPairs,
    JwtAuth,
    SessionAuth,
    StoredSession,
    new_token,
    secret_hash,
)
from keyhouse.errors import ScopeError, TokenError
from keyhouse.http import ClientAddress, delete_cookie, set_cookie
from keyhouse.store import Store, Transaction
from keyhouse.studio.schema import SESSION, Session
from keyhouse.studio.settings import ADMIN, READ, SCOPES, WRITE

COOKIE: Final = "keyhouse_studio"
"""The name of the cookie at a default port; see `cookie_name`."""

_PORT: Final = re.compile(r":([0-9]{1,5})$")
_PORTS_MAX: Final = 16
SESSIONS_PAGE: Final = 100

UNLOCKED: Final = "unlocked"
"""The role of a caller whose edits are not locked."""

SIGNED_IN: Final = "signed in"
"""The role of a caller that has a session, not a token."""

_IMPLIED: Final = {ADMIN: {READ, WRITE, ADMIN}, WRITE: {READ, WRITE}, READ: {READ}}


class Sessions(Authenticator):
    """Identifies operators. A rejected session counts as none: pages then lead to the login.

    Without `tokens` only the link signs in.
    """

    def __init__(self, store: Store, tokens: JwtAuth | None, *, hours: float) -> None:
        self._store = store
        self._tokens = tokens
        self._lifetime_ms = round(hours * 3_600_000)
        self._clock = store.engine.clock
        self._link_hash = ""
        self._link_scopes = frozenset(SCOPES)
        self._auths: dict[str, Authenticator] = {}
        self.schemes = self._auth(COOKIE).schemes

    schemes: Mapping[str, Mapping[str, Any]] = {}

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        return await self._identify(headers, lambda auth: auth.authenticate(headers))

    async def recheck(self, headers: HeaderPairs) -> Caller:
        return await self._identify(headers, lambda auth: auth.recheck(headers))

    async def _identify(
        self, headers: HeaderPairs, identify: Callable[[Authenticator], Awaitable[Caller]]
    ) -> Caller:
        host = next((value for name, value in headers if name == b"host"), b"")
        try:
            return await identify(self._auth(cookie_name(host.decode("latin-1"))))
        except TokenError as error:
            raise TokenError(error.sentence, missing=True) from None

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    def _auth(self, cookie: str) -> Authenticator:
        """Return the authenticator of a port's cookie. There are few, but clients name the port."""
        found: Authenticator | None = self._auths.get(cookie)
        if found is None:
            session = SessionAuth(
                self._session,
                cookie=cookie,
                sliding_seconds=self._lifetime_ms / 1_000,
                renew=self._renew,
                clock=self._clock,
            )
            found = session
            if self._tokens is not None:
                found = AnyAuth(session, _Operators(self._tokens))
            if len(self._auths) >= _PORTS_MAX:
                self._auths.clear()
            self._auths[cookie] = found
        return found

    def new_link(self, scopes: Sequence[str] = SCOPES) -> str:
        """Return a code that signs in once, with these scopes. A new one replaces it."""
        code = secrets.token_urlsafe(24)
        self._link_scopes = frozenset(scopes)
        self._link_hash = secret_hash(code.encode())
        return code

    async def sign_in(
        self, credential: str, client: ClientAddress, host: str, path: str
    ) -> tuple[Session, tuple[str, str]]:
        """Return a new session and the header of its cookie, for the address that the client has
        used. Raises TokenError for a wrong token."""
        operator, scopes = await self._check(credential.strip())
        now = self._clock.now()
        made = new_token(self._store.ids.new())
        session = Session(
            id=made.id,
            operator=operator,
            scopes=sorted(scopes),
            secret_hash=made.secret_hash,
            created=now,
            expires=now + self._lifetime_ms,
        )
        await self._store.put(SESSION, session, ttl=self._seconds(session))
        name = cookie_name(host)
        return session, set_cookie(name, made.token, client, path=path, same_site="Strict")

    async def sign_out(
        self, caller: Caller, client: ClientAddress, host: str, path: str
    ) -> tuple[str, str]:
        if SIGNED_IN in caller.roles:
            await self._store.delete(SESSION, id=caller.subject)
        return delete_cookie(cookie_name(host), client, path=path)

    async def revoke(self, id: str) -> bool:
        """End a session of any operator; return whether it was there."""
        return await self._store.delete(SESSION, id=id)

    async def is_valid(self, caller: Caller) -> bool:
        """Return whether the session of a caller has not ended; a token has no session."""
        if SIGNED_IN not in caller.roles:
            return True
        session = await self._store.get(SESSION, id=caller.subject)
        return session is not None and session.expires > self._clock.now()

    async def lock(self, caller: Caller, *, is_unlocked: bool) -> Caller:
        """Lock or unlock the edits of the caller's session, and return the caller as it is then."""
        if SIGNED_IN not in caller.roles:
            raise ScopeError("A token has no session to unlock: sign in on the page.")
        if not await self._change(caller.subject, is_unlocked=is_unlocked):
            raise TokenError("The session has ended: sign in again.")
        roles = caller.roles | {UNLOCKED} if is_unlocked else caller.roles - {UNLOCKED}
        return msgspec.structs.replace(caller, roles=roles)

    async def page(self, cursor: str = "") -> tuple[list[Session], str]:
        """Return sessions, the newest first, and the cursor of the next page."""
        page = await self._store.page(
            SESSION, limit=SESSIONS_PAGE, cursor=cursor or None, reverse=True
        )
        return [entry.record for entry in page.entries], page.cursor or ""

    async def _check(self, credential: str) -> tuple[str, frozenset[str]]:
        hashed = secret_hash(credential.encode())
        if self._link_hash and hmac.compare_digest(hashed, self._link_hash):
            self._link_hash = ""
            return "operator", self._link_scopes
        if self._tokens is None:
            raise TokenError(
                "The link was used already, or is another one: start `keyhouse studio` again for a"
                " new one."
            )
        if "." not in credential:
            raise TokenError(
                "The link was used already, or this is not a token: make one with"
                " `keyhouse token --operator`."
            )
        header = b"Bearer " + credential.encode("ascii", "replace")
        caller = await self._tokens.authenticate([(b"authorization", header)])
        scopes = caller.scopes & set(SCOPES)
        if not scopes:
            raise ScopeError("The token has no scope of the Studio.", known=list(SCOPES))
        return caller.tenant, frozenset(scopes)

    async def _session(self, id: str) -> StoredSession | None:
        session = await self._store.get(SESSION, id=id)
        if session is None:
            return None
        roles = frozenset({SIGNED_IN, UNLOCKED} if session.is_unlocked else {SIGNED_IN})
        return StoredSession(
            caller=Caller(
                tenant=session.operator,
                subject=session.id,
                scopes=with_implied(session.scopes),
                roles=roles,
            ),
            secret_hash=session.secret_hash,
            expires=session.expires,
        )

    async def _renew(self, id: str, expires: int) -> None:
        await self._change(id, expires=expires)

    async def _change(self, id: str, **members: Any) -> bool:
        """Change a session in one transaction, so that a revoked one does not come back; return
        whether it was there."""

        async def work(tx: Transaction) -> bool:
            session = await tx.get(SESSION, id=id)
            if session is None:
                return False
            changed = msgspec.structs.replace(session, **members)
            await tx.put(SESSION, changed, ttl=self._seconds(changed))
            return True

        return await self._store.transact(work)

    def _seconds(self, session: Session) -> int:
        return max(1, (session.expires - self._clock.now()) // 1_000)


def cookie_name(host: str) -> str:
    """Return the name of the cookie at a host: with its port, because cookies are sent to all ports
    of a host, and two Studios would sign each other out."""
    port = _PORT.search(host)
    return COOKIE if port is None else f"{COOKIE}_{int(port[1])}"


class _Operators(Authenticator):
    """Bearer tokens of operators, for programs that read the `.json` twins."""

    def __init__(self, tokens: JwtAuth) -> None:
        self._tokens = tokens
        self.schemes = {}

    schemes: Mapping[str, Mapping[str, Any]] = {}

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        bearer = [pair for pair in headers if pair[0] == b"authorization"]
        caller = await self._tokens.authenticate(bearer)
        return msgspec.structs.replace(caller, scopes=with_implied(caller.scopes))


def with_implied(scopes: Any) -> frozenset[str]:
    """Return the scopes with those that they include."""
    return frozenset().union(*(_IMPLIED.get(scope, set()) for scope in scopes))
