"""Signing in: a name, then the code that the channel's robot sends to it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from keyhouse.errors import KeyhouseError
from keyhouse.http import ClientAddress, Redirect, Route, retry_after
from keyhouse.service.pages import PageReply
from keyhouse.service.pages.text import counted
from keyhouse_playlist.accounts.address_blocks import AddressBlocks
from keyhouse_playlist.accounts.messages import CodeHeaders
from keyhouse_playlist.accounts.otp import OneTimeCodes
from keyhouse_playlist.accounts.sessions import ChannelMember, MemberSessions
from keyhouse_playlist.limits import BLOCK_HOURS_DEFAULT, BLOCK_HOURS_MAX, USERNAME_CHARS_MAX
from keyhouse_playlist.messages import Username
from keyhouse_playlist.names import checked_username
from keyhouse_playlist.web.frame import PATHS, Frame, sentence

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

    async def show(self, query: SignInQuery) -> PageReply:
        """The page that asks for the name."""
        return _page(LoginState(PATHS.local(query.next)))

    async def request(
        self, form: UsernameForm, client: ClientAddress, headers: CodeHeaders
    ) -> PageReply | Redirect:
        """Send a code to a name."""
        state = LoginState(PATHS.local(form.next), form.username.strip()[:USERNAME_CHARS_MAX])
        try:
            name = checked_username(msgspec.convert(form.username, Username))
        except ValueError:
            state.error = f"Enter your name in the channel, at most {USERNAME_CHARS_MAX} letters."
            return _page(state, 400)
        try:
            cookie = await self._codes.request(name, client, headers.user_agent, headers.cookie)
        except KeyhouseError as error:
            state.error = sentence(error)
            return _page(state, error.status, retry_after(error))
        target = PATHS.path("login", "code", username=name, next=state.next)
        return Redirect(target, headers=(cookie,))

    async def ask_code(self, query: CodeQuery) -> PageReply | Redirect:
        """The page that asks for the code."""
        next, name = PATHS.local(query.next), query.username.strip()[:USERNAME_CHARS_MAX]
        if not name:
            return PATHS.login()
        return _page(LoginState(next, name, True))

    async def verify(
        self, form: CodeForm, client: ClientAddress, headers: CodeHeaders
    ) -> PageReply | Redirect:
        """Sign in with a code."""
        state = LoginState(PATHS.local(form.next), form.username.strip(), True)
        code = "".join(form.code.split())
        if not code:
            state.error = "Enter the code from the private message."
            return _page(state, 400)
        try:
            outcome = await self._codes.verify(form.username, code, client, headers.cookie)
        except KeyhouseError as error:
            state.error = sentence(error)
            return _page(state, error.status, retry_after(error))
        if outcome.status == "ok":
            return Redirect(state.next or PATHS.path(), headers=outcome.cookies)
        if outcome.status == "invalid":
            left = counted(outcome.attempts_remaining, "attempt")
            state.error = f"This is not the code. You have {left} left."
        elif outcome.status == "locked":
            state.is_locked = True
            state.error = "Too many wrong codes. Request a new one."
        else:
            state.can_block = True
            state.error = "No code is waiting for this name: it has expired. Request a new one."
        return _page(state, 403)

    async def block(self, form: BlockForm, client: ClientAddress) -> PageReply:
        """Block one's own address, after codes that nobody requested."""
        until = await self._blocks.block_self(client, form.hours)
        return PageReply("blocked.html", until)

    async def sign_out(self, caller: ChannelMember, client: ClientAddress) -> Redirect:
        """End the session."""
        cookie = await self._sessions.end(caller, client)
        return Redirect(PATHS.path("login"), headers=(cookie,))

    def routes(self) -> list[Route]:
        route = self._frame.pages.visitor_route
        return [
            route("GET", "/login", self.show),
            route("POST", "/login", self.request),
            route("GET", "/login/code", self.ask_code),
            route("POST", "/login/code", self.verify),
            route("POST", "/login/block", self.block),
            self._frame.form("/logout", self.sign_out, back="/", scope=""),
        ]


def _page(
    state: LoginState, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> PageReply:
    return PageReply("login.html", state, status, headers)
