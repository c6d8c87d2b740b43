"""Routes of pages: every outcome of a request is a page of the service, or leads to one.

    the handler                       the browser gets
    -------------------------------   --------------------------------------------------------------
    is for users, none signed in      the login, which leads back to the page (`next`)
    is for users with a scope         `error.html` with status 403, for the others
    returns values for a template     the page, in the frame of the user
    returns a PageReply               the page that it names, in the frame of the user
    returns a Redirect                the redirect, below the path that the app is mounted at
    raises an error of the user       `error.html` with its status, in the frame of the user
    raises a failure of the service   the app logs the error, and shows it by `rejected`

The route of a page takes the arguments of its handler, as data, and is also asked by visitors who
have not signed in. Paths are those of the service, `/<service>/…`, without the path that the app is
mounted at (`root`) until they are sent.
"""

import re
from collections.abc import Awaitable, Callable, Collection
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote, urlencode

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import DeclarationError, KeyhouseError
from keyhouse.http import HtmlPage, Redirect, Route, file_route
from keyhouse.http.html import page_location
from keyhouse.http.response import Responder
from keyhouse.service.pages.text import quoted

__all__ = ["PageCall", "PagePaths", "PageReply", "Pages", "Show", "page_parts"]

Show = Callable[[Any, dict[str, Any]], Awaitable[Any]]
"""Calls the handler of a page, for a caller and with the arguments of the handler."""


Render = Callable[..., Awaitable[HtmlPage]]
"""Renders a template for a caller: `render(template, caller, page, root=…, here=…, status=…)`."""

