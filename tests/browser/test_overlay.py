"""`keyhouse.js` in a real browser: the overlay of the examples updates live."""

import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from keyhouse import RemoteStore
from tests.docs.pages import ROOT
from tests.serve.support.serve_process import Serving, serving
from tests.support.browser_pages import Pages, check_page, run_in_browser
from tests.support.program import run

pytestmark = pytest.mark.browser

OVERLAY = ROOT / "examples" / "overlay"
BOARD = OVERLAY / "board"
SCRIPT = ROOT / "src" / "keyhouse" / "http" / "assets" / "keyhouse.js"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def page_origin() -> Iterator[str]:
    """Serve the overlay from another origin than the service, as a streamer's own folder is."""
    handler = partial(Quiet, directory=str(BOARD))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Board"]:
    """Serve the schemas and the pages of this module, for any origin. Each test has its space."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "scores.py").write_text((OVERLAY / "scores.py").read_text())
    (folder / "shouts.py").write_text(SHOUTS)
    arguments = ("scores:SCORES", "shouts:SHOUTS", "--pages", str(BOARD))
    with serving(folder, *arguments, KEYHOUSE_HTTP_CORS_ORIGINS="*") as running:
        yield Board(folder, running)
        assert running.end() == 0


class Board:
    """A running service, and the programs beside it."""

    def __init__(self, folder: Path, running: Serving) -> None:
        self.folder = folder
        self.http = running.http

    def token(self, space: str, schema: str = "scores:SCORES") -> str:
        return token(self.folder, space, schema)

    def put(self, key: str, value: str, given: str) -> None:
        at = ("--store", self.http, "--token", given)
        stored = run("put", "scores:SCORES", key, value, *at, cwd=self.folder).stdout
        assert "Stored" in stored


def token(folder: Path, space: str, schema: str = "scores:SCORES") -> str:
    data = str(folder / "data")
    return run("token", schema, "--space", space, "--data", data, cwd=folder).stdout.strip()


def result_of(script: str, origin: str, service: str, given: str) -> list[object]:
    """Return the result of a script in a page of this origin."""

    async def scenario(browser: Pages) -> list[object]:
        page = await (await browser.context()).new_page()
        await page.goto(f"{origin}/overlay.css")
        result: list[object] = await page.evaluate(script, [service, given])
        return result

    return run_in_browser(scenario)


def test_the_script_is_small() -> None:
    assert SCRIPT.stat().st_size < 8_500


def test_the_overlay_updates_live(
    board: Board, page_origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(board.folder))
    from scores import SCORE, SCORES, Score  # type: ignore[import-not-found]

    given = board.token("live")

    async def scenario(browser: Pages) -> None:
        async with RemoteStore(SCORES, board.http, given) as store:
            await store.put(SCORE, Score(id="ada", name="Ada", points=3))
            page = await (await browser.context()).new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            await page.goto(f"{page_origin}/overlay.html#service={board.http}&token={given}")
            rows = page.locator("#scores li")
            await page.wait_for_selector("#scores li")
            assert await rows.all_inner_texts() == ["Ada\n3"]
            await store.put(SCORE, Score(id="bo", name="<b>Bo</b>", points=5))
            await page.wait_for_function("document.querySelectorAll('#scores li').length === 2")
            assert await rows.all_inner_texts() == ["<b>Bo</b>\n5", "Ada\n3"]
            await store.update(SCORE, {"points": 9}, id="ada")
            await page.wait_for_function(
                "document.querySelector('#scores li .points').textContent === '9'"
            )
            await check_page(page)
            await store.delete(SCORE, id="bo")
            await page.wait_for_function("document.querySelectorAll('#scores li').length === 1")
            assert problems == []

    run_in_browser(scenario)


def test_the_overlay_is_a_page_of_the_service_and_works_as_a_file(board: Board) -> None:
    """It needed a second web server and CORS; opened as a file, it did not load its script, which
    was a module."""
    given = board.token("file")
    board.put("score:ada", '{"name": "Ada", "points": 3}', given)
    file = (BOARD / "overlay.html").as_uri()

    async def scenario(browser: Pages) -> None:
        page = await (await browser.context()).new_page()
        for url in (
            f"{board.http}/pages/overlay.html#token={given}",
            f"{file}#service={board.http}&token={given}",
        ):
            await page.goto(url)
            await page.wait_for_selector("#scores li")
            assert await page.locator("#scores li").all_inner_texts() == ["Ada\n3"]
        await page.goto("about:blank")
        await page.goto(f"{file}#service=http://127.0.0.1:1&token={given}")
        await page.wait_for_function("document.getElementById('state').textContent !== ''")

    run_in_browser(scenario)


CALLS = """async ([service, token]) => {
  const { Keyhouse, KeyhouseError } = await import(`${service}/assets/keyhouse.js`);
  const store = new Keyhouse(`${service}/scores`, token);
  const seen = [];
  const first = await store.put("score", ["a/b"], { id: "a/b", name: "A: \\u2028", points: 1 });
  seen.push(first.value.points);
  seen.push((await store.patch("score", ["a/b"], { points: 2 })).value.points);
  seen.push((await store.get("score", ["a/b"])).fields.id);
  seen.push(await store.get("score", ["none"]));
  for (const call of [
    () => store.put("score", ["a/b"], { name: "A" }, { expect: first.revision }),
    () => store.put("score", ["a/b"], { name: "A" }, { expect: null }),
    () => store.put("score", ["x"], { name: 3 }),
    () => store.list("score", { by: "nothing" }),
    () => new Keyhouse(`${service}/scores`, "wrong").list("score"),
  ]) {
    try { await call(); seen.push("done"); }
    catch (error) { seen.push(error instanceof KeyhouseError ? error.status : String(error)); }
  }
  const events = [];
  for await (const { type, item } of store.watch("score", { since: first.revision - 1 })) {
    events.push(`${type} ${item.key}`);
    if (events.length === 1) await store.delete("score", ["a/b"]);
    else break;
  }
  seen.push(...events);
  seen.push((await store.list("score")).items.length);
  return seen;
}"""


def test_the_verbs_of_the_script(board: Board, page_origin: str) -> None:
    seen = result_of(CALLS, page_origin, board.http, board.token("verbs"))
    assert seen == [
        *(1, 2, "a/b", None),
        *(412, 412, 422, 400, 401),
        *("put score:a/b", "gone score:a/b", 0),
    ]


SHOUTS = """from keyhouse import Record, Schema, Space, per_write

