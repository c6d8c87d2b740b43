"""Reads and scans.

DynamoDB's Query has no snapshot: it sees each item as it is at its turn, and between two items a transaction may be
applied. A page is true all the same, because it is checked. All commits of a space move its head, so: start from a head,
read the rows, then read the head again, by a transactional read, which is refused while a transaction that moves the
head is being applied. Is it the same, nothing was committed in between, and the page is of that revision. Is it another,
the log says which keys were changed since; when none of them is where the page was read, the page is still of the
revision it started from. Otherwise it is read again, and after a few times with this process's own commits held back.

The first head is the one this process has moved itself, if any: all of that commit is applied. Or else it is the newest
entry of the log, whose transaction may be applied in part: then the page must show what the last entries say.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import Client, backoff
from keyhouse.engines.dynamodb.flattening import Item
from keyhouse.engines.dynamodb.items import Items, is_live
from keyhouse.engines.dynamodb.writer import DynamodbWriter
from keyhouse.errors import UnavailableError
from keyhouse.limits import KEY_BYTES_MAX

QUERY_ROWS_MAX: Final = 1_000
"""Rows that one Query is asked for; DynamoDB ends it at 1 MB as well."""

RECENT_ENTRIES: Final = 4
"""Entries of the log whose transactions may still be in the middle of being applied."""

TRIES_BESIDE_WRITES: Final = 3
TRIES_MAX: Final = 30
CHANGES_LOOKED_AT: Final = 200
"""Entries of the log that are looked through to keep a page; when there are more, it is read again."""


class _ScannedRows(NamedTuple):
    """The live rows where it was read: one more than the limit, if there is one."""

    rows: list[Row]
    covered: Span


class Reader:
    def __init__(
        self, client: Client, items: Items, table: str, clock: Clock, writer: DynamodbWriter
    ) -> None:
        self._client = client
        self._items = items
        self._table = table
        self._log = log.table_of(table)
        self._clock = clock
        self._writer = writer

    async def rows(self, space: str, keys: Sequence[str]) -> dict[str, Row]:
        """The rows that are stored, expired or not."""
        wanted = [(self._table, self._items.key(space, key)) for key in dict.fromkeys(keys)]
        found = (
            [self._items.row(item) for _, item in await self._client.get_many(wanted)]
            if wanted
            else []
        )
        return {row.key: row for row in found}

    async def rows_applied(self, space: str, keys: Sequence[str]) -> dict[str, Row]:
        """The same, with no transaction half applied."""
        found: dict[str, Row] = {}
        for start in range(0, len(keys), 100):
            wanted = [
                (self._table, self._items.key(space, key)) for key in keys[start : start + 100]
            ]
            rows = [
                self._items.row(item)
                for item in await self._client.transact_get(wanted)
                if item is not None
            ]
            found |= {row.key: row for row in rows}
        return found

    async def head(self, space: str) -> log.Head:
        return log.head_of(await self._client.get(self._log, log.head_key(space)))

    async def head_applied(self, space: str) -> int:
        """The newest revision, with no transaction half applied."""
        (found,) = await self._client.transact_get([(self._log, log.head_key(space))])
        return log.head_of(found).revision

    async def entries(self, space: str, after: int, limit: int) -> list[log.Entry]:
        """Entries of the log behind that revision, the oldest first."""
        return await self._entries(space, (after + 1, log.REVISION_MAX), limit, True)

    async def entries_up_to(self, space: str, last: int, limit: int) -> list[log.Entry]:
        return await self._entries(space, (0, last), limit, True)

    async def scan(
        self, space: str, span: Span, limit: int, reverse: bool, keys_only: bool
    ) -> Page:
        async def tried(head: int | None) -> Page | None:
            return await self._page(space, span, limit, reverse, keys_only, head)

        async def insisting() -> Page:
            for attempt in range(TRIES_MAX):
                page = await tried(None)
                if page is not None:
                    return page
                await backoff(attempt, 0.2)
            raise UnavailableError(
                "Others kept changing the rows of the page; try again.",
                table=self._table,
                space=space,
            )

        for attempt in range(TRIES_BESIDE_WRITES):
            page = await tried(None if attempt else self._writer.head(space))
            if page is not None:
                return page
        held: Page = await self._writer.read_exclusively(space, insisting)
        return held

    async def spaces(self) -> AsyncIterator[str]:
        async for space in self.named_spaces():
            if (await self._found(space, Span(), 0, False, True, self._clock.now())).rows:
                yield space

    async def named_spaces(self, start: Item | None = None) -> AsyncIterator[str]:
        """Every space that ever held a row, in order."""
        while True:
            answer = await self._client.query(
                TableName=self._log,
                KeyConditionExpression="#s = :s",
                ExpressionAttributeNames={"#s": "space"},
                ExpressionAttributeValues={":s": {"S": log.SPACES}},
                **({"ExclusiveStartKey": start} if start else {}),
            )
            for item in answer["Items"]:
                yield item["key"]["S"]
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    async def _page(
        self, space: str, span: Span, limit: int, reverse: bool, keys_only: bool, head: int | None
    ) -> Page | None:
        """`None`: it may show two states."""
        recent: list[log.Entry] = []
        if head is None:
            recent = await self._entries(space, (0, log.REVISION_MAX), RECENT_ENTRIES, False)
            head = recent[0].revision if recent else 0
        now = self._clock.now()
        found = await self._found(space, span, limit, reverse, keys_only, now)
        if any(row.revision > head for row in found.rows) or not _shows(found, recent, now):
            return None
        newest = await self.head_applied(space)
        if newest != head and not await self._unchanged(space, found.covered, head, newest):
            return None
        return Page(found.rows[:limit], len(found.rows) > limit, head)

    async def _unchanged(self, space: str, span: Span, since: int, newest: int) -> bool:
        entries = await self.entries(space, since, CHANGES_LOOKED_AT)
        if not entries or entries[0].before > since or entries[-1].revision < newest:
            return False
        return not any(changed.key in span for entry in entries for changed in entry.changes)

    async def _found(
        self, space: str, span: Span, limit: int, reverse: bool, keys_only: bool, now: int
    ) -> _ScannedRows:
        rows: list[Row] = []
        start: Item | None = None
        query = self._query(space, span, reverse, keys_only)
        while query is not None and len(rows) <= limit:
            query["Limit"] = (
                min(limit + 1 - len(rows), QUERY_ROWS_MAX) if start is None else QUERY_ROWS_MAX
            )
            answer = await self._client.query(
                **query, **({"ExclusiveStartKey": start} if start else {})
            )
            found = [
                self._items.row(item) for item in answer["Items"]
            ]  # without its value, if only keys were asked for
            rows += [row for row in found if is_live(row, now) and row.key in span]
            start = answer.get("LastEvaluatedKey")
            if not start:
                break
        if len(rows) <= limit:
            return _ScannedRows(rows, span)
        last = rows[limit].key
        return _ScannedRows(
            rows[: limit + 1], Span(last, span.stop) if reverse else Span(span.start, last + "\0")
        )

    def _query(
        self, space: str, span: Span, reverse: bool, keys_only: bool
    ) -> dict[str, Any] | None:
        """`None`: no key can be in the span."""
        start, stop = _fitting(span)
        if stop is not None and stop <= start:
            return None
        layout = self._items.layout
        names = {"#s": layout.space}
        values: Item = {":s": {"S": space}}
        condition = "#s = :s"
        if start and stop is not None:
            condition += (
                " AND #k BETWEEN :a AND :b"  # the end too many is left out when the rows are there
            )
        elif start:
            condition += " AND #k >= :a"
        elif stop is not None:
            condition += " AND #k < :b"
        if start:
            values[":a"] = {"S": start}
        if stop is not None:
            values[":b"] = {"S": stop}
        query: dict[str, Any] = {"TableName": self._table, "ScanIndexForward": not reverse}
        if keys_only:
            query["ProjectionExpression"] = "#k, #r, #e"
            names |= self._items.names
        elif start or stop is not None:
            names["#k"] = layout.key
        return query | {
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }

    async def _entries(
        self, space: str, revisions: tuple[int, int], limit: int, forward: bool
    ) -> list[log.Entry]:
        first, last = revisions
        if first > last:
            return []
        answer = await self._client.query(
            TableName=self._log,
            KeyConditionExpression="#s = :s AND #k BETWEEN :a AND :b",
            ExpressionAttributeNames={"#s": "space", "#k": "key"},
            ExpressionAttributeValues={
                ":s": {"S": log.partition(space)},
                ":a": {"S": log.entry_name(first)},
                ":b": {"S": log.entry_name(last)},
            },
            ScanIndexForward=forward,
            Limit=limit,
        )
        return [log.entry_of(item) for item in answer["Items"]]


def _shows(found: _ScannedRows, recent: list[log.Entry], now: int) -> bool:
    """Whether the rows are not older than what the entries say of them."""
    rows = {row.key: row.revision for row in found.rows}
    for changed in log.newest(recent[::-1], 0):
        gone = changed.deleted or (changed.expires is not None and changed.expires <= now)
        if changed.key in found.covered and rows.get(changed.key) != (
            None if gone else changed.revision
        ):
            return False
    return True


def _fitting(span: Span) -> tuple[str, str | None]:
    """Ends that are no longer than a key may be; they may let in keys that are not in the span."""
    start, stop = _cut(span.start), span.stop
    if stop is not None and (cut := _cut(stop)) != stop:
        stop = Span.prefix(cut).stop
    return start, stop


def _cut(text: str) -> str:
    return text.encode()[:KEY_BYTES_MAX].decode(errors="ignore")
