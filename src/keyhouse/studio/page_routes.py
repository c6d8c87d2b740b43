"""Routes of pages: each handler becomes an HTML page and its `.json` twin.

A handler returns a Struct. The page renders it by a template, the twin returns it as JSON. Without a
session the page leads to the login and the twin is a 401. Errors of a page are pages.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints
from urllib.parse import urlencode

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError, ScopeError, TokenError
from keyhouse.http import HtmlPage, Redirect, Response, ResponseSpec, Route, Templates
from keyhouse.http.page_handlers import page_handler, page_location
from keyhouse.http.response import Responder
from keyhouse.studio import rendering
from keyhouse.studio.sessions import UNLOCKED
from keyhouse.studio.settings import ADMIN, NAME, READ, WRITE

Handler = Callable[..., Awaitable[Any]]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_PRIVATE: Final = (("Cache-Control", "private, no-store"),)


class PageRoutes:
    """Makes routes below `/studio`."""

    def __init__(self) -> None:
        self._templates = Templates(
            _TEMPLATES,
            q=rendering.quoted,
            studio=rendering.studio_path,
            table=rendering.record_path,
            number=rendering.number,
            size=rendering.size,
            moment=rendering.moment,
        )

    def page(
        self, path: str, handler: Handler, template: str, *, scope: str = READ, tag: str = ""
    ) -> list[Route]:
        """Return the routes of a page and its twin."""
        twin = f"{path}index.json" if path.endswith("/") else f"{path}.json"
        html = page_handler(handler, partial(self._html, handler, template, scope, path), HtmlPage)
        json = page_handler(handler, partial(_json, handler, scope), None)
        hints = get_type_hints(handler, include_extras=True)
        reply = ResponseSpec(type=hints["return"], about=f"The values of `{path}`.")
        return [
            Route(method="GET", path=path, handler=html, scope="", listed=False),
            Route(method="GET", path=twin, handler=json, scope="", replies={200: reply}, tag=tag),
        ]

    def form(self, path: str, handler: Handler, *, scope: str, locked: bool = True) -> Route:
        """Return the route of a form. The handler returns a page or a redirect. `locked`: the
        session must be unlocked."""
        adapted = page_handler(
            handler, partial(self._submit, handler, scope, locked, path), HtmlPage
        )
        return Route(method="POST", path=path, handler=adapted, scope="", listed=False)

    def render(self, template: str, caller: Caller | None, page: Any, **options: Any) -> HtmlPage:
        """Render a page for an operator."""
        here = options.pop("here", f"/{NAME}/")
        return self._templates.page(
            template, page=page, me=operator(caller), here=here, root="", **options
        )

    async def _html(
        self, handler: Handler, template: str, scope: str, path: str, arguments: dict[str, Any]
    ) -> Responder:
        here = page_location(NAME, path, arguments)
        caller: Caller | None = arguments["caller"]
        if caller is None:
            return Redirect(f"/{NAME}/login?{urlencode({'next': here})}")
        try:
            caller.require(scope)
            page = await handler(**arguments)
        except KeyhouseError as error:
            return self.error(error, caller, here)
        if isinstance(page, Responder):
            return page
        return self.render(template, caller, page, here=here)

    async def _submit(
        self, handler: Handler, scope: str, locked: bool, path: str, arguments: dict[str, Any]
    ) -> Any:
        caller: Caller | None = arguments["caller"]
        if caller is None:
            return Redirect(f"/{NAME}/login")
        try:
            caller.require(scope)
            if locked:
                require_unlocked(caller, scope)
            return await handler(**arguments)
        except KeyhouseError as error:
            return self.error(error, caller, page_location(NAME, path, arguments))

    def error(self, error: KeyhouseError, caller: Caller | None, here: str) -> HtmlPage:
        """Return the page of an error, with its status."""
        return self.render("error.html", caller, error, here=here, status=error.status)


def require_unlocked(caller: Caller, scope: str) -> None:
    """Raise ScopeError unless the caller has the scope and its session is unlocked."""
    caller.require(scope)
    if UNLOCKED not in caller.roles:
        raise ScopeError("Edits are locked in this session: unlock them first.")


class Operator(msgspec.Struct, frozen=True):
    """The operator of a page, with its permissions."""

    name: str = ""
    can_write: bool = False
    can_administer: bool = False
    is_unlocked: bool = False


def operator(caller: Caller | None) -> Operator:
    if caller is None:
        return Operator()
    return Operator(
        caller.tenant,
        WRITE in caller.scopes,
        ADMIN in caller.scopes,
        UNLOCKED in caller.roles and WRITE in caller.scopes,
    )


async def _json(handler: Handler, scope: str, arguments: dict[str, Any]) -> Any:
    caller: Caller | None = arguments["caller"]
    if caller is None:
        raise TokenError("There is no session: sign in, or send an operator's token.", missing=True)
    caller.require(scope)
    value = await handler(**arguments)
    return value if isinstance(value, Responder) else Response(value, headers=_PRIVATE)