SHOUT = Record(str, "shout:{user}", name="shout", expiry=per_write())
NOW = Record(str, "now", name="now", expiry=per_write())
SHOUTS = Schema("shouts", SHOUT, NOW, space=Space("a channel"))
"""

EXPIRING = """async ([service, token]) => {
  const { Keyhouse } = await import(`${service}/assets/keyhouse.js`);
  const store = new Keyhouse(`${service}/shouts`, token);
  const seen = [await store.get("now", [])];
  await store.put("now", [], "a song", { ttl: 600 });
  seen.push((await store.get("now", [])).value);
  await store.put("shout", ["ada"], "hi", { ttl: 600 });
  await store.put("shout", ["bo"], "hello");
  const shown = [];
  await new Promise((resolve) => {
    const stop = store.live("shout", (items) => {
      shown.push(items.map((item) => item.fields.user).join());
      if (shown.length === 1) store.put("shout", ["ada"], "hi", { ttl: 1 });
      if (items.length === 1) resolve(stop());
    });
  });
  return [...seen, ...shown];
}"""


def test_live_renders_again_when_an_item_expires(board: Board, page_origin: str) -> None:
    """The sweep, which reports it to a watch, comes only every five minutes."""
    given = board.token("shouts", "shouts:SHOUTS")
    seen = result_of(EXPIRING, page_origin, board.http, given)
    assert list(dict.fromkeys(seen)) == [None, "a song", "ada,bo", "bo"]


def test_a_watch_of_the_script_survives_a_restart(
    tmp_path: Path, page_origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scores.py").write_text((OVERLAY / "scores.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    from scores import SCORE, SCORES, Score

    reserved = socket.socket()  # no other process gets its port during the restart
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{reserved.getsockname()[1]}"
    start = partial(
        serving, tmp_path, "scores:SCORES", *("--http", address),
        KEYHOUSE_HTTP_CORS_ORIGINS=page_origin,
    )  # fmt: skip

    async def scenario(browser: Pages) -> None:
        page = await (await browser.context()).new_page()
        with start() as first:
            given = token(tmp_path, "ch")
            await page.goto(f"{page_origin}/overlay.html#service={first.http}&token={given}")
            await page.wait_for_function("document.readyState === 'complete'")
            assert first.end() == 0
        with start() as second:
            async with RemoteStore(SCORES, second.http, given) as store:
                await store.put(SCORE, Score(id="late", name="Late", points=1))
            await page.wait_for_selector("#scores li", timeout=60_000)

    with reserved:
        run_in_browser(scenario)
