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
from typing import Any, Final, NamedTuple, get_type_hints
from urllib.parse import urlencode

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import KeyhouseError, LimitError, ScopeError, TokenError
from keyhouse.http import HtmlPage, Redirect, Response, ResponseSpec, Route, Templates
from keyhouse.http.html import page_handler, page_location
from keyhouse.http.response import Responder
from keyhouse.limits import VALUE_BYTES_MAX
from keyhouse.store.reads.long_read import wait_for_turn
from keyhouse.studio import rendering
from keyhouse.studio.line_comparison import LineComparer
from keyhouse.studio.sessions import UNLOCKED
from keyhouse.studio.settings import ADMIN, NAME, READ, WRITE

Handler = Callable[..., Awaitable[Any]]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_RETRY_CHARS_MAX: Final = VALUE_BYTES_MAX + 16 * 1_024
_PRIVATE: Final = (("Cache-Control", "private, no-store"),)


class FormPage(msgspec.Struct):
    """A page as the answer to a form. `caller` replaces the caller, if the form has changed it."""

    template: str
    page: Any
    status: int = 200
    caller: Caller | None = None


class RetryForm(msgspec.Struct):
    """A form that was sent without a session: its inputs, to be sent again."""

    inputs: list[tuple[str, str]]


class PageRoutes:
    """Makes routes below `/studio`."""

    def __init__(self) -> None:
        self._rendering = asyncio.Lock()
        self._templates = Templates(
            _TEMPLATES,
            q=rendering.quoted,
            number=rendering.number,
            plural=rendering.plural,
            marked=rendering.marked,
            mask=rendering.MASK,
            size=rendering.size,
            moment=rendering.moment,
            tokens=rendering.tokens,
        )

    def page(
        self, path: str, handler: Handler, template: str, *, scope: str = READ, tag: str = ""
    ) -> list[Route]:
        """Return the routes of a page and its twin. A page that ends with a slash is also found
        without it."""
        twin = f"{path}index.json" if path.endswith("/") else f"{path}.json"
        json = page_handler(handler, partial(_json, handler, scope))
        hints = get_type_hints(handler, include_extras=True)
        reply = ResponseSpec(type=hints["return"], about=f"The values of `{path}`.")
        routes = [
            self._route("GET", path, handler, partial(self._html, handler, template, scope, path)),
            Route(method="GET", path=twin, handler=json, scope="", replies={200: reply}, tag=tag),
        ]
        if path.endswith("/") and path != "/":
            routes.append(self._route("GET", path[:-1], handler, partial(_with_slash, path)))
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
        """Return the route of a form. The handler returns a FormPage or a Redirect. `locked`: the
        session must be unlocked. `back` is the page that an error leads back to, if the form's own
        address is not a page. `has_text`: a form that is sent after the session has ended is kept,
        to be sent again."""
        options = _FormOptions(scope, locked, back or path, has_text)
        return self._route("POST", path, handler, partial(self._submit, handler, options))

    def _route(
        self, method: str, path: str, handler: Handler, call: Callable[[str, dict[str, Any]], Any]
    ) -> Route:
        return Route(
            method=method,
            path=path,
            handler=page_handler(handler, call, HtmlPage),
            scope="",
            listed=False,
            error_page=self.rejected,
        )

    def render(
        self, template: str, caller: Caller | None, page: Any, *, root: str, **options: Any
    ) -> HtmlPage:
        """Render a page for an operator."""
        here = options.pop("here", f"/{NAME}/")
        return self._templates.page(
            template,
            page=page,
            me=operator(caller),
            here=here,
            root=root,
            compare=LineComparer().compare,
            studio=partial(_rooted, root, rendering.studio_path),
            table=partial(_rooted, root, rendering.record_path),
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
    ) -> Responder:
        here = page_location(NAME, path, arguments)
        caller: Caller | None = arguments["caller"]
        if caller is None:
            return Redirect(f"{root}/{NAME}/login?{urlencode({'next': here})}")
        try:
            caller.require(scope)
            page = await _in_turn(caller, handler, arguments)
        except KeyhouseError as error:
            if error.status >= 500:
                raise  # the app logs it, and shows it by `rejected`
            return self._error(error, caller, root, here)
        if isinstance(page, Redirect):
            return page.with_root(root)
        return await self._rendered(template, caller, page, root=root, here=here)

    async def _submit(
        self, handler: Handler, options: "_FormOptions", root: str, arguments: dict[str, Any]
    ) -> Responder:
        here = page_location(NAME, options.back, arguments)
        caller: Caller | None = arguments["caller"]
        if caller is None:
            if options.has_text:
                page = _retry(arguments["form"])
                return await self._rendered(
                    "retry.html", None, page, root=root, here=here, status=401
                )
            return Redirect(f"{root}/{NAME}/login?{urlencode({'next': here})}")
        try:
            caller.require(options.scope)
            if options.locked:
                require_unlocked(caller, options.scope)
            answer = await _in_turn(caller, handler, arguments)
        except KeyhouseError as error:
            if error.status >= 500:
                raise  # the app logs it, and shows it by `rejected`
            return self._error(error, caller, root, here)
        if isinstance(answer, Redirect):
            return answer.with_root(root)
        caller, status = answer.caller or caller, answer.status
        return await self._rendered(
            answer.template, caller, answer.page, root=root, here=here, status=status
        )

    async def _rendered(self, *arguments: Any, **options: Any) -> HtmlPage:
        """Render a page in a thread: one with a long value would hold up other requests. One page
        at a time: the event loop would wait for the interpreter behind all threads that render."""
        async with self._rendering:
            return await asyncio.to_thread(self.render, *arguments, **options)

    def _error(self, error: KeyhouseError, caller: Caller, root: str, here: str) -> HtmlPage:
        return self.render("error.html", caller, error, root=root, here=here, status=error.status)

    def rejected(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        """Return the page of a request that was rejected before its handler ran, or that failed on
        our side."""
        return self.render("error.html", None, error, root=root, status=error.status)


class _FormOptions(NamedTuple):
    scope: str
    locked: bool
    back: str
    has_text: bool


def _retry(form: msgspec.Struct) -> RetryForm:
    """Return the form again. Anybody can send one, so it is no longer than that of a record."""
    inputs = _inputs(form)
    if sum(len(name) + len(value) for name, value in inputs) > _RETRY_CHARS_MAX:
        raise LimitError(
            "The session has ended, and the form is too large to be shown again: sign in, in"
            " another tab, and send it from the page before.",
            limit=_RETRY_CHARS_MAX,
        )
    return RetryForm(inputs)


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


def _rooted(root: str, path: Callable[..., str], *segments: str, **query: Any) -> str:
    return f"{root}{path(*segments, **query)}"


async def _in_turn(caller: Caller, handler: Handler, arguments: dict[str, Any]) -> Any:
    """Call the handler of a page in its turn, as a long read has one: it takes a millisecond or
    more, and an operator may load many pages at once."""
    await wait_for_turn(f"{NAME}:{caller.tenant}")
    return await handler(**arguments)


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
    value = await _in_turn(caller, handler, arguments)
    if isinstance(value, Redirect):
        return value.with_root(root)
    return Response(value, headers=_PRIVATE)
