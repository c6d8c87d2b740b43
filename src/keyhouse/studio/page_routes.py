"""Routes of pages: each handler becomes an HTML page and its `.json` twin.

A handler returns a Struct. The page renders it by a template, the twin returns it as JSON. Without
a session the page leads to the login and the twin is a 401. Errors of a page are pages.

A form is sent to the address of the page that shows it, so that what it returns, an error too, has
an address that can be loaded. Paths in values, redirects and `here` start with `/studio/`; the path
that the app is mounted below is put before them here and in the templates.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError, LimitError, ScopeError, TokenError
from keyhouse.http import HtmlPage, Redirect, Response, ResponseSpec, Route, Templates
from keyhouse.http.html import page_location
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.scheduling.work_turns import wait_for_turn
from keyhouse.service.pages import PageReply, Pages, page_parts, text
from keyhouse.studio import rendering
from keyhouse.studio.line_comparison import LineComparer
from keyhouse.studio.sessions import UNLOCKED
from keyhouse.studio.settings import ADMIN, NAME, READ, WRITE

Handler = Callable[..., Awaitable[Any]]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_RETRY_CHARS_MAX: Final = VALUE_BYTES_MAX + 16 * 1_024
_PRIVATE: Final = (("Cache-Control", "private, no-store"),)


class RetryForm(msgspec.Struct):
    """A form that was sent without a session: its inputs, to be sent again."""

    inputs: list[tuple[str, str]]


class PageRoutes:
    """Makes routes below `/studio`."""

    def __init__(self) -> None:
        self.pages = Pages(rendering.PATHS, self.rejected, render=self.render)
        self._rendering = asyncio.Lock()
        self._templates = Templates(
            _TEMPLATES,
            q=text.quoted,
            number=rendering.number,
            plural=text.counted,
            marked=rendering.marked,
            mask=rendering.MASK,
            size=text.size,
            moment=rendering.moment,
            tokens=rendering.tokens,
        )

    def page(
        self, path: str, handler: Handler, template: str, *, scope: str = READ, tag: str = ""
    ) -> list[Route]:
        """Return the routes of a page and its twin. A page that ends with a slash is also found
        without it."""
        twin = f"{path}index.json" if path.endswith("/") else f"{path}.json"
        values = get_type_hints(handler, include_extras=True)["return"]
        routes = [
            self.pages.user_route(
                "GET", path, handler, partial(_in_turn, handler), template=template, scope=scope
            ),
            Route(
                method="GET",
                path=twin,
                scope="",
                **page_parts(handler, partial(_json, handler, scope)),
                replies={200: ResponseSpec(type=values, about=f"The values of `{path}`.")},
                name=template.removesuffix(".html"),
                doc=handler.__doc__ or "",
                tag=tag,
            ),
        ]
        if path.endswith("/") and path != "/":
            parts = page_parts(handler, partial(_with_slash, path))
            routes.append(self.pages.route("GET", path[:-1], **parts, result=HtmlPage))
        return routes

    def form(
        self,
        path: str,
        handler: Handler,
        *,
        scope: str,
        locked: bool = True,
        back: str = "",
        has_text: bool = False,
    ) -> Route:
        """Return the route of a form. The handler returns a PageReply or a Redirect. `locked`: the
        session must be unlocked. `back` is the page that an error leads back to, if the form's own
        address is not a page. `has_text`: a form that is sent after the session has ended is kept,
        to be sent again."""
        return self.pages.user_route(
            "POST",
            path,
            handler,
            partial(_unlocked, handler, scope) if locked else partial(_in_turn, handler),
            scope=scope,
            back=back,
            signed_out=_retry if has_text else None,
        )

    async def render(self, *arguments: Any, **options: Any) -> HtmlPage:
        """Render a page in a thread: one with a long value would hold up other requests. One page
        at a time: the event loop would wait for the interpreter behind all threads that render."""
        async with self._rendering:
            return await asyncio.to_thread(self.render_now, *arguments, **options)

    def render_now(
        self, template: str, caller: Caller | None, page: Any, *, root: str, **options: Any
    ) -> HtmlPage:
        """Render a short page for an operator."""
        here = options.pop("here", f"/{NAME}/")
        return self._templates.page(
            template,
            page=page,
            me=operator(caller),
            here=here,
            root=root,
            compare=LineComparer().compare,
            studio=rendering.PATHS.below(root),
            table=lambda *place, **query: root + rendering.record_path(*place, **query),
            **options,
        )

    def rejected(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        """Return the page of a request that was rejected before its handler ran, or that failed on
        our side."""
        return self.render_now("error.html", None, error, root=root, status=error.status)


def _retry(arguments: dict[str, Any]) -> PageReply:
    """Return the form again. Anybody can send one, so it is no longer than that of a record."""
    inputs = _inputs(arguments["form"])
    if sum(len(name) + len(value) for name, value in inputs) > _RETRY_CHARS_MAX:
        raise LimitError(
            "The session has ended, and the form is too large to be shown again: sign in, in"
            " another tab, and send it from the page before.",
            limit=_RETRY_CHARS_MAX,
        )
    return PageReply("retry.html", RetryForm(inputs), 401)


def _inputs(form: msgspec.Struct) -> list[tuple[str, str]]:
    """Return the inputs of a form as text; those of a list one by one."""
    inputs: list[tuple[str, str]] = []
    for name, value in msgspec.to_builtins(form).items():
        values = value if isinstance(value, list) else [value]
        inputs += [
            (name, "true" if each is True else str(each))
            for each in values
            if each is not False and each is not None
        ]
    return inputs


async def _in_turn(handler: Handler, caller: Caller, arguments: dict[str, Any]) -> Any:
    """Call the handler of a page in its turn, as a long read has one: it takes a millisecond or
    more, and an operator may load many pages at once."""
    await wait_for_turn(f"{NAME}:{caller.tenant}")
    return await handler(**arguments)


async def _unlocked(handler: Handler, scope: str, caller: Caller, arguments: dict[str, Any]) -> Any:
    require_unlocked(caller, scope)
    return await _in_turn(handler, caller, arguments)


async def _with_slash(path: str, root: str, arguments: dict[str, Any]) -> Redirect:
    return Redirect(f"{root}{page_location(NAME, path, arguments)}")


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


async def _json(handler: Handler, scope: str, root: str, arguments: dict[str, Any]) -> Any:
    caller: Caller | None = arguments["caller"]
    if caller is None:
        raise TokenError("There is no session: sign in, or send an operator's token.", missing=True)
    caller.require(scope)
    value = await _in_turn(handler, caller, arguments)
    if isinstance(value, Redirect):
        return value.with_root(root)
    return Response(value, headers=_PRIVATE)
