"""One config or scene, at either version of its key.

The document's key migration moves what is at `cust_…_streamkit_{category}_{id}` (v1) to `cust_…_streamkit_v2_…` (v2).
Whoever reads looks at v2 first and falls back to v1. Whoever writes over something at v2, or is set to write v2, writes
there and takes the v1 row away in the same commit. So v1 is never newer than v2, whatever processes run beside the migration
and however they are set, and where both are there, one is the copy of the other.
"""

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from keyhouse.engine import Engine, Row, Span
from keyhouse.schema import Record
from keyhouse.store import Entry, Transaction
from keyhouse.systems.streamkit.schema import CONFIGS, CONFIGS_V2, SCENE_ACTIVITY, SCENE_ACTIVITY_V2

T = TypeVar("T")

KeyVersion = Literal["v1", "v2"]

_PAGE_ROWS: Final = 500
_KEYS_KEPT: Final = 10_000


class Pair(msgspec.Struct, Generic[T], frozen=True):
    """The two declarations of one category."""

    v1: Record[T]
    v2: Record[T]

    @property
    def category(self) -> str:
        return self.v1.name

    @property
    def field(self) -> str:
        """The key field that tells one from the other: `id`, or `scene_name`."""
        return self.v1.template.fields[-1]

    async def row(self, engine: Engine, customer: str, identifier: str) -> Row | None:
        """The row as it is stored. One that moves to v2 between two looks is found by the second look at v2."""
        keys = _keys(self.category, customer, identifier)
        second, first = await engine.read(customer, keys)
        return second or first or (await engine.read(customer, keys[:1]))[0]

    async def entry(self, tx: Transaction, identifier: str) -> Entry[T] | None:
        """As the transaction sees it. Both rows are read, so neither may change before the commit. v1 is looked at first, so
        what moves meanwhile is at one of them, also for a transaction that ends without a commit."""
        fields = {self.field: identifier}
        first, second = await tx.entry(self.v1, **fields), await tx.entry(self.v2, **fields)
        return second or first

    async def restore(
        self,
        tx: Transaction,
        value: T,
        before: Entry[T] | None,
        version: KeyVersion,
        expires: int | None = None,
    ) -> Entry[T]:
        """Write the value where it belongs; `before` is what `entry` gave."""
        record = self.v2 if version == "v2" or self._is_second(tx, before) else self.v1
        written = await tx.restore(record, value, expires=expires)
        if before is not None and record is self.v2:
            fields: dict[str, Any] = {self.field: before.values[-1]}
            await tx.delete(self.v1, **fields)
        return written

    async def delete(self, tx: Transaction, identifier: str) -> bool:
        fields: dict[str, Any] = {self.field: identifier}
        first, second = await tx.delete(self.v1, **fields), await tx.delete(self.v2, **fields)
        return first or second

    async def rows(
        self, engine: Engine, customer: str, *, after: str | None = None, keys_only: bool = False
    ) -> AsyncIterator[tuple[str, Row]]:
        """Every row of the category once, by identifier and in the order of identifiers; `after`: those behind it.

        v1 is looked at before v2, so what moves meanwhile is seen in both, and not in neither.
        """
        while True:
            pages = [
                await self._page(engine, customer, record, after, keys_only=keys_only)
                for record in (self.v1, self.v2)
            ]
            found = dict(pages[0][0]) | dict(pages[1][0])
            ends = [rows[-1][0] for rows, more in pages if more]
            for identifier in sorted(
                found
            ):  # beyond the end of a page, the other version may hold what comes first
                if not ends or identifier <= min(ends):
                    yield identifier, found[identifier]
            if not ends:
                return
            after = min(ends)

    async def _page(
        self,
        engine: Engine,
        customer: str,
        record: Record[T],
        after: str | None,
        *,
        keys_only: bool,
    ) -> tuple[list[tuple[str, Row]], bool]:
        template = record.template
        span: Span = template.span({"customer": customer})
        if after is not None:
            span = span.after(template.join((customer, after)))
        page = await engine.scan(customer, span, limit=_PAGE_ROWS, keys_only=keys_only)
        rows = [
            (str(values[-1]), row)
            for row in page.rows
            if (values := template.split(row.key)) is not None
        ]
        return rows, page.more

    def _is_second(self, tx: Transaction, before: Entry[T] | None) -> bool:
        return before is not None and before.key.startswith(
            tx.binding.record(self.v2).template.head
        )


@lru_cache(maxsize=_KEYS_KEPT)
def _keys(category: str, customer: str, identifier: str) -> tuple[str, str]:
    """The v2 and the v1 key. What is read often has the same keys each time, and to build two costs as much as to read."""
    pair, values = PAIRS[category], (customer, identifier)
    return pair.v2.template.join(values), pair.v1.template.join(values)


SCENES: Final = Pair(SCENE_ACTIVITY, SCENE_ACTIVITY_V2)

CONFIG_PAIRS: Final[dict[str, Pair[Any]]] = {
    name: Pair(record, CONFIGS_V2[name]) for name, record in CONFIGS.items()
}

PAIRS: Final[dict[str, Pair[Any]]] = CONFIG_PAIRS | {SCENES.category: SCENES}
"""Every category, by its name."""
