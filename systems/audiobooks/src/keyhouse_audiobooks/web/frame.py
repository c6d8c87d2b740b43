"""The frame that all pages of the library share: the signed-in user, errors and text forms."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct, convert

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError, RecordError, UsageError
from keyhouse.http import HtmlPage, Redirect, Route, Templates
from keyhouse.service.pages import PagePaths, Pages, text
from keyhouse_audiobooks import SYSTEM
from keyhouse_audiobooks.accounts.permissions import (
    DELETE,
    EDIT,
    MANAGE_SETTINGS,
    MANAGE_USERS,
    ORGANIZE,
    PLAYLISTS,
    SCAN,
    VIEW,
)
from keyhouse_audiobooks.errors import NoConverterError
from keyhouse_audiobooks.libraries import Libraries
from keyhouse_audiobooks.library import Member

__all__ = [
    "PATHS",
    "ConfirmForm",
    "LibraryFrame",
    "NameForm",
    "User",
    "at",
    "checked",
    "is_failure",
    "problem",
]

PATHS: Final = PagePaths(SYSTEM.name)
at: Final = PATHS.path
Handler = Callable[..., Awaitable[Any]]
T = TypeVar("T")

_TEMPLATES: Final = Path(__file__).parent / "templates"


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


class NameForm(Struct):
    name: str


class ConfirmForm(Struct):
    confirmed: bool = False

    def require(self, purpose: str) -> None:
        if not self.confirmed:
            raise UsageError(f"Tick the box to {purpose}.")


class LibraryFrame:
    """Makes the routes of pages and forms."""

    def __init__(self, libraries: Libraries) -> None:
        self._library = libraries.of
        self.pages = Pages(PATHS, self.rejected, render=self.render, is_failure=is_failure)
        self._templates = Templates(
            _TEMPLATES,
            length=length,
            clock=text.clock_time,
            counted=text.counted,
            size=text.size,
            day=day,
            hue=hue,
            device=device,
            hours=text.hours,
            problem=problem,
        )

    def page(self, path: str, handler: Handler, template: str, *, scope: str = VIEW) -> Route:
        """Return the route of a page. The handler returns the values of the template, a PageReply
        or a Redirect."""
        return self.pages.user_route("GET", path, handler, template=template, scope=scope)

    def form(self, path: str, handler: Handler, *, scope: str = VIEW) -> Route:
        """Return the route of a form. The handler returns a PageReply or a Redirect."""
        show = partial(_in_session, handler)
        return self.pages.user_route("POST", path, handler, show, scope=scope, signed_out=_login)

    def rejected(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        """Return the page of a request that was rejected before its handler ran."""
        return self._templates.page(
            "error.html",
            page=error,
            me=User(),
            here=f"{root}{here}",
            root=root,
            at=PATHS.below(root),
            status=error.status,
        )

    async def render(
        self,
        template: str,
        caller: Caller | None,
        page: Any,
        *,
        root: str,
        here: str,
        **options: Any,
    ) -> HtmlPage:
        """Render a page for a user, or for a visitor who has not signed in."""
        return await self._templates.page_in_steps(
            template,
            page=page,
            me=await self._user(caller),
            here=f"{root}{here}",
            root=root,
            at=PATHS.below(root),
            **options,
        )

    async def _user(self, caller: Caller | None) -> User:
        if caller is None:
            return User()
        user = await self._library(caller).accounts.user(caller.subject)
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


async def _in_session(handler: Handler, caller: Member, arguments: dict[str, Any]) -> Any:
    """Call the handler of a form: it is for people, and some change accounts."""
    caller.require_session()
    return await handler(**arguments)


def _login(arguments: dict[str, Any]) -> Redirect:
    return PATHS.login()  # the address of a form is no page


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


def checked(kind: type[T], **given: Any) -> T:
    """Return a body of the API from the fields of a form. Raises RecordError if one is invalid."""
    try:
        return convert(given, kind)
    except ValueError as error:
        raise RecordError("A field of the form is not valid.", reason=str(error)) from None


def length(seconds: float | None) -> str:
    """Return a duration for people: `3 h 12 min`."""
    if seconds is None:
        return ""
    minutes = int(seconds / 60 + 0.5)  # as the player does
    if seconds < 60:
        return f"{round(seconds)} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


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
