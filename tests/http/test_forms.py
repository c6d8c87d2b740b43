"""Forms and HTML pages over the real HTTP listener: bounds, CSRF, escaping, policies."""

import asyncio
import gzip
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.auth import Caller
from keyhouse.errors import DeclarationError, KeyhouseError, TokenError, UsageError
from keyhouse.http import HtmlPage, Redirect, Route, Templates, UploadedFile, make_app
from keyhouse.http.forms import FormReader
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import Served, run, serving
from tests.http.support.shop import Tokens

FORM: Final = "application/x-www-form-urlencoded"


class Entry(msgspec.Struct):
    title: str
    pages: int | None = None
    is_public: bool = False
    tag: list[str] = []
    cover: UploadedFile | None = None


class Search(msgspec.Struct):
    q: str = ""


class Book:
    def __init__(self, folder: Path) -> None:
        (folder / "entry.html").write_text("<title>{{ title }}</title>{{ missing }}\n")
        (folder / "page.html").write_text('<p class="x">{{ title }}</p><a href="{{ site }}">\n')
        self.templates = Templates(folder, site="/book")
        self.entries: list[Entry] = []

    async def page(self) -> HtmlPage:
        """Show the newest entry."""
        title = self.entries[-1].title if self.entries else ""
        return self.templates.page("page.html", title=title)

    async def broken(self) -> HtmlPage:
        """Show a page whose template needs another value."""
        return self.templates.page("entry.html", title="x")

    async def write(self, form: Entry) -> Redirect:
        """Write an entry."""
        self.entries.append(form)
        return Redirect("/book/page", headers=(("Set-Cookie", "seen=1"),))

    async def change(self, form: Entry, caller: Caller) -> dict[str, str]:
        """Write as a caller."""
        return {"tenant": caller.tenant}

    async def private(self, query: Search, caller: Caller) -> HtmlPage:
        """Show a page to a caller only."""
        return await self.page()

    async def own(self, form: Entry, caller: Caller) -> HtmlPage | Redirect:
        """Show a page to a caller, or lead to another one."""
        if form.title == "fine":
            return await self.page()
        raise ValueError if form.title == "boom" else UsageError("Not <this>.")

    def error(self, error: KeyhouseError, root: str, here: str) -> HtmlPage | Redirect:
        if isinstance(error, TokenError):
            return Redirect(f"{root}/book/login?{urlencode({'next': here})}")
        return self.templates.page("page.html", status=error.status, title=error.sentence)

    def spec(self) -> ServiceSpec:
        return ServiceSpec(
            name="book",
            auth=Tokens(),
            routes=[
                Route(method="GET", path="/page", handler=self.page),
                Route(method="GET", path="/broken", handler=self.broken),
                Route(method="POST", path="/write", handler=self.write),
                Route(method="POST", path="/change", handler=self.change, scope="write"),
                Route(
                    method="GET", path="/own", handler=self.private, scope="", error_page=self.error
                ),
                Route(
                    method="POST", path="/own", handler=self.own, scope="", error_page=self.error
                ),
            ],
        )


def asking(folder: Path, scenario: Any) -> None:
    async def served() -> None:
        book = Book(folder)
        async with serving(book.spec(), body_bytes_max=200_000) as client:
            await scenario(client, book)

    run(served)


