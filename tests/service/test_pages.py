"""Pages of a service: the login leads back to pages only, and every outcome is a page."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from keyhouse.auth import Authenticator, Caller, HeaderPairs
from keyhouse.errors import KeyhouseError, NotFoundError, TokenError, UnavailableError
from keyhouse.http import HtmlPage, Redirect, make_app
from keyhouse.service.pages import PagePaths, PageReply, Pages, text
from keyhouse.service.spec import ServiceSpec
from keyhouse.studio.rendering import PATHS as STUDIO
from keyhouse_audiobooks.web.frame import PATHS as AUDIOBOOKS
from keyhouse_playlist.web.frame import PATHS as PLAYLIST

SERVICES = pytest.mark.parametrize("paths", [STUDIO, AUDIOBOOKS, PLAYLIST], ids=lambda p: p.service)


@SERVICES
@pytest.mark.parametrize("rest", ["", "a/b?c=d&e=%2F", "a..b/.c/", "a%2F..%2Fb/", "x?q=a/../b"])
def test_the_login_leads_back_to_a_page_of_the_service(paths: PagePaths, rest: str) -> None:
    path = f"/{paths.service}/{rest}"
    assert paths.local(path) == path


@SERVICES
@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "//evil.example/", "https://evil.example/", "/\\evil.example", "/other/"),
        *("/{}", "/{}x/", "/{}/\nx", "/{}/ x", "/{}/\\x"),
        *("/{}/../other/", "/{}/%2e%2E/other/", "/{}/a/./b", "/{}/.."),
    ],
)
def test_the_login_leads_nowhere_else(paths: PagePaths, path: str) -> None:
    """Dots led out of the pages of audiobooks and of the playlist, to another service."""
    assert paths.local(path.format(paths.service)) == ""


@pytest.mark.parametrize("path", ["/playlist/api/v1/items", "/playlist/login", "/playlist/login/x"])
def test_the_login_of_the_playlist_leads_to_no_route_of_programs_and_not_to_itself(
    path: str,
) -> None:
    assert PLAYLIST.local(path) == ""


@pytest.mark.parametrize(
    ("segments", "query", "path"),
    [
        ((), {}, "/shop/"),
        (("items", "a/b c"), {}, "/shop/items/a%2Fb%20c"),
        (("items", ""), {"q": "", "tag": [], "at": None}, "/shop/items/"),
        ((), {"tag": ["x", "&y"], "from": 0}, "/shop/?tag=x&tag=%26y&from=0"),
    ],
)
def test_a_path_of_a_page_has_escaped_segments_and_a_query_without_empty_values(
    segments: tuple[str, ...], query: dict[str, Any], path: str
) -> None:
    assert PagePaths("shop").path(*segments, **query) == path


class HeaderAuth(Authenticator):
    schemes: Mapping[str, Mapping[str, Any]] = {}

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        for name, value in headers:
            if name == b"x-user":
                return Caller(tenant="shop", subject=value.decode())
        raise TokenError("Sign in.", missing=True)


class Shop:
    """A service with pages at `/shop`."""

    def __init__(self) -> None:
        self.pages = Pages(PagePaths("shop"), self.rejected, render=self.render)

    async def render(
        self, template: str, caller: Caller | None, page: Any, *, status: int = 200, **values: Any
    ) -> HtmlPage:
        user = "" if caller is None else caller.subject
        root, here = values["root"], values["here"]
        return HtmlPage(f"{template}|{user}|{page}|{root}{here}", status=status)

    def rejected(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        return HtmlPage(f"rejected|{error.sentence}", status=error.status)

    async def item(self, name: str, caller: Caller) -> Any:
        """Show an item."""
        match name:
            case "absent":
                raise NotFoundError("There is no such item.")
            case "broken":
                raise UnavailableError("The store is away.")
            case "moved":
                return Redirect("/shop/items/here")
            case "form":
                return PageReply("form.html", "again", 400, here="/shop/form")
        return name

    async def login(self) -> PageReply:
        """Sign in."""
        return PageReply("login.html", "who?")

    def client(self) -> httpx.AsyncClient:
        pages = self.pages
        routes = [
            pages.user_route("GET", "/items/{name}", self.item, template="item.html"),
            pages.user_route(
                "POST", "/items/{name}", self.item, signed_out=lambda _: Redirect("/shop/x")
            ),
            pages.user_route("GET", "/stock/{name}", self.item, scope="keep", back="/items/{name}"),
            pages.visitor_route("GET", "/login", self.login),
        ]
        app = make_app([ServiceSpec(name="shop", routes=routes, auth=HeaderAuth())])
        transport = httpx.ASGITransport(app, root_path="/mall")
        return httpx.AsyncClient(transport=transport, base_url="http://localhost/mall/shop")


OUTCOMES: list[tuple[str, str, str, int, str]] = [
    ("GET", "items/a b", "ann", 200, "item.html|ann|a b|/mall/shop/items/a%20b"),
    ("GET", "items/absent", "ann", 404, "error.html|ann|There is no such item.|"),
    ("GET", "items/broken", "ann", 503, "rejected|The store is away."),
    ("GET", "items/form", "ann", 400, "form.html|ann|again|/mall/shop/form"),
    ("GET", "stock/a", "ann", 403, "error.html|ann|The token does not have the required scope."),
    ("GET", "stock/a", "", 303, "/mall/shop/login?next=%2Fshop%2Fitems%2Fa"),
    ("GET", "items/moved", "ann", 303, "/mall/shop/items/here"),
    ("GET", "items/moved", "", 303, "/mall/shop/login?next=%2Fshop%2Fitems%2Fmoved"),
    ("POST", "items/moved", "", 303, "/mall/shop/x"),
    ("GET", "login", "", 200, "login.html||who?|/mall/shop/login"),
]


@pytest.mark.parametrize(("method", "path", "user", "status", "shown"), OUTCOMES)
def test_every_outcome_of_a_page_is_a_page_below_the_root(
    method: str, path: str, user: str, status: int, shown: str
) -> None:
    async def main() -> None:
        async with Shop().client() as client:
            headers = {"X-User": user} if user else {}
            response = await client.request(method, f"/{path}", headers=headers)
            assert response.status_code == status
            assert (response.headers.get("location") or response.text).startswith(shown)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([text.size(each) for each in (None, 0, 999, 1_500, 2_340_000, 5 * 10**12)],
         ["", "0 B", "999 B", "1.5 kB", "2.34 MB", "5 TB"]),
        ([text.counted(each, "row") for each in (0, 1, 1_200)], ["0 rows", "1 row", "1,200 rows"]),
        ([text.counted(2, "entry", "entries")], ["2 entries"]),
        ([text.hours(each) for each in (1.0, 1.5, 24.0, 36.0, 168.0)],
         ["1 hour", "1.5 hours", "1 day", "36 hours", "7 days"]),
    ],
)  # fmt: skip
def test_values_are_text_for_people(shown: list[str], expected: list[str]) -> None:
    assert shown == expected
