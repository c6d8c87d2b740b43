"""Requests to DynamoDB, one method each: asked again when it is too busy, and its errors translated.

The driver's own retries are off: it can't tell a request that did nothing from one whose fate is unknown. Here, a request
that did nothing is repeated after a pause. A transaction that was sent and not answered is repeated as it is, under its
`ClientRequestToken`, which applies it once; whether it was applied before is then looked up in the log, under the same
token, so that the answer does not rest on how long a server remembers tokens.
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
"""Tries of a request that is throttled or in another's way: about eight seconds."""

UNREACHED_ATTEMPTS_MAX: Final = 3
"""Tries to connect: a machine that has much to do may take longer than one try is given."""

UNSURE_ATTEMPTS_MAX: Final = 3
"""Times that a request is sent without an answer."""

PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 1.5

Keys = Sequence[tuple[str, Item]]
"""Tables and keys."""


async def backoff(attempt: int, longest: float = PAUSE_SECONDS_MAX) -> None:
    """A random part of a time that doubles, so that those who met do not meet again."""
    await asyncio.sleep(random.uniform(0.5, 1) * min(longest, PAUSE_SECONDS_MIN * 2**attempt))


class _Attempts:
    """How often a request has been sent in vain, by what is known of it then."""

    __slots__ = ("busy", "unreached", "unsure")

    def __init__(self) -> None:
        self.busy = self.unreached = self.unsure = 0

    def may_repeat(self, found: Failure) -> bool:
        """Whether it may be sent again; one more, if so."""
        match found:
            case Failure.BUSY if self.busy < BUSY_ATTEMPTS_MAX:
                self.busy += 1
            case Failure.NOT_CONNECTED if self.unreached + 1 < UNREACHED_ATTEMPTS_MAX:
                self.unreached += 1
            case Failure.UNKNOWN if self.unsure + 1 < UNSURE_ATTEMPTS_MAX:
                self.unsure += 1
            case _:
                return False
        return True

    async def backoff(self) -> None:
        await backoff(max(self.busy, self.unreached, self.unsure))


class Client:
    """`client` gives the driver's, with the tables ready: it is asked for once, when something is first asked of it."""

    def __init__(self, client: Callable[[], Awaitable[Any]], table: str) -> None:
        self._make_driver = client
        self._connecting = asyncio.Lock()
        self._driver: Any = None
        self._table = table
        self._closed = False

    async def connect(self) -> None:
        async with self._connecting:
            self._check_open()
            if self._driver is None:
                self._driver = await self._make_driver()

    async def query(self, **parameters: Any) -> dict[str, Any]:
        return await self._call("query", ConsistentRead="IndexName" not in parameters, **parameters)

    async def get(self, table: str, key: Item) -> Item | None:
        answer = await self._call("get_item", TableName=table, Key=key, ConsistentRead=True)
        return answer.get("Item")

    async def get_many(self, keys: Keys) -> list[tuple[str, Item]]:
        """Those that are there, in no order, each as it is at its own moment. No key may stand twice."""
        if len(keys) == 1:
            ((table, key),) = keys
            item = await self.get(table, key)
            return [] if item is None else [(table, item)]
        chunks = [
            keys[start : start + GET_ITEMS_MAX] for start in range(0, len(keys), GET_ITEMS_MAX)
        ]
        return [found for chunk in chunks for found in await self._get_chunk(chunk)]

    async def transact_get(self, keys: Keys) -> list[Item | None]:
        """Up to 100 items in the order asked, as they stand together, no transaction half applied."""
        answer = await self._call(
            "transact_get_items",
            TransactItems=[{"Get": {"TableName": table, "Key": key}} for table, key in keys],
        )
        return [each.get("Item") for each in answer["Responses"]]

    async def update(self, **parameters: Any) -> bool:
        """Whether its condition held. The update must be one that may be done twice."""
        try:
            await self._call("update_item", **parameters)
        except _ConditionFailedError:
            return False
        return True

    async def delete_many(self, table: str, keys: Sequence[Item]) -> None:
        for start in range(0, len(keys), WRITE_ITEMS_MAX):
            wanted = {
                table: [
                    {"DeleteRequest": {"Key": key}} for key in keys[start : start + WRITE_ITEMS_MAX]
                ]
            }
            attempt = 0
            while wanted:
                answer = await self._call("batch_write_item", RequestItems=wanted)
                wanted = answer.get("UnprocessedItems") or {}
                attempt = await self._again(attempt) if wanted else 0

    async def transact_write(
        self, items: list[dict[str, Any]], token: str, applied: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Whether the conditions held, and all of it is written. `applied` looks up whether an earlier try did it."""
        if self._driver is None:
            await self.connect()
        tries = _Attempts()
        while True:
            self._check_open()
            try:
                await self._driver.transact_write_items(
                    TransactItems=items, ClientRequestToken=token
                )
            except Exception as error:
                found = classify(error)
                if found is Failure.CONDITION_FAILED:
                    return tries.unsure > 0 and await applied()
                if not tries.may_repeat(found):
                    is_unknown = tries.unsure or found is Failure.UNKNOWN
                    raise (unknown_outcome if is_unknown else translate)(
                        error, self._table
                    ) from error
            else:
                return True
            await tries.backoff()

    async def close(self) -> None:
        async with self._connecting:
            client, self._closed = None if self._closed else self._driver, True
            if client is not None:
                await client.close()

    async def _get_chunk(self, keys: Keys) -> list[tuple[str, Item]]:
        wanted: dict[str, Any] = {}
        for table, key in keys:
            wanted.setdefault(table, {"Keys": [], "ConsistentRead": True})["Keys"].append(key)
        found: list[tuple[str, Item]] = []
        attempt = 0
        while wanted:
            answer = await self._call("batch_get_item", RequestItems=wanted)
            got = [(table, item) for table, items in answer["Responses"].items() for item in items]
            found += got
            wanted = answer.get("UnprocessedKeys") or {}
            if wanted:
                attempt = 0 if got else await self._again(attempt)
        return found

    async def _again(self, attempt: int) -> int:
        if attempt >= BUSY_ATTEMPTS_MAX:
            raise UnavailableError(
                "DynamoDB left a part of the request undone, again and again; try later.",
                table=self._table,
            )
        await backoff(attempt)
        return attempt + 1

    async def _call(self, request: str, **parameters: Any) -> dict[str, Any]:
        """For requests that may be done twice."""
        if self._driver is None:
            await self.connect()
        tries = _Attempts()
        while True:
            self._check_open()
            try:
                answer: dict[str, Any] = await getattr(self._driver, request)(**parameters)
                return answer
            except Exception as error:
                found = classify(error)
                if found is Failure.CONDITION_FAILED:
                    raise _ConditionFailedError from error
                if not tries.may_repeat(found):
                    self._check_open()
                    raise translate(error, self._table) from error
            await tries.backoff()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.", table=self._table)


class _ConditionFailedError(Exception):
    """A condition did not hold."""
