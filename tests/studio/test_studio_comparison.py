"""Texts side by side: the lines that differ are marked, in a bounded time."""

import asyncio
import random
import threading
from collections.abc import Awaitable
from pathlib import Path
from time import thread_time
from typing import Any, Final

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.http import HtmlPage
from keyhouse.studio.line_comparison import PAGE_STEPS_MAX, LineComparer, Pieces
from keyhouse.studio.page_routes import PageRoutes
from tests.studio.support.library import BOOK, Book, Library, run

MAIN: Final = "/studio/library/main"
_random = random.Random(7)
LINES: Final = 500
WORST: Final = {
    "every second line is equal": (
        ["0" if each % 2 else "1" for each in range(LINES)],
        ["0" if each % 2 else "2" for each in range(LINES)],
    ),
    "every second line is equal, the others are unique": (
        ["0" if each % 2 else f"a{each}" for each in range(LINES)],
        ["0" if each % 2 else f"b{each}" for each in range(LINES)],
    ),
    "two lines, at random": (
        [_random.choice("01") for _ in range(LINES)],
        [_random.choice("01") for _ in range(LINES)],
    ),
    "reversed": (
        [str(each) for each in range(LINES)],
        [str(each) for each in range(LINES, 0, -1)],
    ),
    "one line, repeated": (["1", *["0"] * LINES, "1"], ["2", *["0"] * LINES, "2"]),
}
few_lines = st.lists(st.sampled_from(["", "a", "b", "c\u2028"]), max_size=12).map("\n".join)


def unmarked(pieces: Pieces) -> list[str]:
    """Return the lines without a mark. The last line of a text has no line end."""
    lines: list[str] = []
    for place, (piece, is_changed) in enumerate(pieces):
        if not is_changed:
            text = piece if place == len(pieces) - 1 else piece.removesuffix("\n")
            lines += text.split("\n")
    return lines


@given(few_lines | st.text(), few_lines | st.text())
def test_compared_texts_keep_every_character_and_their_unmarked_lines_are_the_same(
    before: str, after: str
) -> None:
    both = LineComparer().compare(before, after)
    assert both.is_marked
    assert "".join(piece for piece, _ in both.before) == before
    assert "".join(piece for piece, _ in both.after) == after
    assert unmarked(both.before) == unmarked(both.after)
    same = LineComparer().compare(before, before)
    assert not any(is_changed for pieces in same[:2] for _, is_changed in pieces)


@given(few_lines, few_lines)
def test_as_few_lines_as_possible_are_marked(before: str, after: str) -> None:
    lines, others = before.split("\n"), after.split("\n")
    longest = [[0] * (len(others) + 1) for _ in range(len(lines) + 1)]
    for x, line in enumerate(lines):
        for y, other in enumerate(others):
            more = longest[x][y] + 1 if line == other else 0
            longest[x + 1][y + 1] = max(longest[x][y + 1], longest[x + 1][y], more)
    both = LineComparer().compare(before, after)
    assert len(unmarked(both.before)) == longest[-1][-1]


def test_only_lines_that_differ_are_marked() -> None:
    both = LineComparer().compare("{\n 1,\n 2\n}", "{\n 1,\n 3\n}")
    assert both.before == [("{\n 1,\n", False), (" 2\n", True), ("}", False)]
    assert both.after == [("{\n 1,\n", False), (" 3\n", True), ("}", False)]


def test_an_absent_text_marks_the_whole_other_one() -> None:
    assert LineComparer().compare(None, "a\nb") == ([], [("a\nb", True)], True)
    assert LineComparer().compare("a", None) == ([("a", True)], [], True)


@pytest.mark.parametrize("kind", WORST)
def test_the_worst_thousand_lines_are_compared_in_a_few_milliseconds(kind: str) -> None:
    before, after = map("\n".join, WORST[kind])
    best = 1.0
    for _ in range(5):
        start = thread_time()
        LineComparer().compare(before, after)
        best = min(best, thread_time() - start)
    assert best < 0.1, "0.55 s when the longest run of equal lines was searched again and again"


def test_texts_beyond_the_steps_of_a_page_are_shown_without_marks() -> None:
    before, after = map("\n".join, WORST["reversed"])
    comparer = LineComparer()
    assert comparer.compare(before, after) == ([(before, False)], [(after, False)], False)
    start = thread_time()
    for _ in range(200):
        comparer.compare(before, after)
    assert thread_time() - start < 0.5, "the page has no steps left"
    long = "\n" * PAGE_STEPS_MAX
    assert not LineComparer().compare(long, "").is_marked