def test_a_form_becomes_a_struct_and_leads_to_a_page(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        form = {"title": "é & <b>", "pages": "", "is_public": "on", "tag": ["a", "b"]}
        sent = await client.post("/write", data=form)
        assert (sent.status_code, sent.headers["location"]) == (303, "/book/page")
        assert sent.headers["set-cookie"] == "seen=1"
        assert book.entries == [Entry("é & <b>", None, True, ["a", "b"])]
        files = {"cover": ("c.png", b"\x00\xff" * 40_000, "image/png")}
        sent = await client.post("/write", data={"title": "two", "pages": "7"}, files=files)
        assert sent.status_code == 303
        cover = UploadedFile("c.png", "image/png", b"\x00\xff" * 40_000)
        assert book.entries[1] == Entry("two", 7, False, [], cover)

    asking(tmp_path, scenario)


def test_a_page_escapes_values_and_allows_no_inline_script(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        book.entries.append(Entry('<script>alert("1")</script>'))
        page = await client.get("/page")
        assert "<script>" not in page.text and "&lt;script&gt;" in page.text
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "form-action 'self'" in policy and "frame-ancestors 'none'" in policy
        assert page.headers["cache-control"] == "private, no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        assert (await client.head("/page")).headers["content-length"] == str(len(page.content))
        assert (await client.get("/broken")).status_code == 500, "a missing value is an error"

    asking(tmp_path, scenario)


def test_a_long_page_is_compressed_for_clients_that_accept_it(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        book.entries.append(Entry("long " * 1_000))
        page = await client.get("/page")
        assert page.headers["content-encoding"] == "gzip" and "long long" in page.text
        assert int(page.headers["content-length"]) < 200
        for refused in ("", "identity", "gzip;q=0", "br"):
            plain = await client.get("/page", headers={"Accept-Encoding": refused})
            assert "content-encoding" not in plain.headers and plain.text == page.text
            assert plain.headers["vary"] == "accept-encoding"

    asking(tmp_path, scenario)


def test_every_error_of_a_page_is_a_page(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        cookie = {"Cookie": "who=ann:write", "Accept": "text/html"}
        assert (await client.post("/own", data={"title": "fine"}, headers=cookie)).is_success
        signed_out = await client.post("/own", data={"title": "x"})
        assert signed_out.status_code == 303
        assert signed_out.headers["location"] == "/book/login?next="
        asked = await client.get("/own?q=a%20b")
        assert asked.headers["location"] == "/book/login?next=%2Fbook%2Fown%3Fq%3Da%2520b"
        assert "www-authenticate" not in signed_out.headers
        for form, status, sentence in (
            ({"title": "x"}, 400, "Not &lt;this&gt;."),
            ({"title": "boom"}, 500, "Internal error."),
            ({"nothing": "x"}, 400, "Unknown form field."),
        ):
            shown = await client.post("/own", data=form, headers=cookie)
            assert shown.status_code == status and sentence in shown.text, form
            assert shown.headers["content-type"] == "text/html; charset=utf-8"
            assert "x-request-id" in shown.headers
        foreign = await client.post("/own", headers=cookie | {"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 403 and foreign.text.startswith("<p")

    asking(tmp_path, scenario)


def test_a_form_of_another_site_is_rejected_with_and_without_a_cookie(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        form = {"title": "x"}
        cookie = {"Cookie": "who=ann:write"}
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
        ):
            for path, sent in (("/change", headers | cookie), ("/write", headers)):
                response = await client.post(path, data=form, headers=sent)
                expected = 303 if path == "/write" and status == 200 else status
                assert response.status_code == expected, (path, headers)
        assert len(book.entries) == 1

    asking(tmp_path, scenario)


def test_invalid_forms_change_nothing(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        async def status(body: bytes, kind: str) -> int:
            response = await client.post("/write", content=body, headers={"Content-Type": kind})
            return response.status_code

        urlencoded = "application/x-www-form-urlencoded"
        multipart = "multipart/form-data; boundary=b"
        part = b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\nx\r\n'
        assert await status(part + b"--b--\r\n", multipart) == 303
        book.entries.clear()
        for body, kind, expected in (
            (b"", urlencoded, 400),
            (b"title=a&title=b", urlencoded, 400),
            (b"title=a&other=b", urlencoded, 400),
            (b"title=a&pages=seven", urlencoded, 400),
            (b"title=%ff", urlencoded, 400),
            (b"&" * 1_000, urlencoded, 413),
            (b"x" * 200_001, urlencoded, 413),
            (b'{"title": "a"}', "application/json", 415),
            (b"title=a", "text/plain", 415),
            (b"title=a", "", 415),
            (part, "multipart/form-data", 415),
            (part, multipart, 400),
            (b"nonsense", multipart, 400),
            (part.replace(b"name=", b"eman=") + b"--b--\r\n", multipart, 400),
            (part.replace(b"x", b"\xff", 1) + b"--b--\r\n", multipart, 400),
            (part * 1_001 + b"--b--\r\n", multipart, 413),
            (b"--b\r\n" + b"X: y\r\n" * 100 + b"\r\n\r\n--b--\r\n", multipart, 400),
            (b"--b\r\nX: " + b"y" * 9_000 + b"\r\n\r\n--b--\r\n", multipart, 400),
        ):
            assert await status(body, kind) == expected, (body[:60], kind)
        assert book.entries == []

    asking(tmp_path, scenario)


@given(st.binary(max_size=200), st.sampled_from(["multipart/form-data; boundary=b", ""]))
def test_any_body_is_a_form_or_a_clear_error(body: bytes, kind: str) -> None:
    async def scenario() -> None:
        try:
            await FormReader(Entry).read(kind or "application/x-www-form-urlencoded", body)
        except KeyhouseError as error:
            assert error.status < 500

    run(scenario)


@pytest.mark.parametrize(
    "path",
    ["https://evil.example", "//evil.example", "/\\evil.example", "page", "", "/a\r\nX: 1", "/é"],
)
def test_a_redirect_stays_on_this_server(path: str) -> None:
    with pytest.raises(UsageError, match="path of this server"):
        Redirect(path)


def test_a_route_has_a_body_or_a_form(tmp_path: Path) -> None:
    async def both(form: Entry, body: Entry) -> None: ...
    async def text(form: str) -> None: ...
    async def read(form: Entry) -> None: ...

    for method, handler in (("POST", both), ("POST", text), ("GET", read)):
        route = Route(method=method, path="/", handler=handler)
        with pytest.raises(DeclarationError):
            make_app([ServiceSpec(name="x", routes=[route])])


def test_forms_are_in_the_openapi_document(tmp_path: Path) -> None:
    async def scenario(client: Served, book: Book) -> None:
        document = (await client.get("/openapi.json")).json()
        operation = document["paths"]["/write"]["post"]
        content = operation["requestBody"]["content"]
        assert [*content] == ["application/x-www-form-urlencoded", "multipart/form-data"]
        members = content["multipart/form-data"]["schema"]["properties"]
        assert members["cover"] == {"type": "string", "format": "binary"}
        assert {"303", "400", "403", "413", "415"} <= {*operation["responses"]}

    asking(tmp_path, scenario)


@pytest.mark.parametrize("alone", [False, True])
def test_a_browser_at_an_unknown_path_gets_a_page_and_programs_get_none(
    alone: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        book = Book(tmp_path)
        spec = ServiceSpec(
            name="book",
            routes=[
                Route(
                    method="GET", path="/", handler=book.page, error_page=book.error, listed=False
                ),
                Route(method="POST", path="/write/one", handler=book.write),
            ],
        )
        transport = httpx.ASGITransport(make_app([spec], alone=alone))
        root = "http://localhost" if alone else "http://localhost/book"
        async with httpx.AsyncClient(transport=transport, base_url=root) as client:
            for path, accept, media_type in (
                ("/nowhere", "text/html", "text/html"),
                ("/nowhere/below", "text/html", "text/html"),
                ("/nowhere", "*/*", "application/problem+json"),
                ("/write/two", "text/html", "application/problem+json"),
            ):
                answer = await client.get(path, headers={"Accept": accept})
                assert answer.status_code == 404
                assert answer.headers["content-type"].startswith(media_type), (path, accept)

    run(scenario)


async def turns_of_others(work: Awaitable[object]) -> int:
    """Return how often other tasks had their turn while this was under way."""
    working, turns = asyncio.ensure_future(work), 0
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    await working
    return turns


def test_a_long_form_and_a_long_page_do_not_hold_up_other_requests() -> None:
    async def scenario() -> None:
        reader, text = FormReader(Entry), '"' * 300_000
        body = urlencode({"title": text}).encode()
        assert await turns_of_others(reader.read(FORM, body)) > 3
        assert (await reader.read(FORM, body)).title == text
        page = HtmlPage("".join(map(str, range(300_000))))
        headers = {b"accept-encoding": b"gzip"}
        assert await turns_of_others(page.respond("GET", headers)) > 3
        response = await page.respond("GET", headers)
        assert isinstance(response.body, bytes)
        assert gzip.decompress(response.body).decode() == page.html

    asyncio.run(scenario())
