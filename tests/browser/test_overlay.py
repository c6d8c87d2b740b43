"""`keyhouse.js` in a real browser: the overlay of the examples updates live."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from keyhouse import RemoteStore
from tests.docs.pages import ROOT
from tests.serve.support.serve_process import Serving, serving
from tests.support.browser_pages import check_page, open_browser
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


def token(folder: Path, schema: str = "scores:SCORES") -> str:
    data = str(folder / "data")
    return run("token", schema, "--space", "ch", "--data", data, cwd=folder).stdout.strip()


def started(folder: Path, origin: str, *arguments: str) -> Any:
    (folder / "scores.py").write_text((OVERLAY / "scores.py").read_text())
    return serving(folder, "scores:SCORES", *arguments, KEYHOUSE_HTTP_CORS_ORIGINS=origin)


async def result_of(script: str, origin: str, service: str, given: str) -> list[object]:
    """Return the result of a script in a page of this origin."""
    async with open_browser() as browser:
        context = await browser.context()
        page = await context.new_page()
        await page.goto(f"{origin}/overlay.css")
        result: list[object] = await page.evaluate(script, [service, given])
        await context.close()
        return result


def test_the_script_is_small() -> None:
    assert SCRIPT.stat().st_size < 8 * 1_024


def test_the_overlay_updates_live(tmp_path: Path, page_origin: str) -> None:
    async def scenario(running: Serving) -> None:
        from scores import SCORE, SCORES, Score  # type: ignore[import-not-found]

        given = token(tmp_path)
        async with open_browser() as browser, RemoteStore(SCORES, running.http, given) as store:
            await store.put(SCORE, Score(id="ada", name="Ada", points=3))
            context = await browser.context(width=1_280)
            page = await context.new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            url = f"{page_origin}/overlay.html#service={running.http}&token={given}"
            await page.goto(url)
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
            await context.close()

    with started(tmp_path, page_origin) as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(tmp_path))
            asyncio.run(scenario(running))
        assert running.end() == 0


def test_the_overlay_is_a_page_of_the_service(tmp_path: Path) -> None:
    """It needed a second web server, or a page opened as a file, and CORS."""

    async def scenario(running: Serving) -> None:
        given = token(tmp_path)
        at = ("--service", running.http, "--token", given)
        run("put", "scores:SCORES", "score:ada", '{"name": "Ada"}', *at, cwd=tmp_path)
        async with open_browser() as browser:
            context = await browser.context()
            page = await context.new_page()
            await page.goto(f"{running.http}/pages/overlay.html#token={given}")
            await page.wait_for_selector("#scores li")
            assert await page.locator("#scores li").all_inner_texts() == ["Ada\n0"]
            await context.close()

    (tmp_path / "scores.py").write_text((OVERLAY / "scores.py").read_text())
    with serving(tmp_path, "scores:SCORES", "--pages", str(BOARD)) as running:
        asyncio.run(scenario(running))
        assert running.end() == 0


def test_the_overlay_works_as_a_file(tmp_path: Path) -> None:
    """Its script was a module, which a page opened as a file may not load."""

    async def scenario(running: Serving) -> None:
        given = token(tmp_path)
        made = run(
            *("put", "scores:SCORES", "score:ada", '{"name": "Ada", "points": 3}'),
            *("--service", running.http, "--token", given),
            cwd=tmp_path,
        )
        assert "Stored" in made.stdout
        async with open_browser() as browser:
            context = await browser.context()
            page = await context.new_page()
            url = (BOARD / "overlay.html").as_uri()
            await page.goto(f"{url}#service={running.http}&token={given}")
            await page.wait_for_selector("#scores li")
            assert await page.locator("#scores li").all_inner_texts() == ["Ada\n3"]
            await page.goto("about:blank")
            await page.goto(f"{url}#service=http://127.0.0.1:1&token={given}")
            await page.wait_for_function("document.getElementById('state').textContent !== ''")
            await context.close()

    with started(tmp_path, "*") as running:
        asyncio.run(scenario(running))
        assert running.end() == 0


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


def test_the_verbs_of_the_script(tmp_path: Path, page_origin: str) -> None:
    with started(tmp_path, page_origin) as running:
        seen = asyncio.run(result_of(CALLS, page_origin, running.http, token(tmp_path)))
        assert seen == [
            *(1, 2, "a/b", None),
            *(412, 412, 422, 400, 401),
            *("put score:a/b", "gone score:a/b", 0),
        ]
        assert running.end() == 0


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
  await store.put("shout", ["ada"], "hi", { ttl: 6 });
  await store.put("shout", ["bo"], "hello");
  const shown = [];
  await new Promise((resolve) => {
    const stop = store.live("shout", (items) => {
      shown.push(items.map((item) => item.fields.user).join());
      if (items.length === 1) resolve(stop());
    });
  });
  return [...seen, ...shown];
}"""


def test_live_renders_again_when_an_item_expires(tmp_path: Path, page_origin: str) -> None:
    """The sweep, which reports it to a watch, comes only every five minutes."""

    (tmp_path / "shouts.py").write_text(SHOUTS)
    with serving(tmp_path, "shouts:SHOUTS", KEYHOUSE_HTTP_CORS_ORIGINS=page_origin) as running:
        given = token(tmp_path, "shouts:SHOUTS")
        seen = asyncio.run(result_of(EXPIRING, page_origin, running.http, given))
        assert seen == [None, "a song", "ada,bo", "bo"]
        assert running.end() == 0


def test_a_watch_of_the_script_survives_a_restart(tmp_path: Path, page_origin: str) -> None:
    async def scenario(browser: Any, service: str, given: str, restart: Any) -> None:
        context = await browser.context()
        page = await context.new_page()
        await page.goto(f"{page_origin}/overlay.html#service={service}&token={given}")
        await page.wait_for_function("document.readyState === 'complete'")
        again, second = restart()
        try:
            from scores import SCORE, SCORES, Score

            async with RemoteStore(SCORES, second.http, given) as store:
                await store.put(SCORE, Score(id="late", name="Late", points=1))
            await page.wait_for_selector("#scores li", timeout=60_000)
        finally:
            again.__exit__(None, None, None)
        await context.close()

    reserved = socket.socket()  # no other process gets its port during the restart
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{reserved.getsockname()[1]}"

    async def main() -> None:
        first = started(tmp_path, page_origin, "--http", address)
        running = first.__enter__()
        given = token(tmp_path)

        def restart() -> tuple[Any, Serving]:
            assert running.end() == 0
            first.__exit__(None, None, None)
            again = started(tmp_path, page_origin, "--http", address)
            return again, again.__enter__()

        async with open_browser() as browser:
            await scenario(browser, running.http, given, restart)

    with pytest.MonkeyPatch.context() as patch, reserved:
        patch.syspath_prepend(str(tmp_path))
        asyncio.run(main())