async def longest_turn(request: Awaitable[httpx.Response]) -> tuple[httpx.Response, float]:
    """Return the response, and the longest CPU time for which nothing else ran here."""
    sending = asyncio.ensure_future(request)
    longest, last = 0.0, thread_time()
    while not sending.done():
        await asyncio.sleep(0)
        longest, last = max(longest, thread_time() - last), thread_time()
    return await sending, longest


async def write_long_change(served: Library, texts: tuple[list[str], list[str]]) -> str:
    before, after = (
        msgspec.json.encode(Book("b000", "Title 0", "lem", tags=tags, lender="friend")).decode()
        for tags in texts
    )
    return await served.studio.journal.write(
        "ann",
        "save",
        system="library",
        space="main",
        key="book:b000",
        before=before,
        after=after,
        revision_before=1,
        revision=2,
    )


def test_the_journal_of_long_changes_does_not_hold_up_other_requests(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        for _ in range(4):
            for texts in WORST.values():
                await write_long_change(served, texts)
        async with served.signed_in() as client:
            await client.get("/studio/journal")  # compiles the template
            page, longest = await longest_turn(client.get("/studio/journal"))
            assert page.text.count("Before and after") == 20
            assert "<del>" not in page.text, "values are loaded when a line is opened"
            assert longest < 0.25, "seconds when each line of the page was compared twice"

    run(tmp_path, scenario)


def test_a_change_shows_its_values_with_marks_and_without_private_members(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        id = await write_long_change(served, (["a", "b"], ["a", "c"]))
        many = await write_long_change(served, WORST["reversed"])
        async with served.signed_in("studio:read") as client:
            assert f'href="/studio/change?id={id}"' in (await client.get("/studio/journal")).text
            page = await client.get("/studio/change", params={"id": id})
            assert "<del>    &#34;b&#34;\n</del>" in page.text
            assert "<ins>    &#34;c&#34;\n</ins>" in page.text
            twin = (await client.get("/studio/change.json", params={"id": id})).json()
            assert '"b"' in twin["before"]
            assert "friend" not in page.text + str(twin)
            page = await client.get("/studio/change", params={"id": many})
            assert "not marked: there are too many" in page.text
            assert "<del>" not in page.text
            other = next(id[:-1] + last for last in "012" if id[:-1] + last not in (id, many))
            absent = await client.get("/studio/change", params={"id": other})
            assert absent.status_code == 404

    run(tmp_path, scenario)


def test_a_page_of_the_journal_ends_after_a_megabyte_of_values(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        for _ in range(12):
            await write_long_change(served, (["x" * 150_000], ["y" * 150_000]))
        async with served.signed_in() as client:
            found, cursor = 0, ""
            for _ in range(4):
                page = (await client.get("/studio/journal.json", params={"cursor": cursor})).json()
                assert len(page["lines"]) <= 5
                found += sum(line["action"] == "save" for line in page["lines"])
                cursor = page["cursor"]
                if not cursor:
                    break
            assert found == 12

    run(tmp_path, scenario)


def test_a_preview_of_many_rows_shows_the_first_and_counts_the_others(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        await served.store.put(BOOK, Book("b000", "Title 0", "lem"))
        tags = [f"t{number:04d}" for number in range(1_000)]
        book = Book("b000", "Title 0", "lem", tags=tags)
        text = msgspec.json.encode(book).decode().replace(',"lender":""', "")
        async with served.signed_in("studio:read") as client:
            address = {"k": "book:b000", "mode": "text"}
            page = (await client.get(f"{MAIN}/edit.json", params=address)).json()
            form = {"revision": page["revision"], "action": "preview", "text": text}
            answer = await client.post(f"{MAIN}/edit", params=address, data=form)
            assert answer.status_code == 200, answer.text
            assert "put book:b000</h3>" in answer.text
            assert answer.text.count("</h3>") == 200
            assert "801 more rows change" in answer.text
            assert "put 801 more" in answer.text
            assert "<dt>puts</dt><dd>1001</dd>" in answer.text

    run(tmp_path, scenario)


def test_pages_are_rendered_beside_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(served: Library) -> None:
        pages = served.studio.pages
        threads: list[threading.Thread] = []

        def render(*arguments: Any, **options: Any) -> HtmlPage:
            threads.append(threading.current_thread())
            return PageRoutes.render_now(pages, *arguments, **options)

        async with served.signed_in() as client:
            monkeypatch.setattr(pages, "render_now", render)
            await client.get(f"{MAIN}/edit?k=book:b000&mode=text")
            form = {"revision": "1", "action": "preview", "text": "{}"}
            await client.post(f"{MAIN}/edit?k=book:b000&mode=text", data=form)
        assert len(threads) == 2
        assert threading.current_thread() not in threads, "a long value takes a tenth of a second"

    run(tmp_path, scenario)
