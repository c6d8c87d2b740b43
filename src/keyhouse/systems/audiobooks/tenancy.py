"""Several libraries in one service: each is a tenant, a space whose keys begin with
`tenant:<name>:`.

A library is opened when it is first needed, or at start, and stays open. Requests of a member go to
the library of the token, whose id begins with its name; the others name theirs in the body or in
`X-Tenant`. The first library is that of the settings; its admins add the others.
"""

import asyncio
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, get_type_hints

import structlog
from msgspec.structs import replace

from keyhouse.auth import StoredSession
from keyhouse.engine import Engine, Span
from keyhouse.errors import AccessError, KeyhouseError, NotFoundError, UsageError
from keyhouse.http import Response, Route
from keyhouse.schema import Schema
from keyhouse.store import Store
from keyhouse.systems.audiobooks import messages
from keyhouse.systems.audiobooks.assembly import LibraryParts
from keyhouse.systems.audiobooks.library import Data, Items, Member, data, items
from keyhouse.systems.audiobooks.pages.account import SignInForm
from keyhouse.systems.audiobooks.permissions import MANAGE_SETTINGS
from keyhouse.systems.audiobooks.routes.table import API, api
from keyhouse.systems.audiobooks.schema import SCHEMAS, TENANT_PREFIX

__all__ = ["Tenancy", "check_prefix", "own_roots"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ULID_CHARS: Final = 26
_OPEN: Final = {f"{API}/auth/{each}" for each in ("status", "setup", "login")} | {
    "/login",
    "/setup",
}
"""Paths of requests that have no caller, and concern one library."""

_log = structlog.get_logger("keyhouse.audiobooks")
Json = dict[str, Any]


class Tenancy:
    """`open_library` opens a library by its name, creating it if it is new."""

    def __init__(
        self,
        engine: Engine,
        schema: Schema,
        first: str,
        open_library: Callable[[str], Awaitable[LibraryParts]],
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._first = first
        self._open_library = open_library
        self._parts: dict[str, LibraryParts] = {}
        self._lock = asyncio.Lock()
        self._opened = asyncio.Event()

    async def names(self) -> list[str]:
        found = [name async for name in self._engine.spaces() if await self._exists(name)]
        return [self._first, *sorted(name for name in found if name != self._first)]

    async def _exists(self, name: str) -> bool:
        if name == self._first:
            return True
        if not _NAME.fullmatch(name):
            return False
        return await _has_rows(Store(self._schema, self._engine, name), "")

    async def find(self, name: str) -> LibraryParts | None:
        """Return an open library; None if there is none of this name."""
        parts = self._parts.get(name)
        if parts is None and await self._exists(name):
            parts = await self.add(name)
        return parts

    async def add(self, name: str) -> LibraryParts:
        """Open a library, which is new or exists."""
        async with self._lock:
            if name not in self._parts:
                self._parts[name] = await self._open_library(name)
                self._opened.set()
        return self._parts[name]

    async def session(self, id: str) -> StoredSession | None:
        """Return the session or API key of a token: `<library>-<ULID>`."""
        name, mark, ulid = id[: -_ULID_CHARS - 1], id[-_ULID_CHARS - 1 : -_ULID_CHARS], id[-26:]
        parts = await self.find(name) if mark == "-" else None
        return None if parts is None else await parts.session(ulid)

    async def run(self) -> None:
        """Run the tasks of all libraries."""
        for name in await self.names():
            try:
                await self.find(name)
            except KeyhouseError as error:  # the others are served
                _log.error("library not opened", library=name, error=str(error))
        started: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                self._opened.clear()
                for name in self._parts.keys() - started:
                    started.add(name)
                    for task in self._parts[name].tasks:
                        group.create_task(_ran(task))
                await self._opened.wait()

    # Routes

    async def parts(self) -> LibraryParts:
        """Return the routes of a library, each for the library of its request, and those of the
        libraries themselves."""
        first = await self.add(self._first)
        routes = {name: self._routed(name, each) for name, each in first.routes.items()}
        routes["tenants"] = api.get("/tenants", self._list, scope=MANAGE_SETTINGS)
        routes["create_tenant"] = api.post(
            "/tenants", self._create, scope=MANAGE_SETTINGS, replies={200: Any, 201: Any}
        )
        return LibraryParts(routes, [self.run], self.session)

    async def _list(self, caller: Member) -> Data[Items[Json]]:
        """List the libraries. Only for admins of the first one."""
        self._require_first(caller)
        return items([{"name": name} for name in await self.names()])

    async def _create(self, body: messages.TenantBody, caller: Member) -> Response[Data[Json]]:
        """Create a library; its first admin is then created by `auth/setup`."""
        self._require_first(caller)
        is_new = not await self._exists(body.name)
        await self.add(body.name)
        return Response(data({"name": body.name}), 201 if is_new else 200)

    def _require_first(self, caller: Member) -> None:
        if caller.tenant != self._first:
            raise AccessError("Only admins of the first library manage libraries.")

    def _routed(self, name: str, route: Route) -> Route:
        if route.scope is None and route.path not in _OPEN:
            return route  # a file
        hints = get_type_hints(route.handler, include_extras=True)
        call = self._anonymous_call(name, route) if route.scope is None else self._call(name, route)
        if route.scope is None:
            hints["headers"] = messages.TenantAgent
        else:
            hints.setdefault("caller", Member)
        names = [each for each in hints if each != "return"]
        call.__annotations__ = hints
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in names]
        )
        call.__doc__ = route.handler.__doc__
        return replace(route, handler=call)

    def _call(self, name: str, route: Route) -> Callable[..., Awaitable[Any]]:
        takes_caller = "caller" in inspect.signature(route.handler).parameters

        async def call(**arguments: Any) -> Any:
            caller = arguments["caller"]
            parts = await self._of(self._first if caller is None else caller.tenant)
            if not takes_caller:
                del arguments["caller"]
            return await parts.routes[name].handler(**arguments)

        return call

    def _anonymous_call(self, name: str, route: Route) -> Callable[..., Awaitable[Any]]:
        takes_headers = "headers" in inspect.signature(route.handler).parameters

        async def call(**arguments: Any) -> Any:
            headers: messages.TenantAgent = arguments.pop("headers")
            kind = "form" if "form" in arguments else "body"
            body = arguments.get(kind)
            library = getattr(body, "tenant", None) or headers.tenant or self._first
            parts = await self.find(library)
            if isinstance(body, messages.LoginBody | SignInForm):
                parts, arguments[kind] = await self._login(parts, body)
            if parts is None:
                raise NotFoundError("There is no such library.", tenant=library)
            if takes_headers:
                arguments["headers"] = messages.Agent(headers.user_agent, headers.cookie)
            return await parts.routes[name].handler(**arguments)

        return call

    async def _login(
        self, parts: LibraryParts | None, body: messages.LoginBody | SignInForm
    ) -> tuple[LibraryParts, messages.LoginBody | SignInForm]:
        """Return where a login is tried. An absent library is like an unknown user."""
        if parts is not None:
            return parts, replace(body, tenant=None)
        nobody = replace(body, tenant=None, username=secrets.token_hex(16))
        return await self._of(self._first), nobody

    async def _of(self, name: str) -> LibraryParts:
        parts = await self.find(name)
        if parts is None:
            raise NotFoundError("There is no such library.", tenant=name)
        return parts


async def _ran(task: Callable[[], Awaitable[None]]) -> None:
    await task()


async def _has_rows(store: Store, start: str) -> bool:
    span = Span.prefix(store.schema.text_before(store.space) + start)
    return bool((await store.row_page(span, limit=1, keys_only=True)).rows)


async def check_prefix(engine: Engine, space: str, *, tenants: bool) -> None:
    """Raise UsageError if the keys of a library do not have the prefix that the settings say."""
    plain = SCHEMAS[0]
    other = plain if tenants else plain.under(TENANT_PREFIX)
    if await _has_rows(Store(other, engine, space), "meta:"):
        raise UsageError(
            "The keys of the library have no tenant prefix: stop the service and run"
            " `keyhouse audiobooks tenants on`."
            if tenants
            else "The keys of the library have a tenant prefix: set `tenants`, or run"
            " `keyhouse audiobooks tenants off`.",
            library=space,
        )


def own_roots(roots: Sequence[str], name: str, first: str) -> list[str]:
    """Return the folders of one library: those with `{tenant}`, and for the first one, all."""
    named = [each.replace("{tenant}", name) for each in roots if "{tenant}" in each]
    return [*(each for each in roots if "{tenant}" not in each and name == first), *named]
