"""Requests to DynamoDB, one method each, with retries and translated errors.

The driver's own retries are off: it does not distinguish a request that did nothing from one whose
outcome is unknown. Here, a request that did nothing is retried after a backoff. A transaction that
was sent but not answered is repeated unchanged with its `ClientRequestToken`, which applies it
once. If its condition then fails, the log is searched for the token to learn whether the first
attempt was applied, so the result does not depend on how long the server remembers tokens.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from keyhouse.engines.dynamodb.error_map import Failure, classify, translate, unknown_outcome
from keyhouse.engines.dynamodb.flattening import Item
from keyhouse.errors import ClosedError, UnavailableError

GET_ITEMS_MAX: Final = 100
"""Items in one BatchGetItem, and in one TransactGetItems: DynamoDB's limits."""

WRITE_ITEMS_MAX: Final = 25
"""Items in one BatchWriteItem: DynamoDB's limit."""

BUSY_ATTEMPTS_MAX: Final = 12
"""Attempts of a request that is throttled or conflicts: about eight seconds."""

CONNECT_ATTEMPTS_MAX: Final = 3
"""Attempts to connect: a busy machine may exceed one timeout."""

UNANSWERED_ATTEMPTS_MAX: Final = 3
"""Attempts of a request that is not answered."""

BACKOFF_SECONDS_MIN: Final = 0.02
BACKOFF_SECONDS_MAX: Final = 1.5

Keys = Sequence[tuple[str, Item]]
"""Pairs of table and key."""


async def backoff(attempt: int, longest: float = BACKOFF_SECONDS_MAX) -> None:
    """Sleep with exponential backoff and jitter."""
    await asyncio.sleep(random.uniform(0.5, 1) * min(longest, BACKOFF_SECONDS_MIN * 2**attempt))


class _Attempts:
    """Failed attempts of one request, by kind of failure."""

    __slots__ = ("busy", "not_connected", "unknown")

    def __init__(self) -> None:
        self.busy = self.not_connected = self.unknown = 0

    def may_repeat(self, failure: Failure) -> bool:
        """Count the failure; return whether the request may be repeated."""
        match failure:
            case Failure.BUSY if self.busy < BUSY_ATTEMPTS_MAX:
                self.busy += 1
            case Failure.NOT_CONNECTED if self.not_connected + 1 < CONNECT_ATTEMPTS_MAX:
                self.not_connected += 1
            case Failure.UNKNOWN if self.unknown + 1 < UNANSWERED_ATTEMPTS_MAX:
                self.unknown += 1
            case _:
                return False
        return True

    async def backoff(self) -> None:
        await backoff(max(self.busy, self.not_connected, self.unknown))


