"""The guide to song requests, and the example that it walks through, as a user would run them."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.serve.support.serve_process import Serving, environment, serving
from tests.support.browser_pages import check_page, open_browser
from tests.support.program import run, write_program

EXAMPLE = ROOT / "examples" / "song_requests"
PAGE = (DOCS / "guides" / "song-requests.md").read_text()
ULID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")


def served(folder: Path) -> Any:
    for file in EXAMPLE.rglob("*"):
        if file.suffix in (".py", ".html", ".js", ".css"):
            to = folder / file.relative_to(EXAMPLE)
            to.parent.mkdir(exist_ok=True)
            to.write_text(file.read_text())
    (folder / "keyhouse.toml").write_text(blocks(PAGE, "toml")[0])
    arguments = ("songs:SONGS", "--pages", "overlay", "--nats", "off")
    return serving(folder, *arguments, data="keyhouse-data")


def token(folder: Path, *scopes: str) -> str:
    given = [word for scope in scopes for word in ("--scope", scope)]
    printed = run("token", "songs:SONGS", "--space", "channel", *given, cwd=folder)
    return printed.stdout.strip()


def test_the_guide_shows_the_example() -> None:
    assert blocks(PAGE, "python")[0] == (EXAMPLE / "songs.py").read_text()
    assert len((EXAMPLE / "songs.py").read_text().splitlines()) < 150


def test_the_rules_of_the_example_pass_their_own_tests(tmp_path: Path) -> None:
    pytest_options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(EXAMPLE))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *pytest_options, "test_songs.py"],
        cwd=EXAMPLE,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path) -> None:
    shell = blocks(PAGE, "sh")
    program = write_program(tmp_path / "bin")
    with served(tmp_path) as running:
        script = "\n".join([f'PATH="{program.parent}:$PATH"', *shell[1:]])
        done = subprocess.run(
            ["bash", "-c", script.replace("http://127.0.0.1:8080", running.http)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        *lines, address = ULID.sub("ULID", done.stdout).splitlines()
        assert lines == ULID.sub("ULID", blocks(PAGE, "text")[0]).splitlines(), done.stderr
        assert address.startswith(f"{running.http}/pages/#ey")
        assert running.end() == 0


@pytest.mark.browser
def test_the_overlay_shows_three_live_lists(tmp_path: Path) -> None:
    async def scenario(running: Serving) -> None:
        from songs import NOW, REQUEST, SONG, SONGS, Song, SongRequest, request_song

        from keyhouse import RemoteStore

        writer, reader = token(tmp_path), token(tmp_path, "read")
        async with open_browser() as browser, RemoteStore(SONGS, running.http, writer) as store:
            await store.put(SONG, Song(id="1", title="Blue <b>Moon</b>"))
            context = await browser.context(width=1_280)
            page = await context.new_page()
            problems: list[str] = []
            console: list[tuple[str, str]] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda each: console.append((each.type, each.text)))
            await page.goto(f"{running.http}/pages/#{reader}")
            queued = await store.call(
                request_song, SongRequest(user="ada", title="blue <b>moon</b>")
            )
            await page.wait_for_selector("#queue li")
            await page.wait_for_selector("#best li")
            shown = page.locator("#queue li, #best li")
            assert await shown.all_inner_texts() == ["Blue <b>Moon</b> (ada)", "ada 10"]
            await store.put(NOW, "Blue Moon", ttl=180)
            await page.locator("#now", has_text="Blue Moon").wait_for()
            await store.delete(REQUEST, id=queued.id)
            await page.locator("#queue li").wait_for(state="detached")
            called = await page.evaluate(
                """async ([token]) => {
                  const { Keyhouse } = await import("/assets/keyhouse.js");
                  const store = new Keyhouse("/songs", token);
                  const asked = { user: "bo", title: "blue <b>moon</b>" };
                  const { points } = await store.call("request_song", asked);
                  const again = await store.call("request_song", asked).catch((error) => error);
                  return [points, again.type, again.status];
                }""",
                [writer],
            )
            assert called == [10, "cooldown", 409]
            await check_page(page)
            await context.close()
            failed = [text for kind, text in console if kind == "error" and "409" not in text]
            assert (problems, failed) == ([], [])

    with served(tmp_path) as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(tmp_path))
            asyncio.run(scenario(running))
        assert running.end() == 0
