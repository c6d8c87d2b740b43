"""Many rows in a real browser, on SQLite and on a server engine: a million in `make test-all`."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.async_api import expect

from keyhouse import Store
from keyhouse.engine import Batch, Put
from tests.browser.support.visitor import Studio, open_studio
from tests.sizes import size

pytestmark = pytest.mark.browser

BOOKS: Final = size(25_000, 500_000, 500_000)
BOOKS_PER_COMMIT: Final = 5_000


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.extra)]
)
def studio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Studio]:
    with open_studio(request.param, tmp_path_factory.mktemp("studio")) as opened:
        yield opened


async def load(store: Store) -> None:
    """Write books and their index rows, without the store, which is slower."""
    for first in range(0, BOOKS, BOOKS_PER_COMMIT):
        puts: list[Put] = []
        for number in range(first, first + BOOKS_PER_COMMIT):
            id, author = f"n{number:07d}", f"a{number % 100:02d}"
            value = f'{{"id":"{id}","title":"Title {number}","author":"{author}"}}'
            puts += (Put(f"book:{id}", value.encode()), Put(f"by-author:{author}:{id}", b"1"))
        await store.engine.commit(store.space, Batch(puts=tuple(puts)))


@pytest.mark.soak
def test_many_rows_are_browsed_by_tree_table_and_index(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        await load(store)
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/") as page,
        ):
            if BOOKS == 500_000:  # fewer may be counted in time
                assert "at least" in await page.locator("main").inner_text()
            await page.get_by_role("link", name="Key tree").click()
            await page.get_by_role("link", name="by-author:", exact=False).click()
            nodes = page.locator("ul.tree > li")
            # each author once, with the two of the first books
            await expect(nodes).to_have_count(102, timeout=45_000)
            await page.get_by_role("link", name="a42:", exact=False).click()
            await page.get_by_role("link", name="Next keys").click()
            await page.get_by_role("link", name="n0020042", exact=True).click()
            await page.get_by_role("link", name="book:n0020042", exact=True).click()
            await page.get_by_role("heading", name="book:n0020042").wait_for()
            query = f"author%3Da42+id%3E%3Dn{BOOKS - 100:07d}"
            await page.goto(f"{studio.visitor.url}{space}/book?q={query}")
            assert await page.locator("tbody tr").count() == 1
            await page.goto(f"{studio.visitor.url}{space}/book")
            await page.get_by_role("link", name="Next records").click()
            await page.get_by_role("link", name="book:n0000050", exact=True).wait_for()

    studio.run("million", scenario)
