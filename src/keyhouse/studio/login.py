"""Signing in and out, and the lock of a session."""

from typing import Any

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError, RateError, TokenError
from keyhouse.http import ClientAddress, HtmlPage, Redirect, Route, retry_after
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.studio.journal import Journal
from keyhouse.studio.page_routes import PageRoutes
from keyhouse.studio.rendering import PATHS
from keyhouse.studio.schema import Session
from keyhouse.studio.sessions import Sessions
from keyhouse.studio.settings import ADMIN, NAME, READ, WRITE


class LoginQuery(msgspec.Struct, forbid_unknown_fields=True):
    next: str = ""
    link: str = ""


class LoginForm(msgspec.Struct, forbid_unknown_fields=True):
    token: str
    next: str = ""


class LockForm(msgspec.Struct, forbid_unknown_fields=True):
    unlocked: bool = False
    next: str = ""


class SessionLine(msgspec.Struct):
    id: str
    operator: str
    scopes: list[str]
    created: int
    expires: int
    is_unlocked: bool
    is_own: bool


class SessionList(msgspec.Struct):
    """`cursor` is that of the next page, or empty."""

    sessions: list[SessionLine]
    cursor: str


class SessionsQuery(msgspec.Struct, forbid_unknown_fields=True):
    cursor: str = ""


class HostHeader(msgspec.Struct):
    host: str = ""


class RevokeForm(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class LoginPage(msgspec.Struct):
    """`takes_tokens`: operators' tokens sign in, not only the link."""

    next: str
    link: str
    takes_tokens: bool
    error: str = ""


class Login:
    def __init__(
        self, pages: PageRoutes, sessions: Sessions, journal: Journal, guard: LoginGuard
    ) -> None:
        self._pages = pages
        self._sessions = sessions
        self._journal = journal
        self._guard = guard

    async def show(self, query: LoginQuery, root: str) -> HtmlPage:
        """The page to sign in."""
        page = LoginPage(PATHS.local(query.next), query.link, self._sessions.takes_tokens)
        return self._page(page, root)

    async def sign_in(
        self, form: LoginForm, headers: HostHeader, client: ClientAddress, root: str
    ) -> HtmlPage | Redirect:
        """Sign in with an operator's token, or with the code of a one-time link.

        A right one always signs in: it has 192 bits or more, so that there is nothing to guess.
        Wrong ones of an address are slowed down.
        """
        try:
            session, cookie = await self._sessions.sign_in(form.token, client, headers.host, root)
        except TokenError as error:
            try:
                await self._guard.check_address(client)
            except RateError as limited:
                return self._failed(form, root, limited)
            return self._failed(form, root, error)
        except KeyhouseError as error:
            if error.status >= 500:
                raise
            return self._failed(form, root, error)
        await self._journal.write(session.operator, "sign in", detail=", ".join(session.scopes))
        return Redirect(f"{root}{PATHS.local(form.next) or f'/{NAME}/'}", headers=(cookie,))

    async def sign_out(
        self, caller: Caller, headers: HostHeader, client: ClientAddress, root: str
    ) -> Redirect:
        """End the session."""
        cookie = await self._sessions.sign_out(caller, client, headers.host, root)
        return Redirect(f"/{NAME}/login", headers=(cookie,))

    async def lock(self, form: LockForm, caller: Caller) -> Redirect:
        """Lock or unlock the edits of this session."""
        await self.set_lock(caller, is_unlocked=form.unlocked)
        return Redirect(PATHS.local(form.next) or f"/{NAME}/")

    async def set_lock(self, caller: Caller, *, is_unlocked: bool) -> Caller:
        """Lock or unlock the edits of the caller's session, and return the caller as it is then."""
        caller.require(WRITE)
        changed = await self._sessions.lock(caller, is_unlocked=is_unlocked)
        await self._journal.write(caller.tenant, "unlock" if is_unlocked else "lock")
        return changed

    async def sessions(self, query: SessionsQuery, caller: Caller) -> SessionList:
        """List the sessions of all operators, the newest first."""
        sessions, cursor = await self._sessions.stored.page(query.cursor)
        return SessionList([_line(session, caller) for session in sessions], cursor)

    async def revoke(self, form: RevokeForm, caller: Caller) -> Redirect:
        """End a session of any operator."""
        if await self._sessions.stored.end(form.id):
            await self._journal.write(caller.tenant, "revoke session", detail=form.id)
        return Redirect(f"/{NAME}/sessions")

    def routes(self) -> list[Route]:
        form, route = self._pages.form, self._pages.pages.route
        return [
            route("GET", "/login", self.show, scope=None),
            route("POST", "/login", self.sign_in, scope=None),
            form("/logout", self.sign_out, scope=READ, locked=False, back="/"),
            form("/lock", self.lock, scope=WRITE, locked=False, back="/"),
            *self._pages.page("/sessions", self.sessions, "sessions.html", scope=ADMIN),
            form("/sessions", self.revoke, scope=ADMIN, locked=False),
        ]

    def _failed(self, form: LoginForm, root: str, error: KeyhouseError) -> HtmlPage:
        page = LoginPage(PATHS.local(form.next), "", self._sessions.takes_tokens, error.sentence)
        return self._page(page, root, status=error.status, headers=retry_after(error))

    def _page(self, page: LoginPage, root: str, **options: Any) -> HtmlPage:
        return self._pages.render_now("login.html", None, page, root=root, **options)


def _line(session: Session, caller: Caller) -> SessionLine:
    return SessionLine(
        session.id,
        session.operator,
        session.scopes,
        session.created,
        session.expires,
        session.is_unlocked,
        session.id == caller.subject,
    )
