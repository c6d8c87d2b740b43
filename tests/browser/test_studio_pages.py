"""The pages of the Studio in a real browser: accessible, by keyboard, without scripts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page
from prometheus_client import CollectorRegistry

from keyhouse import Store
from keyhouse.http.metrics import HttpMetrics
from tests.browser.support.visitor import PAGES, Studio, open_studio
from tests.studio.support.library import BOOK, Book
from tests.support.browser_pages import check_themes

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def studio(folder: Path) -> Iterator[Studio]:
    with open_studio("sqlite", folder) as opened:
        yield opened


@pytest.mark.soak
def test_every_page_opens_with_a_heading_and_is_accessible_in_every_theme_and_width(
    studio: Studio,
) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit("/studio/", allowed_errors=("404",)) as page,
        ):
            for path in PAGES:
                answer = await page.goto(f"{studio.visitor.url}{path.replace('{space}', space)}")
                assert answer is not None
                assert answer.status == (404 if path.endswith("/nothing") else 200), path
                assert await page.locator("h1").inner_text(), path
                await check_themes(page)
        await studio.visitor.browser.check(f"{studio.visitor.url}/studio/login")
        await studio.visitor.browser.check(f"{studio.visitor.url}/")

    studio.run("accessible", scenario)


@pytest.mark.soak
def test_answers_to_forms_are_accessible_too(studio: Studio) -> None:
    """Preview, conflict, error, revealed key, wrong number and job: pages that have no link."""

    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(
                f"{space}/edit?k=book:b000", allowed_errors=("400", "409", "412")
            ) as page,
        ):
            await page.get_by_label("author").fill("asimov")
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_text("Preview: the commit").wait_for()
            await check_themes(page)
            await page.get_by_label("pages").fill("many")
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_role("alert").wait_for()
            await check_themes(page)
            await store.put(BOOK, Book("b000", "By another", "lem"))
            await page.get_by_label("pages").fill("1")
            await page.get_by_role("button", name="Save").click()
            await page.get_by_role("region", name="Conflict").wait_for()
            await check_themes(page)
            await page.goto(f"{studio.visitor.url}{space}/key?k=book:b001")
            await page.get_by_role("button", name="Reveal").click()
            await page.get_by_text("secret friend").wait_for()
            await check_themes(page)
            await page.goto(f"{studio.visitor.url}{space}/bulk?prefix=shelf:")
            await page.get_by_label("Type the number of records").fill("7")
            await page.get_by_role("button", name="Delete 1 record").click()
            await page.get_by_role("alert").wait_for()
            await check_themes(page)
            await page.get_by_label("Type the number of records").fill("1")
            await page.get_by_role("button", name="Delete 1 record").click()
            await page.get_by_text("completed").wait_for()
            await check_themes(page)
            await page.goto(f"{studio.visitor.url}/studio/journal")
            await page.get_by_text("Before and after").first.click()
            await page.get_by_label("Before", exact=True).get_by_text("hall").wait_for()
            await check_themes(page)
            change = await page.locator("details[hx-get]").first.get_attribute("hx-get")
            await page.goto(f"{studio.visitor.url}{change}")
            await check_themes(page)

    studio.run("answers", scenario)


async def arrived(page: Page, heading: str) -> None:
    """Wait for a page with this heading, and for its scripts, which handle keys."""
    await page.get_by_role("heading", name=heading).wait_for()
    await page.wait_for_load_state()


def test_keys_move_filter_and_edit_without_a_mouse(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator() as operator,
            operator.visit(f"{space}/book") as page,
        ):
            await page.keyboard.press("/")
            await page.keyboard.type("author=lem")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/book?*author*")
            await page.get_by_role("link", name="book:b002").wait_for()
            await page.wait_for_load_state()
            await page.keyboard.press("j")
            await page.keyboard.press("j")
            await page.keyboard.press("Enter")
            await arrived(page, "book:b002")
            await page.keyboard.press("?")
            assert await page.locator("#help").is_visible()
            await page.keyboard.press("Escape")
            await page.keyboard.press("Control+k")
            await page.keyboard.type("by-author")
            await page.keyboard.press("Enter")
            await arrived(page, "by-author:lem:b002")
            await page.keyboard.press("g")
            await page.keyboard.type("book:b002")
            await page.keyboard.press("Enter")
            await arrived(page, "book:b002")
            await page.keyboard.press("e")
            await page.get_by_label("title").wait_for()

    studio.run("keyboard", scenario)


def test_pages_work_without_scripts(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(scripts=False, unlocked=True) as operator,
            operator.visit(f"{space}/edit?k=book:b000") as page,
        ):
            await page.get_by_label("title").fill("Plain")
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_text("Preview: the commit").wait_for()
            await page.get_by_role("button", name="Save").click()
            await page.get_by_text("title:Plain").wait_for()
            await page.goto(f"{studio.visitor.url}{space}/book")
            await page.get_by_label("Select book:b001").check()
            await page.get_by_role("button", name="Delete selected").click()
            await page.get_by_text("1 selected").wait_for()

    studio.run("no scripts", scenario)


def test_the_filter_completes_its_last_word_and_all_rows_are_chosen(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/book") as page,
        ):
            await page.get_by_label("Filter", exact=True).fill("author=lem ")
            options = await page.evaluate(
                "[...document.querySelector('#fields').options].map(o => o.value)"
            )
            assert "author=lem id=" in options
            assert "author=lem author=" not in options
            export = page.get_by_role("button", name="Export selected")
            assert await export.is_disabled(), "nothing is selected"
            await page.get_by_label("Select all records of this page").check()
            assert await page.locator("input[name=k]:checked").count() == 3
            assert await export.is_enabled()
            await page.get_by_label("Select all records of this page").uncheck()
            assert await export.is_disabled()

    studio.run("complete", scenario)


def test_more_selected_keys_than_an_address_holds_are_not_sent(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        for number in range(20):
            id = f"long-{number:02d}-{'x' * 900}"
            await store.put(BOOK, Book(id, f"Long {number}", "asimov"))
        async with (
            studio.visitor.operator() as operator,
            operator.visit(f"{space}/book?author=asimov") as page,
        ):
            await page.get_by_label("Select all records of this page").check()
            for name in ("Export selected", "Delete selected"):
                assert await page.get_by_role("button", name=name).is_disabled()
            await page.get_by_text("select fewer").wait_for()
            await check_themes(page)
            for number in range(10):
                await page.locator("input[name=k]").nth(number).uncheck()
            await page.get_by_role("button", name="Delete selected").click()
            await page.get_by_text("10 selected").wait_for()

    studio.run("long", scenario)


def test_a_phone_has_a_head_of_one_line_and_a_table_that_shows_that_it_scrolls(
    studio: Studio,
) -> None:
    """The head took four lines, and a wide table was cut at the edge without a hint."""

    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/book") as page,
        ):
            for width in (320, 390):
                await page.set_viewport_size({"width": width, "height": 800})
                head = await page.locator(".top").bounding_box()
                assert head is not None and head["height"] < 60
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert await page.evaluate(wide), "the page itself does not scroll sideways"
                shades = await page.locator(".table").evaluate(
                    "each => [each.scrollWidth > each.clientWidth,"
                    " getComputedStyle(each).backgroundAttachment]"
                )
                assert shades[0] and shades[1].startswith("local, local, scroll, scroll")

    studio.run("phone", scenario)


def test_slow_shows_its_percentiles_on_a_phone(studio: Studio) -> None:
    """The first columns were as wide as the phone, and the percentiles out of sight."""

    async def scenario(space: str, store: Store) -> None:
        metrics = HttpMetrics(CollectorRegistry())
        metrics.count("GET", "/library/books/{id}/chapters/{number}", 200, 0.004)
        studio.visitor.served.studio.show_requests(metrics)
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit("/studio/slow") as page,
        ):
            await check_themes(page)
            await page.set_viewport_size({"width": 390, "height": 800})
            for label in ("p50 ms", "p95 ms", "p99 ms"):
                cell = page.locator(f"td[data-label='{label}']").first
                box = await cell.bounding_box()
                assert box is not None and box["x"] + box["width"] <= 390, label

    studio.run("slow", scenario)
