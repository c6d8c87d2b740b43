"""Errors that browsers see as pages: those of unknown methods and paths, and those on our side."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from keyhouse.errors import KeyhouseError, UnavailableError
from keyhouse.http import HtmlPage, Route, Templates, app, make_app
from keyhouse.http.errors import CAUSES_MAX, RepeatedLines
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import run

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Entry(msgspec.Struct):
    title: str = ""


class Book:
    def __init__(self, folder: Path) -> None:
        (folder / "error.html").write_text("<p>{{ text }}</p>\n")
        self._templates = Templates(folder)

    async def page(self) -> HtmlPage:
        """Show a page."""
        raise UnavailableError(
            "The engine is not available.", file="secret.db", retry_after=7
        ).caused_by(OSError("disk"))

    async def write(self, body: Entry) -> None:
        """Write an entry."""

    def error(self, error: KeyhouseError, root: str, here: str) -> HtmlPage:
        return self._templates.page("error.html", status=error.status, text=str(error))

    def client(self, **options: Any) -> httpx.AsyncClient:
        spec = ServiceSpec(
            name="book",
            routes=[
                Route(
                    method="GET", path="/", handler=self.page, error_page=self.error, listed=False
                ),
                Route(method="GET", path="/shared/page", handler=self.page, error_page=self.error),
                Route(method="POST", path="/shared/api", handler=self.write),
            ],
        )
        transport = httpx.ASGITransport(make_app([spec], **options))
        root = "http://localhost" if options.get("alone") else "http://localhost/book"
        return httpx.AsyncClient(transport=transport, base_url=root, headers=BROWSER)


@pytest.mark.parametrize("alone", [False, True])
def test_a_method_that_a_page_does_not_have_is_a_page_for_a_browser(
    alone: bool, tmp_path: Path
) -> None:
    """It was JSON, and so was an unknown path of a form."""

    async def scenario() -> None:
        async with Book(tmp_path).client(alone=alone) as client:
            for method, path, status, is_page in (
                ("POST", "/", 405, True),
                ("DELETE", "/shared/page", 405, True),
                ("POST", "/nowhere", 404, True),
                ("PUT", "/nowhere/below", 404, True),
                ("GET", "/shared/api", 405, False),
                ("POST", "/shared/nothing", 404, False),
            ):
                shown = await client.request(method, path, data={"title": "x"})
                media_type = "text/html" if is_page else "application/problem+json"
                assert shown.status_code == status, (method, path)
                assert shown.headers["content-type"].startswith(media_type), (method, path)
                if status == 405:
                    assert ("GET" in shown.headers["allow"]) == is_page
                program = await client.request(method, path, headers={"Accept": "*/*"})
                assert program.headers["content-type"] == "application/problem+json"

    run(scenario)


def test_a_page_that_fails_on_our_side_is_logged_and_shows_no_fields(tmp_path: Path) -> None:
    async def scenario() -> None:
        with capture_logs() as lines:
            async with Book(tmp_path).client() as client:
                shown = await client.get("/")
        assert shown.status_code == 503 and shown.headers["retry-after"] == "7"
        assert shown.text == "<p>The engine is not available.</p>"
        [line] = [each for each in lines if each["event"] == "request failed"]
        assert line["log_level"] == "error" and "secret.db" in line["error"]
        assert line["id"] == shown.headers["x-request-id"]

    run(scenario)


def test_an_engine_that_is_away_logs_one_line_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL was away for seconds: 2,675 error lines, one for every request."""

    async def scenario() -> None:
        now = 0.0
        monkeypatch.setattr(app, "RepeatedLines", lambda: RepeatedLines(lambda: now))
        with capture_logs() as lines:
            async with Book(tmp_path).client() as client:
                for _ in range(50):
                    assert (await client.get("/")).status_code == 503
                    assert (await client.get("/shared/page")).status_code == 503
                now = 1.0
                assert (await client.get("/")).status_code == 503
        failed = [line for line in lines if line["event"] == "request failed"]
        accesses = [line for line in lines if line["event"] == "request"]
        for found in (failed, accesses):
            assert [line.get("repeated") for line in found] == [None, 99]

    run(scenario)


def test_each_cause_has_its_own_lines_and_memory_is_bounded() -> None:
    lines = RepeatedLines(lambda: 0.0)
    assert lines.fields("engine") == {} and lines.fields("queue") == {}
    assert lines.fields("engine") is None
    for number in range(1_000):
        lines.fields(number)
    kept = range(1_000 - CAUSES_MAX, 1_000)
    assert [lines.fields(number) for number in kept] == [None] * CAUSES_MAX
    assert lines.fields("engine") == {}, "forgotten, and logged again"
