"""Signing in and out, the first admin, and the account of the signed-in user."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http import ClientAddress, Redirect, Route, retry_after
from keyhouse.service.pages import PageReply
from keyhouse_audiobooks.accounts import messages
from keyhouse_audiobooks.accounts.accounts import COOKIE
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member
from keyhouse_audiobooks.listening.messages import Statistics
from keyhouse_audiobooks.messages import Id
from keyhouse_audiobooks.records import ApiKey, Session
from keyhouse_audiobooks.records import User as StoredUser
from keyhouse_audiobooks.web.frame import (
    PATHS,
    LibraryFrame,
    NameForm,
    at,
    checked,
    is_failure,
    problem,
)

__all__ = ["AccountPages"]


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
    """`remembered_hours` is the lifetime of the session of a user who stays signed in."""

    next: str = ""
    username: str = ""
    error: str = ""
    has_tenants: bool = False
    remembered_hours: float = 0


class EmailForm(Struct):
    email: str = ""


class PasswordForm(Struct):
    current_password: str
    new_password: str


class IdForm(Struct):
    id: Id


class AccountPage(Struct):
    """`new_key` is the secret of an API key that was just created, shown once."""

    user: StoredUser
    statistics: Statistics
    sessions: Sequence[Session]
    keys: Sequence[ApiKey]
    device: str
    new_key: str = ""
    message: str = ""


class AccountPages:
    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._library = libraries.of

    async def show_login(
        self, query: AfterLoginQuery, headers: messages.Agent
    ) -> PageReply | Redirect:
        """The page to sign in; before there is a user, the one to set up the library."""
        library = await self._libraries.named(headers.tenant)
        if not await library.accounts.has_users():
            return Redirect(at("setup"))
        return self._login_page(PATHS.local(query.next))

    async def log_in(
        self, form: SignInForm, client: ClientAddress, headers: messages.Agent, root: str
    ) -> PageReply | Redirect:
        """Sign in."""
        try:
            body = checked(
                messages.LoginBody,
                username=form.username,
                password=form.password,
                remember_me=form.remember_me,
            )
            name = form.tenant or headers.tenant
            signed_in = await self._libraries.sign_in(name, body, client, headers)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            return self._login_page(
                PATHS.local(form.next),
                form.username,
                error.sentence,
                status=error.status,
                headers=retry_after(error),
            )
        return Redirect(PATHS.local(form.next) or at(), headers=signed_in.cookies(root))

    def _login_page(
        self, next: str, username: str = "", error: str = "", **options: Any
    ) -> PageReply:
        hours, has_tenants = self._libraries.remembered_hours, self._libraries.has_tenants
        page = SignInPage(next, username, error, has_tenants, hours)
        return PageReply("login.html", page, **options)

    async def show_setup(self, headers: messages.Agent) -> PageReply | Redirect:
        """The page that creates the first admin."""
        library = await self._libraries.named(headers.tenant)
        if await library.accounts.has_users():
            return Redirect(at("login"))
        return PageReply("setup.html", SignInPage())

    async def set_up(
        self, form: SetupForm, client: ClientAddress, headers: messages.Agent, root: str
    ) -> PageReply | Redirect:
        """Create the first admin, and sign in."""
        library = await self._libraries.named(headers.tenant)
        try:
            body = checked(
                messages.SetupBody,
                username=form.username,
                password=form.password,
                email=form.email or None,
            )
            await library.accounts.set_up(body.username, body.password, body.email)
        except KeyhouseError as error:
            if is_failure(error):
                raise
            page = SignInPage(username=form.username, error=problem(error))
            return PageReply("setup.html", page, error.status)
        login = SignInForm(form.username, form.password, next=at("operations"))
        return await self.log_in(login, client, headers, root)

    async def log_out(self, caller: Member, client: ClientAddress, root: str) -> Redirect:
        """Sign out."""
        await self._library(caller).accounts.sign_out(caller)
        return Redirect(at("login"), headers=(COOKIE.delete(client, root),))

    async def account(self, caller: Member) -> AccountPage:
        """The account of the signed-in user: sessions, API keys, password."""
        return await self._account(caller)

    async def _account(self, caller: Member, **more: str) -> AccountPage:
        library = self._library(caller)
        return AccountPage(
            await library.accounts.user(caller.subject),
            await library.listener.of_user(caller.subject),
            await library.accounts.sessions.of(user_id=caller.subject),
            await library.accounts.api_keys.list(caller.subject),
            caller.device,
            **more,
        )

    async def set_email(self, form: EmailForm, caller: Member) -> PageReply:
        """Change the email."""
        body = checked(messages.ProfileBody, email=form.email or None)
        await self._library(caller).accounts.set_email(caller, body.email)
        return await self._changed(caller, message="The email is changed.")

    async def set_password(
        self, form: PasswordForm, caller: Member, client: ClientAddress
    ) -> PageReply:
        """Change the password; the other sessions end."""
        if form.new_password == form.current_password:
            raise UsageError("The new password is the current one: choose another.")
        body = checked(
            messages.PasswordBody,
            current_password=form.current_password,
            new_password=form.new_password,
        )
        await self._library(caller).accounts.change_password(
            caller, body.current_password, body.new_password, client
        )
        return await self._changed(
            caller, message="The password is changed; other sessions have ended."
        )

    async def end_session(self, form: IdForm, caller: Member) -> Redirect:
        """End a session of the signed-in user."""
        await self._library(caller).accounts.end_session(caller.subject, form.id)
        return Redirect(at("account"))

    async def create_key(self, form: NameForm, caller: Member) -> PageReply:
        """Create an API key, and show it once."""
        body = checked(messages.ApiKeyBody, name=form.name)
        keys = self._library(caller).accounts.api_keys
        _, token = await keys.create(caller.subject, body.name)
        return await self._changed(caller, new_key=token)

    async def delete_key(self, form: IdForm, caller: Member) -> Redirect:
        """Delete an API key."""
        await self._library(caller).accounts.api_keys.delete(caller.subject, form.id)
        return Redirect(at("account"))

    async def _changed(self, caller: Member, **more: str) -> PageReply:
        page = await self._account(caller, **more)
        return PageReply("account.html", page, here=at("account"))

    def routes(self, frame: LibraryFrame) -> list[Route]:
        return [
            frame.pages.visitor_route("GET", "/login", self.show_login),
            frame.pages.visitor_route("POST", "/login", self.log_in),
            frame.pages.visitor_route("GET", "/setup", self.show_setup),
            frame.pages.visitor_route("POST", "/setup", self.set_up),
            frame.form("/logout", self.log_out, scope=""),
            frame.page("/account", self.account, "account.html", scope=""),
            frame.form("/account/email", self.set_email, scope=""),
            frame.form("/account/password", self.set_password, scope=""),
            frame.form("/account/sessions", self.end_session, scope=""),
            frame.form("/account/keys", self.create_key, scope=""),
            frame.form("/account/keys/delete", self.delete_key, scope=""),
        ]
