"""The pages that lead to the services: `/`, `/{system}/` and `/docs`, for every system and schema.

The systems are those of the registry, and the routes those of the running service, so that new ones
are tested without being listed here.
"""

import html
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from keyhouse.service.registry import has_service, system_names
from tests.abuse.support.server import ServerProcess
from tests.serve.support.serve_process import environment
from tests.support.browser_pages import Pages, run_in_browser
from tests.support.program import write_program

SYSTEMS = [name for name in system_names() if has_service(name)]
SCHEMAS = {
    "recipes": "tests.service.schema_service.support.recipes:BOX",
    "clips": "keyhouse.demo.clips:BOARD",
}
"""Schemas that are served, by name."""

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PROGRAM = {"Accept": "application/json"}
WIDTHS = (390, 1_280)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("front")
    with ServerProcess(folder, *SYSTEMS, *SCHEMAS.values()) as running:
        yield running


def served(server: ServerProcess) -> list[str]:
    """Return the names of the services that run, from the page at `/`."""
    page = httpx.get(server.http, headers=BROWSER, trust_env=False).text
    return re.findall(r'<a href="([a-z]+)/">', page)


def examples(page: str) -> list[list[str]]:
    """Return the commands that a page shows."""
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    return [html.unescape(block).splitlines() for block in blocks]


# The OpenAPI documents


def test_every_summary_is_the_first_sentence_of_its_docstring(server: ServerProcess) -> None:
    """It was the first line, so 16 summaries ended in the middle of a sentence."""
    listed = [route for route in server.routes if route["doc"] is not None and route["system"]]
    documents = {
        name: httpx.get(f"{server.http}/{name}/openapi.json", trust_env=False).json()["paths"]
        for name in {route["system"] for route in listed}
    }
    assert {*SCHEMAS} <= documents.keys()
    assert len(listed) > 200
    for route in listed:
        path = route["path"].removeprefix(f"/{route['system']}")
        summary = documents[route["system"]][path][route["method"].lower()]["summary"]
        assert re.search(r"[.?!]$", summary), (route["path"], summary)
        docstring = " ".join(route["doc"].replace("`", "").split())
        assert docstring.startswith(summary), (route["path"], summary)
        assert not re.search(r"[.?!] [A-Z]", summary), (route["path"], summary)


# The pages


def test_the_first_page_lists_every_service_with_pages_before_apis(server: ServerProcess) -> None:
    names = served(server)
    assert {*names} == {*SYSTEMS, *SCHEMAS, "studio"}
    page = httpx.get(server.http, headers=BROWSER, trust_env=False).text
    pages, apis = page.index("<h2>Pages</h2>"), page.index("<h2>APIs</h2>")
    for name in names:
        has_page = "Open the page" in page.split(f'<a href="{name}/">')[1][:20]
        assert (pages < page.index(f'<a href="{name}/">') < apis) is has_page


def test_every_service_has_a_page_in_a_browser_and_is_an_api_for_programs(
    server: ServerProcess,
) -> None:
    """`/streamkit/` in a browser was the JSON of a 404, although it is the base URL of its API."""
    own = {route["system"] for route in server.routes if route["path"] == f"/{route['system']}/"}
    with httpx.Client(base_url=server.http, trust_env=False) as client:
        for name in served(server):
            for path in (f"/{name}", f"/{name}/"):
                shown = client.get(path, headers=BROWSER, follow_redirects=True)
                assert shown.status_code == 200, (path, shown.text)
                assert shown.headers["content-type"].startswith("text/html"), path
                if name in own:
                    continue
                assert len(client.head(path, headers=BROWSER).content) == 0
                for links in re.findall(r'href="([^"]+)"', shown.text):
                    target = shown.url.join(links)
                    reached = client.get(target, headers=BROWSER, follow_redirects=True)
                    assert reached.status_code == 200, (path, links)
                for program in (PROGRAM, {"Accept": "*/*"}, {}):
                    for method in ("GET", "POST"):
                        refused = client.request(method, path, headers=program)
                        assert refused.status_code == 404
                        assert refused.json()["status"] == 404


def test_every_command_to_try_runs_with_what_is_installed(server: ServerProcess) -> None:
    """One needed the program `nats`, which nobody has; three systems had none."""
    page = httpx.get(server.http, headers=BROWSER, trust_env=False).text
    shown = examples(page)
    assert len(shown) == len(served(server)), "each card has one"
    folder = server.folder
    settings = environment(
        PATH=f"{write_program(folder / 'bin').parent}{os.pathsep}{os.environ['PATH']}",
        KEYHOUSE_DATA=str(folder / "data"),
    )
    (folder / "keyhouse-data").symlink_to(folder / "data")
    for commands in shown:
        for line in commands:
            assert re.match(r"(\w+=\$\()?(curl|keyhouse) |# ", line), line
        script = "set -eu\n" + "\n".join(
            re.sub(r"\bcurl ", "curl --fail-with-body --silent --noproxy '*' ", line)
            for line in commands
            if "Ctrl-C" not in line
        )
        ran = subprocess.run(
            ["sh", "-c", script], cwd=folder, env=settings, capture_output=True, text=True
        )
        assert ran.returncode == 0, (script, ran.stdout, ran.stderr)
        for line in commands:
            if "Ctrl-C" in line:
                with subprocess.Popen(
                    ["sh", "-c", f"exec {line}"],
                    cwd=folder,
                    env=settings,
                    stdout=subprocess.PIPE,
                    text=True,
                ) as running:
                    assert running.stdout is not None
                    assert running.stdout.readline(), line
                    running.send_signal(signal.SIGINT)
                    assert running.wait(60) in (0, 130)


@pytest.mark.browser
def test_the_front_pages_and_references_fit_and_load_everything(server: ServerProcess) -> None:
    """`/docs` with five systems was 454 px wide on a phone, and its icon was a 404."""
    own = {route["system"] for route in server.routes if route["path"] == f"/{route['system']}/"}
    names = [name for name in served(server) if name not in own]

    async def scenario(browser: Pages) -> None:
        for path in ("/", *(f"/{name}/" for name in names)):
            await browser.check(server.http + path)
        for path in ("/docs", f"/{names[-1]}/docs"):
            for width in WIDTHS:
                async with browser.visit(server.http + path, width=width) as page:
                    await page.locator(".opblock-summary").first.wait_for()
                    box = await page.locator("nav").bounding_box()
                    assert box is not None and box["width"] <= width
                    scrolled = await page.evaluate("document.documentElement.scrollWidth")
                    assert scrolled <= width, (path, width)

    run_in_browser(scenario)


def test_an_icon_is_served_where_browsers_ask_for_it(server: ServerProcess) -> None:
    icon = httpx.get(f"{server.http}/favicon.ico", trust_env=False)
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    for path in ("/", "/docs", *(f"/{name}/" for name in served(server))):
        page = httpx.get(
            server.http + path, headers=BROWSER, trust_env=False, follow_redirects=True
        )
        [link] = re.findall(r'<link rel="icon"[^>]*href="([^"]+)"', page.text)
        assert httpx.get(page.url.join(link), trust_env=False).status_code == 200, path
