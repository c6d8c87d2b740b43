"""The frame that all pages of the library share: the signed-in user, errors and text forms."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import Struct

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError
from keyhouse.http import HtmlPage, Redirect, Route, Templates
from keyhouse.http.html import page_handler, page_location
from keyhouse.systems.audiobooks.accounts import Accounts
from keyhouse.systems.audiobooks.errors import NoConverterError
from keyhouse.systems.audiobooks.permissions import (
    DELETE,
    EDIT,
    MANAGE_SETTINGS,
    MANAGE_USERS,
    ORGANIZE,
    PLAYLISTS,
    SCAN,
    VIEW,
)

__all__ = ["AT", "LibraryFrame", "User", "at", "is_failure", "problem"]

AT: Final = "/audiobooks"
Handler = Callable[..., Awaitable[Any]]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_root: ContextVar[str] = ContextVar("root", default="")
"""The path that a proxy removes, for the pages of the current request."""


class User(Struct, frozen=True):
    """The signed-in user of a page, with its permissions."""

    id: str = ""
    name: str = ""
    can_delete: bool = False
    can_edit: bool = False
    can_organize: bool = False
    can_scan: bool = False
    can_manage_users: bool = False
    can_prune: bool = False
    can_make_playlists: bool = False


class LibraryFrame:
    """Makes the routes of pages and forms."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._templates = Templates(
            _TEMPLATES,
            length=length,
            clock=clock,
            size=size,
            day=day,
            hue=hue,
            device=device,
            problem=problem,
        )

    def page(self, path: str, handler: Handler, template: str, *, scope: str = VIEW) -> Route:
        """Return the route of a page. The handler returns the values of the template, or a
        response."""
        call = partial(self._html, handler, template, scope, path)
        return self._route("GET", path, page_handler(handler, call, HtmlPage))

    def form(self, path: str, handler: Handler, *, scope: str = VIEW) -> Route:
        """Return the route of a form. The handler returns a page or a redirect."""
        call = partial(self._html, handler, "", scope, path)
        return self._route("POST", path, page_handler(handler, call, HtmlPage))

    def public(self, method: str, path: str, handler: Handler) -> Route:
        """Return the route of a page or form for visitors who have not signed in."""

        async def call(root: str, arguments: dict[str, Any]) -> Any:
            return await _rendered(root, handler(**arguments))

        return self._route(method, path, page_handler(handler, call), scope=None)

    def _route(self, method: str, path: str, handler: Handler, scope: str | None = "") -> Route:
        return Route(
            method=method,
            path=path,
            handler=handler,
            scope=scope,
            listed=False,
            error_page=self._error_page,
        )

    def _error_page(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        """Return the page of a request that was rejected before its handler ran."""
        return self._templates.page(
            "error.html",
            page=error,
            me=User(),
            here=f"{root}{here}",
            root=root,
            at=partial(_rooted, root),
            status=error.status,
        )

    async def render(
        self, template: str, caller: Caller | None, page: Any, **options: Any
    ) -> HtmlPage:
        """Render a page for a user, or for a visitor who has not signed in."""
        root, here = _root.get(), options.pop("here", at())
        return await self._templates.page_in_steps(
            template,
            page=page,
            me=await self._user(caller),
            here=f"{root}{here}",
            root=root,
            at=partial(_rooted, root),
            **options,
        )

    async def _html(
        self,
        handler: Handler,
        template: str,
        scope: str,
        path: str,
        root: str,
        arguments: dict[str, Any],
    ) -> Any:
        return await _rendered(root, self._reply(handler, template, scope, path, arguments))

    async def _reply(
        self, handler: Handler, template: str, scope: str, path: str, arguments: dict[str, Any]
    ) -> HtmlPage | Redirect:
        here = page_location(AT[1:], path, arguments)
        caller: Caller | None = arguments["caller"]
        if caller is None:
            next = here if template else ""
            return Redirect(at("login", next=next))
        try:
            if scope:
                caller.require(scope)
            page = await handler(**arguments)
        except KeyhouseError as error:
            if is_failure(error):
                raise  # the app logs it, and shows it by `_error_page`
            return await self.render("error.html", caller, error, here=here, status=error.status)
        if isinstance(page, HtmlPage | Redirect):
            return page
        return await self.render(template, caller, page, here=here)

    async def _user(self, caller: Caller | None) -> User:
        if caller is None:
            return User()
        user = await self._accounts.user(caller.subject)
        can = caller.scopes
        return User(
            user.id,
            user.username,
            DELETE in can,
            EDIT in can,
            ORGANIZE in can,
            SCAN in can,
            MANAGE_USERS in can,
            MANAGE_SETTINGS in can,
            PLAYLISTS in can,
        )


async def _rendered(root: str, reply: Awaitable[Any]) -> Any:
    """Return a reply whose links and redirects are below the path that a proxy removes."""
    token = _root.set(root)
    try:
        found = await reply
    finally:
        _root.reset(token)
    return found.with_root(root) if isinstance(found, Redirect) else found


def _rooted(root: str, *segments: str, **query: Any) -> str:
    return root + at(*segments, **query)


def at(*segments: str, **query: Any) -> str:
    """Return the path of a page below the root; without segments, the first one."""
    path = f"{AT}/" + "/".join(quote(each, safe="") for each in segments)
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


_FIELDS_SHOWN: Final = (
    *("reason", "name", "field", "path", "file", "segments", "limit", "roles"),
    *("isbn10", "isbn13"),
)
"""Fields of errors that say more to people; others are keys and ids of the store."""


def is_failure(error: KeyhouseError) -> bool:
    """Return whether the service, and not its user, has to correct the error."""
    return error.status >= 500 and not isinstance(error, NoConverterError)


def problem(error: KeyhouseError) -> str:
    """Return the text of an error for its user."""
    if error.status >= 500:
        return error.sentence
    fields = [f"{name}: {error.fields[name]}" for name in _FIELDS_SHOWN if name in error.fields]
    return f"{error.sentence} ({', '.join(fields)})" if fields else error.sentence


def length(seconds: float | None) -> str:
    """Return a duration for people: `3 h 12 min`."""
    if seconds is None:
        return ""
    minutes = int(seconds / 60 + 0.5)  # as the player does
    if seconds < 60:
        return f"{round(seconds)} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def clock(seconds: float) -> str:
    """Return a moment of a book: `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size(value: int) -> str:
    amount = float(value)
    for unit in ("B", "kB", "MB"):
        if amount < 1_000:
            return f"{amount:.3g} {unit}"
        amount /= 1_000
    return f"{amount:.3g} GB"


def day(time: str | None) -> str:
    """Return the day and minute of an RFC 3339 time."""
    return "" if not time else time[:16].replace("T", " ")


def device(user_agent: str) -> str:
    """Return the browser and the system of a User-Agent, such as `Chrome on Android`."""
    browsers = {"Edg/": "Edge", "Firefox/": "Firefox", "Chrome/": "Chrome", "Safari/": "Safari"}
    systems = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")
    browser = next((name for sign, name in browsers.items() if sign in user_agent), "")
    system = next((name for name in systems if name in user_agent), "")
    known = " on ".join(each for each in (browser, system) if each)
    return known or user_agent.partition("/")[0] or "Unknown"


def hue(text: str) -> int:
    """Return a number from 0 to 11: the colour of a book that has no cover."""
    return sum(text.encode()) % 12
