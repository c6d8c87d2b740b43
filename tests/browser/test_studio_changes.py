"""Changes through the Studio in a real browser, on SQLite and on a server engine.

Every test runs on the server engine in `make test-all`, and in `make test` those that depend on
commits, watches, jobs and raw rows of an engine."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Page

from keyhouse import Store
from keyhouse.engine import Batch, Put, Span
from keyhouse.store import verify
from tests.browser.support.visitor import Studio, open_studio
from tests.studio.support.jobs import cancellation_noticed
from tests.studio.support.library import BOOK, SHELF, Book, token
from tests.support.polling import until

pytestmark = pytest.mark.browser


on_both = pytest.mark.parametrize("studio", ["sqlite", "postgres"], indirect=True, scope="module")


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.extra)]
)
def studio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Studio]:
    with open_studio(request.param, tmp_path_factory.mktemp("studio")) as opened:
        yield opened


async def changed_keys(store: Store, since: int, count: int) -> dict[str, bytes | None]:
    """Return the rows of the change log after a revision."""
    found: dict[str, bytes | None] = {}
    async with asyncio.timeout(30):
        async for change in store.engine.watch(store.space, Span(), since=since):
            found[change.key] = change.value
            if len(found) == count:
                return found
    raise AssertionError(found)


async def listed(page: Page, kind: str) -> list[str]:
    """Return the keys that the preview lists as put, deleted, and so on."""
    await page.get_by_text("Checks, puts, deletes and adds").click()
    items = await page.locator("section[aria-label=Preview] details li").all_inner_texts()
    await page.get_by_text("Checks, puts, deletes and adds").click()
    return sorted(each.removeprefix(kind).strip() for each in items if each.startswith(kind))


def test_an_operator_signs_in_walks_to_a_space_unlocks_and_signs_out(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with studio.visitor.browser.visit(f"{studio.visitor.url}{space}/") as page:
            await page.get_by_label("Operator's token").fill(token())
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("heading", name="walk", exact=True).wait_for()
            await page.get_by_role("link", name="Systems").first.click()
            await page.get_by_role("link", name="library", exact=True).click()
            await page.get_by_role("link", name="walk", exact=True).click()
            assert "book:{id}" in await page.get_by_role("region", name="Records").inner_text()
            await page.get_by_role("button", name="Unlock").click()
            await page.get_by_role("status").filter(has_text="Edits are unlocked").wait_for()
            await page.get_by_role("button", name="Lock").click()
            await page.get_by_role("button", name="Sign out").click()
            await page.get_by_label("Operator's token").wait_for()
            await page.goto(f"{studio.visitor.url}{space}/")
            await page.get_by_label("Operator's token").wait_for()

    studio.run("walk", scenario)


def test_an_index_row_leads_to_its_record_and_back(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/key?k=by-author:lem:b000") as page,
        ):
            await page.get_by_role("link", name="book:b000", exact=True).click()
            await page.get_by_role("heading", name="book:b000").wait_for()
            related = await page.get_by_role("region", name="Derived rows").inner_text()
            for key in ("by-author:lem:b000", "by-tag:sf:b000", "title:Title 0"):
                assert key in related
            await page.get_by_role("link", name="by-author:lem:b000", exact=True).click()
            await page.get_by_role("heading", name="by-author:lem:b000").wait_for()

    studio.run("follow", scenario)


@on_both
def test_a_preview_is_what_is_committed_and_an_undo_takes_it_back(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        before = {row.key: row.value async for row in store.row_scan()}
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/key?k=book:b000") as page,
        ):
            await page.get_by_role("link", name="Edit", exact=True).click()
            await page.get_by_label("author").fill("asimov")
            await page.get_by_role("button", name="Preview", exact=True).click()
            puts, deletes = await listed(page, "put"), await listed(page, "delete")
            assert puts == ["book:b000", "by-author:asimov:b000"]
            assert deletes == ["by-author:lem:b000"]
            since = await store.revision()
            await page.get_by_role("button", name="Save").click()
            await page.get_by_text("by-author:asimov:b000").wait_for()
            changed = await changed_keys(store, since, len(puts) + len(deletes))
            assert sorted(key for key, value in changed.items() if value is not None) == puts
            assert sorted(key for key, value in changed.items() if value is None) == deletes
            await page.get_by_role("link", name="Journal").click()
            await page.get_by_role("button", name="Undo save of book:b000").first.click()
            await page.get_by_role("link", name="by-author:lem:b000").wait_for()
        assert {row.key: row.value async for row in store.row_scan()} == before

    studio.run("preview", scenario)


def test_an_edit_meets_that_of_another_client(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/edit?k=book:b000", allowed_errors=("412", "409")) as page,
        ):
            await page.get_by_label("author").fill("asimov")
            await store.put(BOOK, Book("b000", "By another", "lem"))
            await page.get_by_role("button", name="Save").click()
            conflict = await page.get_by_role("region", name="Conflict").inner_text()
            assert "By another" in conflict
            assert "asimov" in conflict
            assert (await store.get(BOOK, id="b000")).title == "By another"  # type: ignore[union-attr]
            await page.get_by_role("button", name="Save").click()
            await page.get_by_text("by-author:asimov:b000").wait_for()

    studio.run("conflict", scenario)


def test_unlock_on_the_page_of_an_edit_keeps_what_was_typed(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator() as operator,
            operator.visit(f"{space}/edit?k=book:b000") as page,
        ):
            await page.get_by_label("author").fill("asimov")
            assert await page.get_by_role("button", name="Save").is_disabled()
            await page.get_by_role("button", name="Unlock").click()
            await page.get_by_text("Edits are unlocked.").wait_for()
            assert await page.get_by_label("author").input_value() == "asimov"
            await page.get_by_label("author").press("Enter")
            await page.get_by_text("Preview: the commit").wait_for()
            await page.get_by_role("button", name="Save").click()
            await page.get_by_role("heading", name="book:b000").wait_for()
            await page.goto(f"{studio.visitor.url}{space}/edit?k=book:b000&mode=text")
            editor = page.locator(".cm-content")
            await editor.click()
            await page.keyboard.press("Control+a")
            await page.keyboard.type('{"half')
            await page.get_by_role("button", name="Lock", exact=True).click()
            await page.get_by_text("Edits are locked.").wait_for()
            assert '{"half' in await page.locator(".cm-content").inner_text()
            await page.reload()
            await page.locator(".cm-content").wait_for()
        book = await store.get(BOOK, id="b000")
        assert book is not None
        assert book.author == "asimov"

    studio.run("unlock", scenario)


def test_an_edit_is_sent_again_after_the_session_has_ended(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/edit?k=book:b000", allowed_errors=("401", "403")) as page,
        ):
            await page.get_by_label("author").fill("asimov")
            [cookie] = await operator.context.cookies()
            id = str(cookie.get("value")).partition(".")[0]
            assert await studio.visitor.served.studio.sessions.stored.end(id)
            await page.get_by_role("button", name="Save").click()
            await (
                operator.context.clear_cookies()
            )  # the test's own, at another path than the Studio's
            async with operator.context.expect_page() as opened:
                await page.get_by_role("link", name="Sign in, in a new tab").click()
            login = await opened.value
            await login.get_by_label("Operator's token").fill(token())
            await login.get_by_role("button", name="Sign in").click()
            await login.get_by_role("heading", name="Systems").wait_for()
            await page.get_by_role("button", name="Send again").click()
            assert await page.get_by_label("author").input_value() == "asimov"
            await page.get_by_role("button", name="Unlock").click()
            await page.get_by_role("button", name="Save").click()
            await page.get_by_text("by-author:asimov:b000").wait_for()

    studio.run("session ended", scenario)


def test_text_is_edited_with_marked_errors_and_numbers_stay_as_typed(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/edit?k=shelf:hall&mode=text", allowed_errors=("400",)) as page,
        ):
            editor = page.locator(".cm-content")
            await editor.wait_for()
            assert await page.locator("textarea#text").is_hidden()
            await editor.click()
            await page.keyboard.press("Control+a")
            await page.keyboard.type('{"place": "hall", "height": 12345678901234567890')
            await page.locator(".cm-lint-marker-error").wait_for()
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_role("alert").wait_for()
            assert "Line 1" in await page.get_by_role("alert").inner_text()
            await page.locator(".cm-content").click()
            await page.keyboard.press("Control+End")
            await page.keyboard.type("}")
            await page.get_by_role("button", name="Preview", exact=True).click()
            await page.get_by_role("alert").wait_for()
            await page.locator(".cm-content").click()
            await page.keyboard.press("Control+a")
            await page.keyboard.type('{"place": "hall", "height": 120}')
            await page.get_by_role("button", name="Save").click()
            await page.get_by_role("heading", name="shelf:hall").wait_for()
        shelf = await store.get(SHELF, place="hall")
        assert shelf is not None
        assert shelf.height == 120

    studio.run("editor", scenario)


async def deleted(store: Store) -> bool:
    return await store.count(BOOK) < 80


@on_both
def test_a_deletion_by_filter_is_cancelled_half_way_and_undone(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(space: str, store: Store) -> None:
        commit: Any = studio.visitor.served.engine.commit
        commits, noticed = 0, cancellation_noticed(monkeypatch)

        async def slow(name: str, batch: Batch) -> int | None:
            nonlocal commits
            if name == store.space:
                commits += 1
                if commits > 3:
                    await noticed.wait()
            result: int | None = await commit(name, batch)
            return result

        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/book?q=author%3Dlem") as page,
        ):
            monkeypatch.setattr(studio.visitor.served.engine, "commit", slow)
            await page.get_by_role("link", name="Delete all of these").click()
            await page.get_by_label("Type the number of records").fill("40")
            await page.get_by_role("button", name="Delete 40 records").click()
            await until(lambda: deleted(store))
            await page.get_by_role("button", name="Cancel").click()
            await page.get_by_text("cancelled").first.wait_for()
            left = await store.count(BOOK)
            assert 40 < left < 80
            monkeypatch.undo()
            await page.get_by_role("button", name="Undo").click()
            await page.get_by_text("records put back, 0 not.").wait_for()
            assert await store.count(BOOK) == 80
            assert [each async for each in verify(store)] == []

    studio.run("bulk", scenario, books=80)


@on_both
def test_a_broken_index_is_verified_and_repaired(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        broken = Batch(puts=(Put("by-author:nobody:b9", b"1"),), deletes=("by-author:lem:b000",))
        await store.engine.commit(store.space, broken)
        async with (
            studio.visitor.operator(unlocked=True) as operator,
            operator.visit(f"{space}/verify") as page,
        ):
            await page.get_by_role("button", name="Verify", exact=True).click()
            await page.get_by_text("2 findings, 0 repaired").wait_for()
            log = await page.get_by_role("region", name="Log").inner_text()
            assert "by-author:nobody:b9" in log
            assert "by-author:lem:b000" in log
            await page.goto(f"{studio.visitor.url}{space}/verify")
            await page.get_by_role("button", name="Verify and repair").click()
            await page.get_by_text("2 findings, 2 repaired").wait_for()
        assert [each async for each in verify(store)] == []

    studio.run("verify", scenario)


@on_both
def test_a_change_of_another_client_appears_and_its_time_to_live_counts_down(
    studio: Studio,
) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/key?k=book:b000") as page,
        ):
            await page.get_by_text("Live: changes appear here.").wait_for()
            await store.put(BOOK, Book("b000", "By another", "lem"), ttl=90)
            await page.get_by_text("By another").wait_for()
            before = await page.locator("kh-ttl").inner_text()
            assert "min" in before
            await page.wait_for_function(
                "before => document.querySelector('kh-ttl').textContent !== before", arg=before
            )

    studio.run("live", scenario)


def test_a_session_that_an_administrator_revokes_sees_nothing_more(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator() as administrator,
            studio.visitor.operator("studio:read") as operator,
            administrator.visit("/studio/sessions") as sessions,
            operator.visit(f"{space}/key?k=book:b000", allowed_errors=("401",)) as page,
        ):
            await page.get_by_text("Live: changes appear here.").wait_for()
            [cookie] = await operator.context.cookies()
            id = str(cookie.get("value")).partition(".")[0]
            await sessions.reload()
            await sessions.locator(f'form:has(input[value="{id}"]) button').click()
            await sessions.locator(f'input[value="{id}"]').wait_for(state="detached")
            await store.put(BOOK, Book("b000", "Unseen", "lem"))
            await page.get_by_text("No longer live").wait_for()
            assert "Unseen" not in await page.locator("main").inner_text()
            await page.get_by_role("link", name="Journal").click()
            await page.get_by_label("Operator's token").wait_for()
            await sessions.get_by_role("link", name="Journal").click()
            await sessions.get_by_role("cell", name="revoke session").first.wait_for()

    studio.run("revoked", scenario)


def test_private_members_are_masked_until_an_administrator_reveals_them(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator("studio:write") as operator,
            operator.visit(f"{space}/key?k=book:b000") as page,
        ):
            assert "secret friend" not in await page.content()
            assert await page.get_by_role("button", name="Reveal").count() == 0
        async with (
            studio.visitor.operator() as operator,
            operator.visit(f"{space}/key?k=book:b000") as page,
        ):
            assert "secret friend" not in await page.content()
            await page.get_by_role("button", name="Reveal").click()
            await page.get_by_text("secret friend").wait_for()
            await page.get_by_role("link", name="Journal").click()
            await page.get_by_role("cell", name="reveal").first.wait_for()

    studio.run("masked", scenario)


def test_selected_records_are_downloaded(studio: Studio) -> None:
    async def scenario(space: str, store: Store) -> None:
        async with (
            studio.visitor.operator("studio:read") as operator,
            operator.visit(f"{space}/book") as page,
        ):
            for key in ("book:b000", "book:b002"):
                await page.get_by_label(f"Select {key}").check()
            async with page.expect_download() as started:
                await page.get_by_role("button", name="Export selected").click()
            text = (await (await started.value).path()).read_text()
            assert [line.count("book:b00") for line in text.splitlines()] == [1, 1]
            assert "secret friend" not in text

    studio.run("export", scenario)
