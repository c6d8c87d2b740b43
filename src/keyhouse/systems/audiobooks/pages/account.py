"""Signing in and out, the first admin, and the account of the signed-in user."""

import re
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, convert

from keyhouse.errors import KeyhouseError, RecordError, UsageError
from keyhouse.http import ClientAddress, HtmlPage, Redirect, Response, Route, retry_after
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.accounts import Accounts
from keyhouse.systems.audiobooks.library import Member
from keyhouse.systems.audiobooks.listening import Listener, Statistics
from keyhouse.systems.audiobooks.pages.frame import AT, LibraryFrame, at, is_failure, problem
from keyhouse.systems.audiobooks.records import ApiKey, Session
from keyhouse.systems.audiobooks.records import User as StoredUser
from keyhouse.systems.audiobooks.routes.accounts import AccountHandlers

__all__ = ["AccountPages", "SignInForm", "checked"]

_HERE: Final = re.compile(rf"{AT}/[\x21-\x5b\x5d-\x7e]*")
Json = dict[str, Any]


class AfterLoginQuery(Struct):
    next: str = ""


class SignInForm(Struct):
    """`tenant` is the library to sign in to, where there are several."""

    username: str
    password: str
    remember_me: bool = False
    next: str = ""
    tenant: str | None = None


class SetupForm(Struct):
    username: str
    password: str
    email: str = ""


class SignInPage(Struct):
    next: str = ""
    username: str = ""
    error: str = ""
    has_tenants: bool = False


class EmailForm(Struct):
    email: str = ""


class PasswordForm(Struct):
    current_password: str
    new_password: str


class IdForm(Struct):
    id: messages.Id


class KeyForm(Struct):
    name: str


class AccountPage(Struct):
    """`new_key` is the secret of an API key that was just created, shown once."""

    user: StoredUser
    statistics: Statistics
    sessions: Sequence[Session]
    keys: Sequence[ApiKey]
    device: str
    new_key: str = ""
    message: str = ""


def checked(kind: type[Any], **given: Any) -> Any:
    """Return a body of the API from the fields of a form. Raises RecordError if one is invalid."""
    try:
        return convert(given, kind)
    except ValueError as error:
        raise RecordError("A field of the form is not valid.", reason=str(error)) from None


class AccountPages:
    def __init__(self, frame: LibraryFrame, accounts: Accounts, listener: Listener) -> None:
        self._frame = frame
        self._accounts = accounts
        self._has_tenants = accounts.library.has_tenants
        self._handlers = AccountHandlers(accounts)
        self._listener = listener

    async def show_login(self, query: AfterLoginQuery) -> HtmlPage | Redirect:
        """The page to sign in; before there is a user, the one to set up the library."""
        if not await self._accounts.has_users():
            return Redirect(at("setup"))
        page = SignInPage(_local(query.next), has_tenants=self._has_tenants)
        return await self._frame.render("login.html", None, page)

    async def log_in(
        self, form: SignInForm, client: ClientAddress, headers: messages.Agent, root: str
    ) -> HtmlPage | Redirect:
        """Sign in."""
        try:
            body = checked(
                messages.LoginBody,
                username=form.username,
                password=form.password,
                remember_me=form.remember_me,
            )
            reply = await self._handlers.login(body, client, headers, root)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            next, username = _local(form.next), form.username
            page = SignInPage(next, username, error.sentence, self._has_tenants)
            return await self._frame.render(
                "login.html", None, page, status=error.status, headers=retry_after(error)
            )
        return Redirect(_local(form.next) or at(), headers=_cookies(reply))

    async def show_setup(self) -> HtmlPage | Redirect:
        """The page that creates the first admin."""
        if await self._accounts.has_users():
            return Redirect(at("login"))
        return await self._frame.render("setup.html", None, SignInPage())

    async def set_up(
        self, form: SetupForm, client: ClientAddress, headers: messages.Agent, root: str
    ) -> HtmlPage | Redirect:
        """Create the first admin, and sign in."""
        try:
            body = checked(
                messages.SetupBody,
                username=form.username,
                password=form.password,
                email=form.email or None,
            )
            await self._handlers.set_up(body)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = SignInPage(username=form.username, error=problem(error))
            return await self._frame.render("setup.html", None, page, status=error.status)
        login = SignInForm(form.username, form.password, next=at("operations"))
        return await self.log_in(login, client, headers, root)

    async def log_out(self, caller: Member, client: ClientAddress, root: str) -> Redirect:
        """Sign out."""
        reply = await self._handlers.logout(caller, client, root)
        return Redirect(at("login"), headers=_cookies(reply))

    async def account(self, caller: Member) -> AccountPage:
        """The account of the signed-in user: sessions, API keys, password."""
        return await self._account(caller)

    async def _account(self, caller: Member, **more: str) -> AccountPage:
        return AccountPage(
            await self._accounts.user(caller.subject),
            await self._listener.of_user(caller.subject),
            await self._accounts.sessions(caller.subject),
            await self._accounts.api_keys.list(caller.subject),
            caller.device,
            **more,
        )

    async def set_email(self, form: EmailForm, caller: Member) -> Any:
        """Change the email."""
        body = checked(messages.ProfileBody, email=form.email or None)
        await self._handlers.change_me(body, caller)
        return await self._changed(caller, message="The email is changed.")

    async def set_password(self, form: PasswordForm, caller: Member, client: ClientAddress) -> Any:
        """Change the password; the other sessions end."""
        if form.new_password == form.current_password:
            raise UsageError("The new password is the current one: choose another.")
        body = checked(
            messages.PasswordBody,
            current_password=form.current_password,
            new_password=form.new_password,
        )
        await self._handlers.change_password(body, caller, client)
        return await self._changed(
            caller, message="The password is changed; other sessions have ended."
        )

    async def end_session(self, form: IdForm, caller: Member) -> Redirect:
        """End a session of the signed-in user."""
        await self._accounts.end_session(caller.subject, form.id)
        return Redirect(at("account"))

    async def create_key(self, form: KeyForm, caller: Member) -> Any:
        """Create an API key, and show it once."""
        body = checked(messages.ApiKeyBody, name=form.name)
        _, token = await self._accounts.api_keys.create(caller, body.name)
        return await self._changed(caller, new_key=token)

    async def delete_key(self, form: IdForm, caller: Member) -> Redirect:
        """Delete an API key."""
        await self._accounts.api_keys.delete(caller.subject, form.id)
        return Redirect(at("account"))

    async def _changed(self, caller: Member, **more: str) -> HtmlPage:
        page = await self._account(caller, **more)
        return await self._frame.render("account.html", caller, page, here=at("account"))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.public("GET", "/login", self.show_login),
            frame.public("POST", "/login", self.log_in),
            frame.public("GET", "/setup", self.show_setup),
            frame.public("POST", "/setup", self.set_up),
            frame.form("/logout", self.log_out, scope=""),
            frame.page("/account", self.account, "account.html", scope=""),
            frame.form("/account/email", self.set_email, scope=""),
            frame.form("/account/password", self.set_password, scope=""),
            frame.form("/account/sessions", self.end_session, scope=""),
            frame.form("/account/keys", self.create_key, scope=""),
            frame.form("/account/keys/delete", self.delete_key, scope=""),
        ]


def _local(path: str) -> str:
    """Return the path if it is one of the library, else nothing."""
    return path if _HERE.fullmatch(path) else ""


def _cookies(reply: Response[Any]) -> tuple[tuple[str, str], ...]:
    return tuple(reply.headers or ())