class Client:
    """`make_driver` creates the driver's client, with the tables ready, on first use."""

    def __init__(self, make_driver: Callable[[], Awaitable[Any]], table: str) -> None:
        self._make_driver = make_driver
        self._connecting = asyncio.Lock()
        self.driver: Any = None
        self._table = table
        self._closed = False

    async def connect(self) -> None:
        async with self._connecting:
            self._check_open()
            if self.driver is None:
                self.driver = await self._make_driver()

    async def query(self, **parameters: Any) -> dict[str, Any]:
        return await self._call("query", ConsistentRead="IndexName" not in parameters, **parameters)

    async def get(self, table: str, key: Item) -> Item | None:
        answer = await self._call("get_item", TableName=table, Key=key, ConsistentRead=True)
        return answer.get("Item")

    async def get_many(self, keys: Keys) -> list[tuple[str, Item]]:
        """Return the existing items, unordered, each read independently. Keys must be distinct."""
        if len(keys) == 1:
            ((table, key),) = keys
            item = await self.get(table, key)
            return [] if item is None else [(table, item)]
        chunks = [
            keys[start : start + GET_ITEMS_MAX] for start in range(0, len(keys), GET_ITEMS_MAX)
        ]
        return [failure for chunk in chunks for failure in await self._get_chunk(chunk)]

    async def transact_get(self, keys: Keys) -> list[Item | None]:
        """Return up to 100 items in order, from one serializable read."""
        answer = await self._call(
            "transact_get_items",
            TransactItems=[{"Get": {"TableName": table, "Key": key}} for table, key in keys],
        )
        return [each.get("Item") for each in answer["Responses"]]

    async def update(self, **parameters: Any) -> bool:
        """Update an item; return whether the condition held. The update must be idempotent."""
        try:
            await self._call("update_item", **parameters)
        except _ConditionFailedError:
            return False
        return True

    async def delete_many(self, table: str, keys: Sequence[Item]) -> None:
        for start in range(0, len(keys), WRITE_ITEMS_MAX):
            remaining = {
                table: [
                    {"DeleteRequest": {"Key": key}} for key in keys[start : start + WRITE_ITEMS_MAX]
                ]
            }
            attempt = 0
            while remaining:
                answer = await self._call("batch_write_item", RequestItems=remaining)
                remaining = answer.get("UnprocessedItems") or {}
                attempt = await self._retry_unprocessed(attempt) if remaining else 0

    async def transact_write(
        self, items: list[dict[str, Any]], token: str, applied: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Write all items; return whether the conditions held.

        `applied` returns whether an earlier attempt, whose reply was lost, was applied.
        """
        if self.driver is None:
            await self.connect()
        attempts = _Attempts()
        while True:
            self._check_open()
            try:
                await self.driver.transact_write_items(
                    TransactItems=items, ClientRequestToken=token
                )
            except Exception as error:
                failure = classify(error)
                if failure is Failure.CONDITION_FAILED:
                    return attempts.unknown > 0 and await applied()
                if not attempts.may_repeat(failure):
                    is_unknown = attempts.unknown or failure is Failure.UNKNOWN
                    raise (unknown_outcome if is_unknown else translate)(
                        error, self._table
                    ) from error
            else:
                return True
            await attempts.backoff()

    async def close(self) -> None:
        async with self._connecting:
            driver, self._closed = None if self._closed else self.driver, True
            if driver is not None:
                await driver.close()

    async def _get_chunk(self, keys: Keys) -> list[tuple[str, Item]]:
        remaining: dict[str, Any] = {}
        for table, key in keys:
            remaining.setdefault(table, {"Keys": [], "ConsistentRead": True})["Keys"].append(key)
        fetched: list[tuple[str, Item]] = []
        attempt = 0
        while remaining:
            answer = await self._call("batch_get_item", RequestItems=remaining)
            batch = [
                (table, item) for table, items in answer["Responses"].items() for item in items
            ]
            fetched += batch
            remaining = answer.get("UnprocessedKeys") or {}
            if remaining:
                attempt = 0 if batch else await self._retry_unprocessed(attempt)
        return fetched

    async def _retry_unprocessed(self, attempt: int) -> int:
        if attempt >= BUSY_ATTEMPTS_MAX:
            raise UnavailableError(
                "DynamoDB repeatedly left a part of the request unprocessed; try later.",
                table=self._table,
            )
        await backoff(attempt)
        return attempt + 1

    async def _call(self, request: str, **parameters: Any) -> dict[str, Any]:
        """Make an idempotent request."""
        if self.driver is None:
            await self.connect()
        attempts = _Attempts()
        while True:
            self._check_open()
            try:
                answer: dict[str, Any] = await getattr(self.driver, request)(**parameters)
                return answer
            except Exception as error:
                failure = classify(error)
                if failure is Failure.CONDITION_FAILED:
                    raise _ConditionFailedError from error
                if not attempts.may_repeat(failure):
                    self._check_open()
                    raise translate(error, self._table) from error
            await attempts.backoff()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.", table=self._table)


class _ConditionFailedError(Exception):
    """A condition failed."""
