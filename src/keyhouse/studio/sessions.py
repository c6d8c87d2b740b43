"""Sessions of operators: a row with a hashed secret, a cookie for `/studio` only, and a lock.

An operator signs in with an operator's token (`keyhouse token --operator`) or with the one-time
link that `keyhouse serve` prints. Edits are locked until the session is unlocked.
"""

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
    StoredSession,
    secret_hash,
)
from keyhouse.errors import ScopeError, TokenError
from keyhouse.http import ClientAddress
from keyhouse.service.accounts.sessions import SessionCookie, SessionStore
from keyhouse.store import Store, Transaction
from keyhouse.studio.schema import LINK, SESSION, Session, SignInLink
from keyhouse.studio.settings import ADMIN, NAME, READ, SCOPES, WRITE

COOKIE: Final = "keyhouse_studio"
"""The name of the cookie at a default port; see `cookie_of`."""

_PORT: Final = re.compile(r":([0-9]{1,5})$")
_PORTS_MAX: Final = 16

LINK_SECONDS: Final = 86_400.0
"""Lifetime of a link that nobody has used."""

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
        self.stored = SessionStore(store, SESSION, hours=hours, sliding="expires")
        self._tokens = tokens
        self._auths: dict[str, Authenticator] = {}
        self.schemes = self._auth("").schemes

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
            return await identify(self._auth(host.decode("latin-1")))
        except TokenError as error:
            raise TokenError(error.sentence, missing=True) from None

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    def _auth(self, host: str) -> Authenticator:
        """Return the authenticator of a port's cookie. There are few, but clients name the port."""
        cookie = cookie_of(host)
        auth = self._auths.get(cookie.name)
        if auth is None:
            auth = self.stored.auth(self._session, cookie)
            if self._tokens is not None:
                auth = AnyAuth(auth, _Operators(self._tokens))
            if len(self._auths) >= _PORTS_MAX:
                self._auths.clear()
            self._auths[cookie.name] = auth
        return auth

    async def new_link(self, scopes: Sequence[str] = SCOPES) -> str:
        """Return a code that signs in once, within a day, with these scopes."""
        code = secrets.token_urlsafe(24)
        link = SignInLink(code_hash=secret_hash(code.encode()), scopes=sorted(scopes))
        await self._store.put(LINK, link, ttl=LINK_SECONDS)
        return code

    async def sign_in(
        self, credential: str, client: ClientAddress, host: str, root: str
    ) -> tuple[Session, tuple[str, str]]:
        """Return a new session and the header of its cookie, for the address that the client has
        used. Raises TokenError for a wrong token."""
        operator, scopes = await self._check(credential.strip())
        new = self.stored.new()
        session = Session(
            id=new.id,
            operator=operator,
            scopes=sorted(scopes),
            secret_hash=new.secret_hash,
            created=new.created,
            expires=new.expires,
        )
        await self.stored.put(new, session)
        return session, cookie_of(host).set(new, client, root)

    async def sign_out(
        self, caller: Caller, client: ClientAddress, host: str, root: str
    ) -> tuple[str, str]:
        if SIGNED_IN in caller.roles:
            await self.stored.end(caller.subject)
        return cookie_of(host).delete(client, root)

    async def is_valid(self, caller: Caller) -> bool:
        """Return whether the session of a caller has not ended; a token has no session."""
        return SIGNED_IN not in caller.roles or await self.stored.get(caller.subject) is not None

    async def lock(self, caller: Caller, *, is_unlocked: bool) -> Caller:
        """Lock or unlock the edits of the caller's session, and return the caller as it is then."""
        if SIGNED_IN not in caller.roles:
            raise ScopeError("A token has no session to unlock: sign in on the page.")
        if not await self.stored.change(caller.subject, is_unlocked=is_unlocked):
            raise TokenError("The session has ended: sign in again.")
        roles = caller.roles | {UNLOCKED} if is_unlocked else caller.roles - {UNLOCKED}
        return msgspec.structs.replace(caller, roles=roles)

    async def _check(self, credential: str) -> tuple[str, frozenset[str]]:
        hashed = secret_hash(credential.encode())

        async def use(tx: Transaction) -> SignInLink | None:
            link = await tx.get(LINK, code_hash=hashed)
            if link is not None:
                await tx.delete(LINK, code_hash=hashed)
            return link

        if await self._store.get(LINK, code_hash=hashed) is not None:
            link = await self._store.transact(use)
            if link is not None:
                return "operator", frozenset(link.scopes)
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
            raise ScopeError("The token has no scope of the Studio.", needed=list(SCOPES))
        return caller.tenant, frozenset(scopes)

    async def _session(self, id: str) -> StoredSession | None:
        session = await self.stored.get(id)
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


def cookie_of(host: str) -> SessionCookie:
    """Return the cookie at a host: its name has the port, because cookies are sent to all ports of
    a host, and two Studios would sign each other out."""
    port = _PORT.search(host)
    name = COOKIE if port is None else f"{COOKIE}_{int(port[1])}"
    return SessionCookie(name=name, path=f"/{NAME}", same_site="Strict")


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
