"""`keyhouse serve --pages DIR`: a folder of one's own, and nothing beside it."""

import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from keyhouse.cli.commands.serve import announce
from keyhouse.serve.own_pages import DEPTH_MAX
from keyhouse.serve.server import Addresses
from tests.serve.support.serve_process import Serving, refused, serving

SECRET = "not for the public"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("pages")
    pages = folder / "overlay"
    (pages / "deep" / "er").mkdir(parents=True)
    (pages / ".git").mkdir()
    (pages / "empty").mkdir()
    (pages / "index.html").write_text("<!doctype html><title>Mine</title>")
    (pages / "overlay.js").write_text("export {};")
    (pages / "deep" / "index.html").write_text("deep")
    (pages / "deep" / "er" / "a b.svg").write_text("<svg/>")
    for hidden in (".env", ".git/config.txt", "notes.py", "keyhouse.toml", "songs.db", "README"):
        (pages / hidden).write_text(SECRET)
    (folder / "outside.html").write_text(SECRET)
    os.symlink(folder / "outside.html", pages / "link.html")
    os.symlink(folder, pages / "up")
    os.mkfifo(pages / "pipe.html")
    with serving(
        folder, "--pages", "overlay", "--cors", "https://a.example", "--cors", "https://b.example"
    ) as each:
        yield each
        assert each.end() == 0


def raw_get(running: Serving, path: str) -> tuple[int, str]:
    """Send a path as it is: a client would resolve its dots."""
    connection = http.client.HTTPConnection(urlsplit(running.http).netloc, timeout=10)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    response = connection.getresponse()
    text = response.read().decode(errors="replace")
    connection.close()
    return response.status, text


def test_a_folder_is_served_with_types_and_tags(running: Serving) -> None:
    page = running.get("/pages/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Mine" in page.text and page.headers["cache-control"] == "no-cache"
    assert running.get("/pages/index.html").text == page.text
    script = running.get("/pages/overlay.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert running.get("/pages/deep/").text == "deep"
    drawing = running.get("/pages/deep/er/a%20b.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    same = httpx.get(
        f"{running.http}/pages/", headers={"If-None-Match": page.headers["etag"]}, trust_env=False
    )
    assert (same.status_code, same.content) == (304, b"")
    assert httpx.head(f"{running.http}/pages/overlay.js", trust_env=False).content == b""
    moved = running.get("/pages")
    assert (moved.status_code, moved.headers["location"]) == (307, "/pages/")
    deep = httpx.get(f"{running.http}/pages/deep", follow_redirects=True, trust_env=False)
    assert (deep.text, deep.url.path) == ("deep", "/pages/deep/")


@pytest.mark.parametrize(
    "path",
    [
        *("/pages/.env", "/pages/.git/config.txt", "/pages/notes.py", "/pages/keyhouse.toml"),
        *("/pages/songs.db", "/pages/README", "/pages/link.html", "/pages/up/outside.html"),
        *("/pages/../outside.html", "/pages/%2e%2e/outside.html", "/pages/..%2foutside.html"),
        *("/pages/deep/..%2f..%2foutside.html", "/pages/%2e%2e%2foutside.html"),
        *("/pages/deep/%2e%2e/%2e%2e/outside.html", "/pages//etc/hostname.txt", "/pages/pipe.html"),
        *("/pages/index.html%00.html", "/pages/empty", "/pages/empty/", "/pages/deep/er/"),
        *("/pages/data/jars.db", "/pages/" + "a/" * DEPTH_MAX + "a.html", "/pages/%ff.html"),
        "/pages/.%2e/outside.html",
    ],
)
def test_nothing_else_is_served(running: Serving, path: str) -> None:
    status, text = raw_get(running, path)
    assert status in (400, 404), text
    assert SECRET not in text


def test_pages_shadow_no_route_and_the_front_page_names_them(running: Serving) -> None:
    front = running.get("/")
    assert front.status_code == 200 and 'href="pages/"' in front.text
    assert running.get("/health").status_code == 200
    assert running.get("/jars/jars/jam").status_code == 204


def test_a_page_may_load_scripts_of_its_origin_and_run_none_inside_html(running: Serving) -> None:
    policy = running.get("/pages/").headers["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["script-src"] == "'self'" and rules["connect-src"] == "*"
    assert running.get("/pages/").headers["x-content-type-options"] == "nosniff"


def test_a_person_is_shown_the_address_of_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    announce(Addresses("http://127.0.0.1:1", None, None, "http://127.0.0.1:1/pages/"))
    assert "Your pages: http://127.0.0.1:1/pages/\n" in capsys.readouterr().out


def test_cors_is_a_flag(running: Serving) -> None:
    for origin, allowed in (("https://a.example", True), ("https://b.example", True), ("x", False)):
        sent = {"Origin": origin}
        answer = httpx.get(f"{running.http}/health", headers=sent, trust_env=False)
        assert ("access-control-allow-origin" in answer.headers) is allowed, origin


def test_a_folder_that_is_absent_or_has_the_data_is_rejected(tmp_path: Path) -> None:
    """`--pages .` would serve the database and the secret of the tokens."""
    absent = refused(tmp_path, "--pages", "nothing")
    assert "does not exist" in str(absent) and "--pages" in str(absent)
    (tmp_path / "keyhouse-data").mkdir()
    for pages in (".", "keyhouse-data"):
        within = refused(tmp_path, "--pages", pages, "--data", "keyhouse-data")
        assert "The data folder is inside the folder of pages" in str(within)
    off = refused(tmp_path, "--pages", ".", "--http", "off")
    assert "over HTTP, which is off" in str(off)


def test_a_wrong_origin_names_its_flag(tmp_path: Path) -> None:
    wrong = refused(tmp_path, "--cors", "panel.example")
    assert "An origin is a scheme and a host" in str(wrong)