PageCall = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Responds to a request, from the root, which is the path that the app is mounted below, and the
arguments of a handler."""

Rejected = Callable[[KeyhouseError, str, str], HtmlPage | Redirect]
"""Makes the page of a request that was rejected before its handler ran, or that failed on our side,
from the error, the root and the path of the request."""


def is_server_error(error: KeyhouseError) -> bool:
    return error.status >= 500


class PageReply(msgspec.Struct, frozen=True):
    """A page as the result of a handler: a template and its values.

    `caller` replaces the caller, if the handler has changed it; `here` the path of the page.
    """

    template: str
    page: Any = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    caller: Any = None
    here: str = ""


class PagePaths:
    """The paths of a service's pages. `outside` are beginnings of paths, after `/<service>/`, that
    the login does not lead back to."""

    def __init__(self, service: str, *, outside: tuple[str, ...] = ()) -> None:
        self.service = service
        not_here = "".join(f"(?!{re.escape(each)})" for each in outside)
        self._local = re.compile(rf"/{re.escape(service)}/{not_here}[\x21-\x5b\x5d-\x7e]*")

    def local(self, path: str) -> str:
        """Return the path if it is that of a page of the service, else nothing. Browsers resolve
        dots, also encoded ones, and so leave it."""
        if not self._local.fullmatch(path):
            return ""
        segments = re.split(r"[?#]", path, maxsplit=1)[0].split("/")
        return "" if any(unquote(each) in (".", "..") for each in segments) else path

    def path(self, *segments: str, **query: Any) -> str:
        """Return the path of a page; without segments, the first one. Empty values of the query are
        left out. A trailing "" makes the path end with a slash."""
        path = "/".join([f"/{self.service}", *map(quoted, segments or ("",))])
        given = {name: value for name, value in query.items() if value not in (None, "", [])}
        return f"{path}?{urlencode(given, doseq=True)}" if given else path

    def below(self, root: str) -> Callable[..., str]:
        """Return `path` for links of a page, with the root in front."""
        return lambda *segments, **query: root + self.path(*segments, **query)

    def login(self, next: str = "") -> Redirect:
        """Lead to the login, and from there to a page of the service."""
        return Redirect(self.path("login", next=next))


def page_parts(handler: Callable[..., Awaitable[Any]], call: PageCall) -> dict[str, Any]:
    """Return the handler and the parameters of a route that runs `call` with the arguments of
    `handler`. One that takes a caller is also called without one."""
    hints = get_type_hints(handler, include_extras=True)
    types = {name: hints[name] for name in signature(handler).parameters}
    takes_root = "root" in types

    async def run(**arguments: Any) -> Any:
        root = arguments["root"] if takes_root else arguments.pop("root")
        return await call(root, arguments)

    if "caller" in types:
        types["caller"] = Caller | None
    return {"handler": run, "parameters": {**types, "root": str}}


class Pages:
    """Makes the routes of a service's pages. `render` renders each PageReply. `is_failure` tells
    whether the service, and not its user, has to correct an error."""

    def __init__(
        self,
        paths: PagePaths,
        rejected: Rejected,
        *,
        render: Render | None = None,
        is_failure: Callable[[KeyhouseError], bool] = is_server_error,
    ) -> None:
        self._paths = paths
        self._rejected = rejected
        self._render = render
        self._is_failure = is_failure

    def route(
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        *,
        scope: str | None = "",
        **options: Any,
    ) -> Route:
        """Return a route whose errors are pages."""
        return Route(
            method=method,
            path=path,
            handler=handler,
            scope=scope,
            listed=False,
            error_page=self._rejected,
            **options,
        )

    def user_route(
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        show: Show | None = None,
        *,
        template: str = "",
        scope: str = "",
        back: str = "",
        signed_out: Callable[[dict[str, Any]], Any] | None = None,
    ) -> Route:
        """Return the route of a page for users with a scope, with the arguments of `handler`. A
        caller without a tenant is a visitor who sees the pages that its scopes allow.

        `template` renders the value of a handler that returns no reply. `back` is the page that
        errors and the login lead back to, if it is another one. `signed_out` makes the page of a
        visitor from the arguments; without it, that is the login.
        """

        async def call(root: str, arguments: dict[str, Any]) -> Any:
            here = page_location(self._paths.service, back or path, arguments)
            caller: Caller | None = arguments["caller"]
            if caller is None or not (caller.tenant or scope in caller.scopes):
                page = signed_out(arguments) if signed_out else self._paths.login(here)
                return await self._sent(page, None, root, here)
            try:
                if scope:
                    caller.require(scope)
                reply = await (show(caller, arguments) if show else handler(**arguments))
            except KeyhouseError as error:
                if self._is_failure(error):
                    raise
                reply = PageReply("error.html", error, error.status)
            if template and not isinstance(reply, Responder | PageReply):
                reply = PageReply(template, reply)
            return await self._sent(reply, caller, root, here)

        return self.route(method, path, result=HtmlPage, **page_parts(handler, call))

    def visitor_route(
        self, method: str, path: str, handler: Callable[..., Awaitable[Any]]
    ) -> Route:
        """Return the route of a page for everybody, such as the login."""

        async def call(root: str, arguments: dict[str, Any]) -> Any:
            here = page_location(self._paths.service, path, arguments)
            return await self._sent(await handler(**arguments), None, root, here)

        parts = page_parts(handler, call)
        return self.route(method, path, scope=None, result=HtmlPage, **parts)

    async def _sent(self, reply: Any, caller: Caller | None, root: str, here: str) -> Any:
        if isinstance(reply, Redirect):
            return reply.with_root(root)
        if not isinstance(reply, PageReply):
            return reply
        if self._render is None:
            raise DeclarationError("A PageReply needs the `render` of its Pages.")
        return await self._render(
            reply.template,
            reply.caller or caller,
            reply.page,
            root=root,
            here=reply.here or here,
            status=reply.status,
            headers=reply.headers,
        )

    def files(self, folder: Path, *, but: Collection[str] = ()) -> list[Route]:
        """Return the routes of the files that the pages load."""
        files = (file for file in sorted(folder.iterdir()) if file.name not in but)
        return [file_route(f"/assets/{file.name}", file) for file in files]
