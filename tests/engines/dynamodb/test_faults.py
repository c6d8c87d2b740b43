"""Requests to DynamoDB that fail, are throttled or are not answered, and their errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from keyhouse.engine import Add, Batch, Put, Row
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.dynamodb.engine import create_client
from keyhouse.errors import (
    EngineError,
    FullError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from tests.support.dynamodb_tables import (
    ALL,
    IN_THE_WAY,
    NOWHERE,
    THROTTLED,
    UNREACHED,
    Proxy,
    Step,
    client_error,
    intercept,
    opened,
    put,
    raising,
    scenario,
    settings,
    value,
)


@scenario
async def test_throttled_and_conflicting_requests_are_retried() -> None:
    async with opened() as engine:
        stand = intercept(engine)
        stand.plan(
            "transact_write_items", raising(THROTTLED), raising(IN_THE_WAY), raising(THROTTLED)
        )
        stand.plan("get_item", raising(THROTTLED), raising(THROTTLED))
        stand.plan("query", raising(THROTTLED))
        stand.plan("transact_get_items", raising(IN_THE_WAY))
        assert await put(engine, "a") == 1
        assert await engine.read("s", ["a"]) == [Row("a", b"1", 1)]
        assert (await engine.scan("s", ALL, limit=5)).rows == [Row("a", b"1", 1)]
        assert not any(stand.steps.values())


@scenario
async def test_a_connect_timeout_is_retried_three_times() -> None:
    """A busy machine connects late. Nothing was sent, so a retry is safe."""
    async with opened() as engine:
        stand = intercept(engine)
        stand.plan("transact_write_items", raising(UNREACHED), raising(UNREACHED))
        stand.plan("get_item", raising(UNREACHED))
        assert await put(engine, "a") == 1
        assert await engine.read("s", ["a"]) == [Row("a", b"1", 1)]
        stand.plan("transact_write_items", *[raising(UNREACHED)] * 3)
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await put(engine, "b")
        assert not any(stand.steps.values())
        assert await value(engine, "b") is None


@scenario
async def test_unprocessed_keys_are_requested_again() -> None:
    async def half(call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        ((table, items),) = answer["Responses"].items()
        keys = [{"space": item["space"], "key": item["key"]} for item in items[10:]]
        left = {table: {"Keys": keys, "ConsistentRead": True}}
        return answer | {"Responses": {table: items[:10]}, "UnprocessedKeys": left}

    async with opened() as engine:
        keys = [f"k{number:03d}" for number in range(60)]
        await put(engine, *keys)
        intercept(engine).plan("batch_get_item", half, half)
        assert [row and row.key for row in await engine.read("s", keys)] == keys


@scenario
async def test_a_commit_throttled_for_too_long_is_unavailable_and_not_written() -> None:
    async with opened() as engine:
        stand = intercept(engine)
        stand.plan("transact_write_items", *[raising(THROTTLED)] * 20)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("keyhouse.engines.dynamodb.client.BACKOFF_SECONDS_MAX", 0.01)
            patch.setattr(
                "keyhouse.engines.dynamodb.client.backoff", lambda attempt: asyncio.sleep(0)
            )
            with pytest.raises(UnavailableError, match="too busy"):
                await put(engine, "a")
        stand.steps.clear()
        assert await value(engine, "a") is None
        assert await put(engine, "a") == 1


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (client_error("AccessDeniedException"), UnavailableError),
        (client_error("UnrecognizedClientException"), UnavailableError),
        (client_error("ResourceNotFoundException"), UsageError),
        (
            client_error("TransactionCanceledException", "None", "ItemCollectionSizeLimitExceeded"),
            FullError,
        ),
        (client_error("ValidationException"), EngineError),
    ],
)
def test_each_rejection_has_its_own_error_and_the_next_commit_succeeds(
    error: Exception, meaning: type[Exception]
) -> None:
    @scenario
    async def refused() -> None:
        async with opened() as engine:
            intercept(engine).plan("transact_write_items", raising(error))
            with pytest.raises(meaning) as raised:
                await put(engine, "a")
            assert raised.value.__cause__ is error
            assert await put(engine, "b") == 1
            assert await value(engine, "a") is None

    refused()


@scenario
async def test_a_transaction_whose_reply_was_lost_is_found_applied() -> None:
    """By the server's memory of the token, and without it by the log entry, which holds the token
    too."""

    async def unanswered(call: Callable[[], Awaitable[Any]]) -> Any:
        await call()
        raise ReadTimeoutError(endpoint_url="http://server")

    forgotten = client_error("TransactionCanceledException", "ConditionalCheckFailed", "None")
    async with opened() as engine:
        stand = intercept(engine)
        add = Batch(adds=(Add("n", 1),))
        fates: list[list[Step]] = [
            [unanswered],
            [unanswered, unanswered],
            [unanswered, raising(forgotten)],
        ]
        for number, steps in enumerate(fates, 1):
            stand.plan("transact_write_items", *steps)
            assert await engine.commit("s", add) == number
            assert await value(engine, "n") == b"%d" % number


@scenario
async def test_a_lost_connection_is_an_unknown_outcome_and_the_retry_applies_once() -> None:
    proxy = Proxy()
    async with proxy.running() as endpoint, opened(settings(endpoint=endpoint)) as engine:
        await put(engine, "a")
        batch = Batch(adds=(Add("n", 1),), id="once")
        proxy.cut = 1  # of the reading of the counter, which may be asked again
        assert await engine.commit("s", Batch(adds=(Add("m", 1),))) == 2
        assert await engine.read("s", ["m"]) == [Row("m", b"1", 2)]

        stand = intercept(engine)

        async def cutting(call: Callable[[], Awaitable[Any]]) -> Any:
            proxy.cut = 1
            return await call()

        stand.plan("transact_write_items", cutting, cutting, cutting)
        with pytest.raises(UnknownOutcomeError, match="same batch id"):
            await engine.commit("s", batch)
        assert proxy.requests_cut == 4
        assert await engine.commit("s", batch) == 3
        assert await engine.commit("s", batch) == 3
        assert await value(engine, "n") == b"1"


@scenario
async def test_without_a_server_every_call_is_unavailable_and_none_unknown() -> None:
    engine = await DynamoDBEngine.open(settings())
    await put(engine, "a")
    await engine.client.driver.close()
    engine.client.driver = await create_client(settings(endpoint=NOWHERE))
    for call in (
        engine.read("s", ["a"]),
        engine.scan("s", ALL, limit=1),
        engine.commit("s", Batch(puts=(Put("a", b"1"),))),
    ):
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await call
    await engine.close()
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await DynamoDBEngine.open(settings(endpoint=NOWHERE))
