"""Pages of DynamoDB into which others write, and watches that keep up with its log."""

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
    between,
    first,
    opened,
    plain_client,
    put,
    raising,
    scenario,
    settings,
)


@scenario
async def test_a_page_into_which_another_commits_is_read_again() -> None:
    where = settings()
    async with opened(where) as engine, opened(where) as other:
        await put(engine, "a", "b", value=b"1")
        stand = between(engine)
        stand.plan("transact_get_items", first(lambda: put(other, "a", "b", value=b"2")))
        page = await engine.scan("s", ALL, limit=5)
        assert page.rows == [Row("a", b"2", 2), Row("b", b"2", 2)]
        assert page.revision == 2


@scenario
async def test_a_page_is_kept_when_another_commits_elsewhere() -> None:
    where = settings()
    async with opened(where) as engine, opened(where) as other:
        await put(engine, "a", "b")
        stand = between(engine)
        stand.plan("transact_get_items", first(lambda: put(other, "z")))
        page = await engine.scan("s", Span("a", "c"), limit=5)
        assert ([row.key for row in page.rows], page.revision) == (["a", "b"], 1)
        assert stand.calls == ["query", "transact_get_items", "query"]


@scenario
async def test_a_page_that_shows_half_a_transaction_of_another_is_read_again() -> None:
    """DynamoDB applies a transaction item by item: the log may be ahead of a row for a moment."""
    where = settings()
    async with opened(where) as other, opened(where) as engine, plain_client() as client:
        await put(other, "a", "b", value=b"1")
        old = (
            await client.get_item(
                TableName=where.table, Key={"space": {"S": "s"}, "key": {"S": "b"}}
            )
        )["Item"]
        await put(other, "a", "b", value=b"2")

        async def behind(call: Callable[[], Awaitable[Any]]) -> Any:
            answer = await call()
            return answer | {"Items": [answer["Items"][0], old]}

        async def straight(call: Callable[[], Awaitable[Any]]) -> Any:
            return await call()

        between(engine).plan("query", straight, behind)
        page = await engine.scan("s", ALL, limit=5)
        assert page.rows == [Row("a", b"2", 2), Row("b", b"2", 2)]


@scenario
async def test_a_watch_waits_for_a_row_that_is_behind_the_log() -> None:
    async with opened() as engine:
        await put(engine, "a", value=b"1")
        watch = engine.watch("s", ALL, since=1)
        await put(engine, "a", value=b"2")

        async def behind(call: Callable[[], Awaitable[Any]]) -> Any:
            answer = await call()
            return answer | {"Item": answer["Item"] | {"revision": {"N": "1"}, "value": {"S": "1"}}}

        stand = between(engine)
        stand.plan("get_item", first(_nothing), behind)  # the head, then the row
        assert await anext(watch) == Change("a", 2, b"2")
        assert "transact_get_items" in stand.calls


async def _nothing() -> None:
    pass


@scenario
async def test_a_watch_waits_while_dynamodb_is_away_and_one_that_begins_meanwhile_is_told() -> None:
    async with opened() as engine:
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await anext(watch)).key == "before"
        stand = between(engine)
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
async def test_a_watch_hears_of_a_row_that_dynamodb_has_collected() -> None:
    """Its own time to live tells no one: the log's entry knows when the row expired."""
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
async def test_a_watch_that_is_overtaken_by_pruning_is_told() -> None:
    async with opened(changes_kept=5) as engine:
        await put(engine, "a")
        watch = engine.watch("s", ALL, since=0)
        assert (await anext(watch)).revision == 1
        for number in range(20):
            await put(engine, f"k{number}")
        await engine.sweep(limit=10)
        with pytest.raises(WatchExpiredError) as told:
            await anext(watch)
        assert told.value.fields["oldest"] == 17
        assert (await anext(engine.watch("s", ALL, since=16))).revision == 17
