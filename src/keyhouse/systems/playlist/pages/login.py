"""Signing in: a name, then the code that the channel's robot sends to it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError
from keyhouse.http import (
    ClientAddress,
    HtmlPage,
    Redirect,
    Route,
    delete_cookie,
    retry_after,
    set_cookie,
)
from keyhouse.systems.playlist.address_blocks import AddressBlocks
from keyhouse.systems.playlist.limits import (
    BLOCK_HOURS_DEFAULT,
    BLOCK_HOURS_MAX,
    SESSION_SECONDS,
    USERNAME_CHARS_MAX,
)
from keyhouse.systems.playlist.messages import CodeHeaders, Username
from keyhouse.systems.playlist.names import checked_username
from keyhouse.systems.playlist.otp import OneTimeCodes
from keyhouse.systems.playlist.pages import text
from keyhouse.systems.playlist.pages.frame import HOME, LOGIN, Frame, local_path, sentence
from keyhouse.systems.playlist.routes.sign_in import request_cookie
from keyhouse.systems.playlist.sessions import COOKIE, ChannelMember, MemberSessions

__all__ = ["LoginPages"]


class SignInQuery(msgspec.Struct):
    next: str = ""


class CodeQuery(msgspec.Struct):
    username: str = ""
    next: str = ""


class UsernameForm(msgspec.Struct):
    username: Annotated[str, Meta(max_length=1_000)] = ""
    next: str = ""


class CodeForm(msgspec.Struct):
    username: Username
    code: Annotated[str, Meta(max_length=64)] = ""
    next: str = ""

    def __post_init__(self) -> None:
        self.username = checked_username(self.username)


class BlockForm(msgspec.Struct):
    hours: Annotated[int, Meta(ge=1, le=BLOCK_HOURS_MAX)] = BLOCK_HOURS_DEFAULT


class LoginState(msgspec.Struct):
    """The values of the login page. With a name, it asks for the code."""

    next: str
    username: str = ""
    asks_code: bool = False
    error: str = ""
    can_block: bool = False
    is_locked: bool = False
    block_hours: int = BLOCK_HOURS_DEFAULT


class LoginPages:
    def __init__(
        self,
        frame: Frame,
        codes: OneTimeCodes,
        blocks: AddressBlocks,
        sessions: MemberSessions,
    ) -> None:
        self._frame = frame
        self._codes = codes
        self._blocks = blocks
        self._sessions = sessions

    async def show(self, query: SignInQuery, root: str) -> HtmlPage:
        """The page that asks for the name."""
        return await self._page(LoginState(local_path(query.next)), root)

    async def request(
        self, form: UsernameForm, client: ClientAddress, headers: CodeHeaders, root: str
    ) -> HtmlPage | Redirect:
        """Send a code to a name."""
        state = LoginState(local_path(form.next), form.username.strip()[:USERNAME_CHARS_MAX])
        try:
            name = checked_username(msgspec.convert(form.username, Username))
        except ValueError:
            state.error = f"Enter your name in the channel, at most {USERNAME_CHARS_MAX} letters."
            return await self._page(state, root, 400)
        try:
            cookie = await self._codes.request(name, client, headers.user_agent, headers.cookie)
        except KeyhouseError as error:
            state.error = sentence(error)
            return await self._page(state, root, error.status, retry_after(error))
        given = {"username": name, "next": state.next}
        target = text.query(f"{root}{LOGIN}/code", given)
        return Redirect(target, headers=(request_cookie(cookie, client),))

    async def ask_code(self, query: CodeQuery, root: str) -> HtmlPage | Redirect:
        """The page that asks for the code."""
        next, name = local_path(query.next), query.username.strip()[:USERNAME_CHARS_MAX]
        if not name:
            return Redirect(f"{root}{LOGIN}")
        return await self._page(LoginState(next, name, True), root)

    async def verify(
        self, form: CodeForm, client: ClientAddress, headers: CodeHeaders, root: str
    ) -> HtmlPage | Redirect:
        """Sign in with a code."""
        state = LoginState(local_path(form.next), form.username.strip(), True)
        code = "".join(form.code.split())
        if not code:
            state.error = "Enter the code from the private message."
            return await self._page(state, root, 400)
        try:
            outcome = await self._codes.verify(form.username, code, client, headers.cookie)
        except KeyhouseError as error:
            state.error = sentence(error)
            return await self._page(state, root, error.status, retry_after(error))
        if outcome.status == "ok":
            cookie = set_cookie(COOKIE, outcome.token, client, max_age_seconds=SESSION_SECONDS)
            target = f"{root}{state.next or HOME}"
            return Redirect(target, headers=(cookie, outcome.device))
        if outcome.status == "invalid":
            left = text.counted(outcome.attempts_remaining, "attempt")
            state.error = f"This is not the code. You have {left} left."
        elif outcome.status == "locked":
            state.is_locked = True
            state.error = "Too many wrong codes. Request a new one."
        else:
            state.can_block = True
            state.error = "No code is waiting for this name: it has expired. Request a new one."
        return await self._page(state, root, 403)

    async def block(self, form: BlockForm, client: ClientAddress, root: str) -> HtmlPage:
        """Block one's own address, after codes that nobody requested."""
        until = await self._blocks.block_self(client, form.hours)
        return await self._frame.page("blocked.html", None, root, LOGIN, until=until)

    async def sign_out(
        self, caller: ChannelMember | None, client: ClientAddress, root: str
    ) -> Redirect:
        """End the session."""
        if caller is None:  # perhaps a page of another site, whose request has no cookie
            return Redirect(f"{root}{LOGIN}")
        await self._sessions.end(caller)
        return Redirect(f"{root}{LOGIN}", headers=(delete_cookie(COOKIE, client),))

    def routes(self) -> list[Route]:
        error = self._frame.error

        def route(method: str, path: str, handler: object) -> Route:
            return Route(
                method=method,
                path=path,
                handler=handler,  # type: ignore[arg-type]
                listed=False,
                error_page=error,
            )

        return [
            route("GET", "/login", self.show),
            route("POST", "/login", self.request),
            route("GET", "/login/code", self.ask_code),
            route("POST", "/login/code", self.verify),
            route("POST", "/login/block", self.block),
            self._frame.post("/logout", self.sign_out),
        ]

    async def _page(
        self,
        state: LoginState,
        root: str,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> HtmlPage:
        return await self._frame.page(
            "login.html", None, root, LOGIN, status=status, headers=headers, page=state
        )
