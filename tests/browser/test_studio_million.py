"""A million rows in a real browser, on SQLite and on a server engine.

Rows are written by SQL, which is faster than commits, before any page reads them.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
from playwright.async_api import expect

from keyhouse import Store
from tests.browser.support.visitor import Studio, open_studio

pytestmark = pytest.mark.browser

SQLITE: Final = """
INSERT INTO rows (space, key, revision, expires, large, value)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 499999)
SELECT ?1, printf('book:n%07d', i), 1, NULL, NULL,
  printf('{"id":"n%07d","title":"Title %d","author":"a%02d"}', i, i, i % 100) FROM n
UNION ALL
SELECT ?1, printf('by-author:a%02d:n%07d', i % 100, i), 1, NULL, NULL, '1' FROM n
"""
POSTGRES: Final = """
INSERT INTO keyhouse_rows (space, key, revision, value)
SELECT $1, 'book:n' || lpad(i::text, 7, '0'), 1,
  format('{"id":"n%s","title":"Title %s","author":"a%s"}',
    lpad(i::text, 7, '0'), i, lpad((i % 100)::text, 2, '0'))
FROM generate_series(0, 499999) AS i
UNION ALL
SELECT $1, 'by-author:a' || lpad((i % 100)::text, 2, '0') || ':n' || lpad(i::text, 7, '0'), 1, '1'
FROM generate_series(0, 499999) AS i
"""


async def load_sqlite(engine: Any, folder: Path, space: str) -> None:
    connection = apsw.Connection(str(folder / "rows.db"))
    connection.execute(SQLITE, (space,))
    connection.close()


async def load_postgres(engine: Any, folder: Path, space: str) -> None:
    connection = await engine._writes.acquire()
    await connection.execute(POSTGRES, space)
    await connection.execute("ANALYZE keyhouse_rows")
    engine._writes.release(connection)


LOAD: Final[dict[str, Callable[[Any, Path, str], Awaitable[None]]]] = {
    "sqlite": load_sqlite,
    "postgres": load_postgres,
}


@pytest.fixture(scope="module", params=LOAD)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Studio, Callable[[str], Awaitable[None]]]]:
    folder = tmp_path_factory.mktemp("studio")
    with open_studio(request.param, folder) as studio:

        async def load(space: str) -> None:
            await LOAD[request.param](studio.visitor.served.engine, folder, space)

        yield studio, load


def test_a_million_rows_are_browsed_by_tree_table_and_index(
    loaded: tuple[Studio, Callable[[str], Awaitable[None]]],
) -> None:
    studio, load = loaded

    async def scenario(space: str, store: Store) -> None:
        await load(store.space)
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/") as page,
        ):
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
            await page.goto(f"{studio.visitor.url}{space}/book?q=author%3Da42+id%3E%3Dn0499900")
            assert await page.locator("tbody tr").count() == 1
            await page.goto(f"{studio.visitor.url}{space}/book")
            await page.get_by_role("link", name="Next records").click()
            await page.get_by_role("link", name="book:n0000050", exact=True).wait_for()

    studio.run("million", scenario)
