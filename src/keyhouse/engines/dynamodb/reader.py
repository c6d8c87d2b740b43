"""Reads and scans.

DynamoDB's Query has no snapshot: it reads each item in turn, and a transaction may be applied in
between. So a page is validated after it is read. Every commit of a space advances its head:

1. Take a head revision.
2. Query the rows.
3. Read the head again with a transactional read, which fails while a transaction that advances it
   is being applied.
4. The page is at the head of step 3 if nothing of it was committed in between: the head is the
   first one, or the log names the keys changed since, and none is in the range that was read.
   Otherwise read the page again; after a few attempts, with this process's own commits held back.

Rows that other programs write, replace or delete do not advance the head. They are read as is.

The first head is the one that this process advanced last, if any: that commit is fully applied.
Otherwise it is the newest log entry, whose transaction may be partly applied: then the page must
also agree with the latest entries, or with a serializable read of the rows that differ.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.engines.dynamodb import log
from keyhouse.engines.dynamodb.client import GET_ITEMS_MAX, Client, backoff
from keyhouse.engines.dynamodb.flattening import Item
from keyhouse.engines.dynamodb.items import Items, is_live
from keyhouse.engines.dynamodb.writer import DynamodbWriter
from keyhouse.errors import KeyhouseError, UnavailableError
from keyhouse.limits import KEY_BYTES_MAX

QUERY_ROWS_MAX: Final = 1_000
"""Rows per Query; DynamoDB also limits it to 1 MB."""

SPACES_AT_ONCE: Final = GET_ITEMS_MAX
"""Spaces whose hints are checked in one request."""

RECENT_ENTRIES: Final = 4
"""Log entries whose transactions may still be being applied."""

ATTEMPTS_BESIDE_WRITES: Final = 3
ATTEMPTS_MAX: Final = 30
ENTRIES_SEARCHED_MAX: Final = 200
"""Log entries searched to validate a page; if there are more, the page is read again."""


class _ScannedRows(NamedTuple):
    """Live rows, up to one more than the limit, and the range that was read."""

    rows: list[Row]
    scanned: Span


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
        """Return the stored rows, expired ones included."""
        wanted = [(self._table, self._items.key(space, key)) for key in dict.fromkeys(keys)]
        rows = (
            [self._items.row(item) for _, item in await self._client.get_many(wanted)]
            if wanted
            else []
        )
        return {row.key: row for row in rows}

    async def rows_applied(self, space: str, keys: Sequence[str]) -> dict[str, Row]:
        """Return the stored rows from serializable reads: no transaction is partly applied."""
        applied: dict[str, Row] = {}
        for start in range(0, len(keys), 100):
            wanted = [
                (self._table, self._items.key(space, key)) for key in keys[start : start + 100]
            ]
            rows = [
                self._items.row(item)
                for item in await self._client.transact_get(wanted)
                if item is not None
            ]
            applied |= {row.key: row for row in rows}
        return applied

    async def head(self, space: str) -> log.Head:
        return log.head_of(await self._client.get(self._log, log.head_key(space)))

    async def heads(self, spaces: Sequence[str]) -> dict[str, int]:
        """Return the newest revision of each space that has one."""
        items = await self._client.get_many([(self._log, log.head_key(space)) for space in spaces])
        start = len(log.partition(""))
        return {item["space"]["S"][start:]: log.head_of(item).revision for _, item in items}

    async def head_applied(self, space: str) -> int:
        """Return the newest revision from a serializable read."""
        (item,) = await self._client.transact_get([(self._log, log.head_key(space))])
        return log.head_of(item).revision

    async def entries(self, space: str, after: int, limit: int) -> list[log.Entry]:
        """Return the log entries after a revision, oldest first."""
        return await self._entries(space, (after + 1, log.REVISION_MAX), limit, True)

    async def entries_up_to(self, space: str, last: int, limit: int) -> list[log.Entry]:
        return await self._entries(space, (0, last), limit, True)

    async def scan(
        self, space: str, span: Span, limit: int, reverse: bool, keys_only: bool
    ) -> Page:
        async def try_page(head: int | None) -> Page | None:
            return await self._page(space, span, limit, reverse, keys_only, head)

        async def retry_page() -> Page:
            for attempt in range(ATTEMPTS_MAX):
                page = await try_page(None)
                if page is not None:
                    return page
                await backoff(attempt, 0.2)
            raise UnavailableError(
                "Other writers kept changing the rows of the page; try again.",
                table=self._table,
                space=space,
            )

        for attempt in range(ATTEMPTS_BESIDE_WRITES):
            page = await try_page(None if attempt else self._writer.head(space))
            if page is not None:
                return page
        page_alone: Page = await self._writer.read_exclusively(space, retry_page)
        return page_alone

    async def spaces(self) -> AsyncIterator[str]:
        items: list[Item] = []
        async for item in self.named_spaces():
            items.append(item)
            if len(items) == SPACES_AT_ONCE:
                for space in await self._live_spaces(items):
                    yield space
                items = []
        for space in await self._live_spaces(items):
            yield space

    async def _live_spaces(self, items: list[Item]) -> list[str]:
        """Return those of the named spaces that have a live row, by their hints where they hold."""
        keys = [
            (self._table, self._items.key(item["key"]["S"], item["row"]["S"]))
            if "row" in item
            else (self._log, log.head_key(item["key"]["S"]))
            for item in items
        ]
        found = await self._client.get_many(keys) if keys else []
        live, heads, now = set(), {}, self._clock.now()
        for table, stored in found:
            if table == self._log:
                heads[stored["space"]["S"]] = stored["revision"]
            elif is_live(self._items.row(stored, keys_only=True), now):
                live.add(stored[self._items.layout.space]["S"])
        unknown = []
        for item in items:
            space = item["key"]["S"]
            is_empty = "empty" in item and item["empty"] == heads.get(log.partition(space))
            if space not in live and not is_empty:
                unknown.append(space)
        live.update(
            space
            for space, has_row in zip(
                unknown, await asyncio.gather(*map(self._look_into, unknown)), strict=True
            )
            if has_row
        )
        return [item["key"]["S"] for item in items if item["key"]["S"] in live]

    async def _look_into(self, space: str) -> bool:
        """Return whether the space has a live row, and leave a hint of it."""
        head = await self.head_applied(space)
        rows = (await self._scan_rows(space, Span(), 0, False, True, self._clock.now())).rows
        with suppress(KeyhouseError):  # a user who may only read leaves no hint
            await self._client.update(
                TableName=self._log,
                Key=log.space_item(space),
                **log.hint_update(rows[0].key if rows else None, head),
            )
        return bool(rows)

    async def named_spaces(
        self, start: Item | None = None, limit: int | None = None
    ) -> AsyncIterator[Item]:
        """Yield the item of every space that ever had a row, in order. `limit`: of one request."""
        while True:
            answer = await self._client.query(
                TableName=self._log,
                KeyConditionExpression="#s = :s",
                ExpressionAttributeNames={"#s": "space"},
                ExpressionAttributeValues={":s": {"S": log.SPACES}},
                **({"ExclusiveStartKey": start} if start else {}),
                **({"Limit": limit} if limit else {}),
            )
            for item in answer["Items"]:
                yield item
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    async def _page(
        self, space: str, span: Span, limit: int, reverse: bool, keys_only: bool, head: int | None
    ) -> Page | None:
        """Return a page, or None if it may mix two states."""
        recent: list[log.Entry] = []
        if head is None:
            recent = await self._entries(space, (0, log.REVISION_MAX), RECENT_ENTRIES, False)
            head = recent[0].revision if recent else 0
        now = self._clock.now()
        page = await self._scan_rows(space, span, limit, reverse, keys_only, now)
        if any(row.revision > head for row in page.rows):
            return None
        disputed = _disputed(page, recent, now)
        if disputed and not await self._is_applied(space, page, disputed, now):
            return None
        newest = await self.head_applied(space)
        if newest != head and not await self._is_unchanged(space, page.scanned, head, newest):
            return None
        return Page(page.rows[:limit], len(page.rows) > limit, newest)

    async def _is_applied(
        self, space: str, page: _ScannedRows, disputed: list[str], now: int
    ) -> bool:
        """Return whether rows that differ from the log are nevertheless complete.

        A serializable read fails while their transaction is being applied. If it shows the same,
        another program has replaced or deleted the rows since.
        """
        scanned = {row.key: row.revision for row in page.rows}
        stored = await self.rows_applied(space, disputed)
        live = {key: row.revision for key, row in stored.items() if is_live(row, now)}
        return all(scanned.get(key) == live.get(key) for key in disputed)

    async def _is_unchanged(self, space: str, span: Span, since: int, newest: int) -> bool:
        entries = await self.entries(space, since, ENTRIES_SEARCHED_MAX)
        if not entries or entries[0].before > since or entries[-1].revision < newest:
            return False
        return not any(changed.key in span for entry in entries for changed in entry.changes)

    async def _scan_rows(
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
            scanned_rows = [self._items.row(item, keys_only=keys_only) for item in answer["Items"]]
            rows += [row for row in scanned_rows if is_live(row, now) and row.key in span]
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
        """Return the Query's parameters, or None if the span is empty."""
        start, stop = _bounds(span)
        if stop is not None and stop <= start:
            return None
        layout = self._items.layout
        names = {"#s": layout.space}
        values: Item = {":s": {"S": space}}
        condition = "#s = :s"
        if start and stop is not None:
            condition += " AND #k BETWEEN :a AND :b"  # inclusive: the caller drops the end
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


def _disputed(page: _ScannedRows, recent: list[log.Entry], now: int) -> list[str]:
    """Return the keys whose rows differ from the latest log entries."""
    rows = {row.key: row.revision for row in page.rows}
    disputed = []
    for changed in log.newest(recent[::-1], 0):
        is_gone = changed.deleted or (changed.expires is not None and changed.expires <= now)
        if changed.key in page.scanned and rows.get(changed.key) != (
            None if is_gone else changed.revision
        ):
            disputed.append(changed.key)
    return disputed


def _bounds(span: Span) -> tuple[str, str | None]:
    """Return the span's bounds cut to the length of a key; they may admit keys outside the span."""
    start, stop = _cut(span.start), span.stop
    if stop is not None and (cut := _cut(stop)) != stop:
        stop = Span.prefix(cut).stop
    return start, stop


def _cut(text: str) -> str:
    return text.encode()[:KEY_BYTES_MAX].decode(errors="ignore")
