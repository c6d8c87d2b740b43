"""A small system with a route of each kind, for the tests of the HTTP layer."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from keyhouse.auth import Authenticator, Caller, HeaderPairs
from keyhouse.errors import ConflictError, EngineError, NotFoundError, TokenError, UnreadableError
from keyhouse.http import Conditions, Response, ResponseSpec, Route, Stream, etag
from keyhouse.service.rates import RateLimiter
from keyhouse.service.spec import ServiceSpec

Id = Annotated[str, msgspec.Meta(pattern="^[a-z0-9.~-]{1,20}$", examples=["tea"])]
Kind = Literal["drinks", "foods"]


class Item(msgspec.Struct):
    """An item for sale."""

    name: str
    price: int = 0


class Listed(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    tag: list[str] = []
    after: str | None = None


class Wishes(msgspec.Struct):
    key: str | None = msgspec.field(default=None, name="Idempotency-Key")


class Tokens(Authenticator):
    """Accepts `Bearer <tenant>:<scopes>`, and the same in the cookie `who`."""

    schemes: ClassVar = {"bearer": {"type": "http", "scheme": "bearer"}}

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        for name, value in headers:
            for header, start in ((b"authorization", b"Bearer "), (b"cookie", b"who=")):
                if name == header and value.startswith(start):
                    if value == start + b"nobody":
                        raise TokenError("The token is unknown.")
                    tenant, _, scopes = value.removeprefix(start).decode().partition(":")
                    return Caller(
                        tenant=tenant,
                        scopes=frozenset(scopes.split(",")),
                        from_cookie=name == b"cookie",
                    )
        raise TokenError("There is no token.", missing=True)


class Shop:
    def __init__(self) -> None:
        self.items: dict[tuple[str, str], tuple[int, Item]] = {}
        self.revision = 0

    async def listed(self, kind: Kind, query: Listed) -> dict[str, Any]:
        """List the items of a kind.

        Unordered.
        """
        names = [name for each, name in self.items if each == kind]
        return {
            "names": names[: query.limit],
            "limit": query.limit,
            "tag": query.tag,
            "after": query.after,
        }

    async def get(self, kind: Kind, id: Id) -> Response[Item]:
        """One item."""
        found = self.items.get((kind, id))
        if found is None:
            raise NotFoundError("There is no such item.", id=id)
        return Response(found[1], etag=etag(found[0]))

    async def put(self, kind: Kind, id: Id, body: Item, conditions: Conditions) -> Response[Item]:
        """Put an item in its place."""
        found = self.items.get((kind, id))
        conditions.check(found[0] if found else None)
        self.revision += 1
        self.items[kind, id] = (self.revision, body)
        location = (("Location", f"/shop/{kind}/{id}"),)
        return Response(body, 200 if found else 201, location, etag(self.revision))

    async def delete(self, kind: Kind, id: Id) -> None:
        """Delete an item."""
        self.items.pop((kind, id), None)

    async def batch(self, kind: Kind, body: list[Item]) -> dict[str, int]:
        """Change many items at once."""
        return {"count": len(body)}

    async def echo(self, body: Any, headers: Wishes) -> Any:
        """Return the body."""
        return {"body": body, "key": headers.key}

    async def mine(self, caller: Caller) -> dict[str, str]:
        """Return the caller."""
        return {"tenant": caller.tenant}

    async def change(self, caller: Caller) -> dict[str, str]:
        """Change something of the caller."""
        return {"tenant": caller.tenant}

    async def fail(self, how: str) -> None:
        """Fail in some way."""
        match how:
            case "conflict":
                raise ConflictError("It is taken.", id="x", secret=object())
            case "engine":
                raise EngineError("The engine is not there.", detail="password=hunter2")
            case "data":
                raise UnreadableError("A row does not decode.", key="somebody's key")
            case _:
                raise RuntimeError("password=hunter2")

    async def export(self) -> Response[Stream]:
        """Stream everything."""

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"%d\n" % number

        return Response(pieces(), media_type="text/plain; charset=utf-8")


def shop(rates: RateLimiter | None = None) -> ServiceSpec:
    it = Shop()
    item = ResponseSpec(type=Item, example=Item("tea", 3), headers={"ETag": "The revision."})
    return ServiceSpec(
        name="shop",
        title="The shop",
        auth=Tokens(),
        rates=rates,
        routes=[
            Route(method="GET", path="/things/{kind}", handler=it.listed),
            Route(
                method="GET",
                path="/things/{kind}/{id}",
                handler=it.get,
                replies={200: item},
                problems=[NotFoundError],
            ),
            Route(
                method="PUT",
                path="/things/{kind}/{id}",
                handler=it.put,
                replies={200: item, 201: item},
                example=Item("tea", 3),
            ),
            Route(method="DELETE", path="/things/{kind}/{id}", handler=it.delete),
            Route(method="POST", path="/things/{kind}:batch", handler=it.batch),
            Route(method="POST", path="/echo", handler=it.echo),
            Route(method="GET", path="/mine", handler=it.mine, scope="read"),
            Route(method="POST", path="/mine", handler=it.change, scope="write"),
            Route(method="GET", path="/fail/{how}", handler=it.fail, problems=[ConflictError]),
            Route(
                method="GET",
                path="/export",
                handler=it.export,
                replies={200: ResponseSpec(type=bytes, media_type="text/plain; charset=utf-8")},
            ),
        ],
    )
