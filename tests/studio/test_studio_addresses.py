"""Addresses of the Studio: slashes, ports, a path before it, and pages that forms come back to."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from tests.studio.support.library import Library, library, run, send, token

MAIN = "/studio/library/main"


def test_a_page_is_found_without_its_trailing_slash(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            for path, to in (
                ("/studio", "/studio/"),
                ("/studio/library?after=a", "/studio/library/?after=a"),
                (MAIN, f"{MAIN}/"),
                ("/studio/library/a%20b", "/studio/library/a%20b/"),
            ):
                answer = await client.get(path)
                assert answer.status_code in (303, 307)
                assert answer.headers["location"] == to
                status = 404 if "%20" in to else 200  # no row is in that space
                assert (await client.get(to)).status_code == status

    run(tmp_path, scenario)


def test_studios_at_two_ports_of_a_host_do_not_sign_each_other_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            library(tmp_path) as one,
            library(tmp_path) as two,
            httpx.AsyncClient(transport=ByPort({8080: one, 8081: two, None: two})) as browser,
        ):
            addresses = [f"http://localhost{port}/studio" for port in (":8080", ":8081", "")]
            for address in addresses:
                answer = await browser.post(f"{address}/login", data={"token": token()})
                assert answer.status_code == 303
            for address in addresses:
                assert (await browser.get(f"{address}/index.json")).status_code == 200, address
            await browser.post(f"{addresses[1]}/logout")
            for address, status in zip(addresses, (200, 401, 200), strict=True):
                assert (await browser.get(f"{address}/index.json")).status_code == status

    asyncio.run(main())


class ByPort(httpx.AsyncBaseTransport):
    """Sends a request to the Studio at its port."""

    def __init__(self, studios: dict[int | None, Library]) -> None:
        self._apps = {port: httpx.ASGITransport(each.app) for port, each in studios.items()}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._apps[request.url.port].handle_async_request(request)


@pytest.mark.parametrize("root", ["", "/data", "/a/b"])
def test_every_link_and_form_stays_below_the_path_of_the_app(root: str, tmp_path: Path) -> None:
    """Starting at the login, follow every link."""

    async def scenario(served: Library) -> None:
        transport = httpx.ASGITransport(served.app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            first = await client.get(f"{root}/studio/")
            assert first.headers["location"].startswith(f"{root}/studio/login?next=%2Fstudio%2F")
            form = {"token": token(), "next": "/studio/library/"}
            answer = await client.post(f"{root}/studio/login", data=form)
            assert answer.headers["location"] == f"{root}/studio/library/"
            assert f"Path={root}/studio;" in answer.headers["set-cookie"]
            answer = await client.post(f"{root}/studio/lock", data={"unlocked": "on"})
            assert answer.headers["location"] == f"{root}/studio/"
            seen: set[str] = set()
            ahead = [f"{root}/studio/", f"{root}{MAIN}/edit?k=book:b000&mode=text"]
            while ahead:
                path = ahead.pop()
                seen.add(path)
                page = await client.get(path, follow_redirects=True)
                assert page.status_code == 200, path
                if not page.headers["content-type"].startswith("text/html"):
                    continue
                text = page.text.replace("&amp;", "&")
                for kind, target in re.findall(
                    r' (href|action|src|hx-get|data-\w+)="(/[^"]*)"', text
                ):
                    assert target.startswith(f"{root}/"), (path, target)
                    is_new = target not in seen and target not in ahead
                    if kind == "href" and is_new and len(seen) < 80:
                        ahead.append(target)
            assert len(seen) > 30

    run(tmp_path, scenario)


def test_the_page_of_a_rejected_form_leads_back_to_a_page(tmp_path: Path) -> None:
    """Unlock on that page sends its `next`, which is the address of a page, not only of a form."""

    async def scenario(served: Library) -> None:
        forms = (
            ("/studio/journal", {"id": "x"}),
            ("/studio/job", {"id": "x", "action": "undo"}),
            (f"{MAIN}/edit", {"k": "by-author:lem:b000", "revision": "1", "action": "preview"}),
            (f"{MAIN}/bulk", {"prefix": "book:", "count": "7"}),
            (f"{MAIN}/verify", {"action": "repair"}),
        )
        async with served.signed_in() as client:
            for path, form in forms:
                page = await send(client, path, form)
                assert page.status_code >= 400, path
                [here] = re.findall(r'name="next" value="([^"]*)"', page.text)
                here = here.replace("&amp;", "&")
                back = await client.post("/studio/lock", data={"next": here})
                assert back.headers["location"] == here
                assert (await client.get(here)).status_code in (200, 400, 404), here

    run(tmp_path, scenario)


def test_a_page_without_its_key_is_an_error_page(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in() as client:
            page = await client.get(f"{MAIN}/key")
            assert page.status_code == 400
            assert page.headers["content-type"].startswith("text/html")
            assert "`k`" in page.text

    run(tmp_path, scenario)
