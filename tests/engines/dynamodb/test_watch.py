"""Pages that change while they are read, and watches on the log."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Change, Row, Span
from keyhouse.errors import (
    UnavailableError,
    WatchExpiredError,
)
from tests.support.dynamodb_tables import (
    ALL,
    UNREACHED,
    first,
    intercept,
    opened,
    plain_client,
    put,
    raising,
    scenario,
    settings,
)


@scenario
async def test_a_page_changed_by_another_commit_is_read_again() -> None:
    where = settings()
    async with opened(where) as engine, opened(where) as other:
        await put(engine, "a", "b", value=b"1")
        stand = intercept(engine)
        stand.plan("transact_get_items", first(lambda: put(other, "a", "b", value=b"2")))
        page = await engine.scan("s", ALL, limit=5)
        assert page.rows == [Row("a", b"2", 2), Row("b", b"2", 2)]
        assert page.revision == 2


@scenario
async def test_a_page_is_valid_when_another_commit_is_outside_its_range() -> None:
    """Its revision was that of the process's own last commit: a watch since the page of another
    process, which had seen more, was rejected as newer than all changes."""
    where = settings()
    async with opened(where) as engine, opened(where) as other:
        await put(engine, "a", "b")
        stand = intercept(engine)
        stand.plan("transact_get_items", first(lambda: put(other, "z")))
        page = await engine.scan("s", Span("a", "c"), limit=5)
        assert ([row.key for row in page.rows], page.revision) == (["a", "b"], 2)
        assert stand.calls == ["query", "transact_get_items", "query"]


@scenario
async def test_a_page_with_a_partly_applied_transaction_is_read_again() -> None:
    """DynamoDB applies a transaction item by item: the log may briefly be ahead of a row."""
    where = settings()
    async with opened(where) as other, opened(where) as engine, plain_client() as client:
        await put(other, "a", "b", value=b"1")
        old = (
            await client.get_item(
                TableName=where.table, Key={"space": {"S": "s"}, "key": {"S": "b"}}
            )
        )["Item"]
        await put(other, "a", "b", value=b"2")

        async def lagging_row(call: Callable[[], Awaitable[Any]]) -> Any:
            answer = await call()
            return answer | {"Items": [answer["Items"][0], old]}

        async def original_call(call: Callable[[], Awaitable[Any]]) -> Any:
            return await call()

        intercept(engine).plan("query", original_call, lagging_row)
        page = await engine.scan("s", ALL, limit=5)
        assert page.rows == [Row("a", b"2", 2), Row("b", b"2", 2)]


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls do not take the steps that a test has planned."""
    monkeypatch.setattr("keyhouse.engines.dynamodb.feed.POLL_SECONDS", 3_600)


@pytest.mark.usefixtures("no_polls")
@scenario
async def test_a_watch_waits_for_a_row_older_than_its_log_entry() -> None:
    async with opened() as engine:
        await put(engine, "a", value=b"1")
        watch = engine.watch("s", ALL, since=1)
        await put(engine, "a", value=b"2")

        async def lagging_row(call: Callable[[], Awaitable[Any]]) -> Any:
            answer = await call()
            return answer | {"Item": answer["Item"] | {"revision": {"N": "1"}, "value": {"S": "1"}}}

        stand = intercept(engine)
        stand.plan("get_item", first(_do_nothing), lagging_row)  # the head, then the row
        assert await anext(watch) == Change("a", 2, b"2")
        assert "transact_get_items" in stand.calls


async def _do_nothing() -> None:
    pass


@pytest.mark.usefixtures("no_polls")
@scenario
async def test_a_started_watch_waits_for_dynamodb_and_a_new_one_raises() -> None:
    async with opened() as engine:
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await anext(watch)).key == "before"
        stand = intercept(engine)
        stand.plan("query", *[raising(UNREACHED)] * 7)
        stand.plan("get_item", *[raising(UNREACHED)] * 3)
        with pytest.raises(UnavailableError):
            await anext(engine.watch("s", ALL))
        waiting = asyncio.ensure_future(anext(watch))
        revision = await put(engine, "after")
        assert (await waiting).revision == revision
        assert not any(stand.steps.values())
        await watch.aclose()


@scenario
async def test_a_watch_reports_a_row_that_dynamodb_ttl_deleted() -> None:
    """DynamoDB's TTL writes no log entry: the row's own entry holds the expiry."""
    where, clock = settings(), ManualClock()
    async with opened(where, clock=clock) as engine, plain_client() as client:
        await put(engine, "a")
        await put(engine, "a", expires=clock.now() + 10)
        clock.advance(milliseconds=10)
        await client.delete_item(
            TableName=where.table, Key={"space": {"S": "s"}, "key": {"S": "a"}}
        )
        assert await anext(engine.watch("s", ALL, since=1)) == Change("a", 2, None)


@scenario
async def test_a_watch_overtaken_by_pruning_raises() -> None:
    async with opened(changes_kept=5) as engine:
        await put(engine, "a")
        watch = engine.watch("s", ALL, since=0)
        assert (await anext(watch)).revision == 1
        for number in range(20):
            await put(engine, f"k{number}")
        await engine.sweep(limit=10)
        with pytest.raises(WatchExpiredError) as error_info:
            await anext(watch)
        assert error_info.value.fields["oldest"] == 17
        assert (await anext(engine.watch("s", ALL, since=16))).revision == 17
