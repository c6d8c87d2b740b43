"""Scans: pages resumed by their cursor after other writes, keys, and counts."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.errors import CursorError, UsageError
from keyhouse.schema import Index
from keyhouse.store import Entry, Store
from tests.model.comparison import Difference, same
from tests.model.keyspace import DERIVED, RECORDS
from tests.model.oracle import Home, Keys, Listed, folded

Compare = Callable[[Entry[Any] | None, str, str, Keys], None]
"""Compare an entry with the record of a home, by its name and key values."""

TEXT: Final = {
    "item": (True,),
    "task": (False, True),
    "shelf": (True, False, True),
    "tag": (True, True),
    "rank": (False, True),
    "project": (True, False, True),
    "last": (True, True),
    "now": (True, False),
    "later": (True, False),
    "numbered": (True, False),
}
"""Fields of a key that are text and can be searched by prefix."""
FOLDED: Final = ("tag", "name")


class Scans:
    """Scans of the player's stores and homes. Each cursor is stored in its slot."""

    def __init__(
        self, clock: Clock, stores: Mapping[str, Store], homes: Mapping[str, Home], compare: Compare
    ) -> None:
        self._clock = clock
        self._stores = stores
        self._homes = homes
        self._compare = compare
        self._cursors: dict[int, tuple[dict[str, Any], str, str]] = {}

    async def page(self, slot: int, **scan: Any) -> None:
        await self._next_page(slot, scan, None, "")

    async def more(self, slot: int, turned: bool) -> None:
        """Resume with the cursor of this slot, or with another one."""
        if not self._cursors:
            return
        slot = slot if slot in self._cursors else min(self._cursors)
        scan, cursor, last = self._cursors.pop(slot)
        if not turned:
            await self._next_page(slot, scan, cursor, last)
            return
        try:
            await self._paged(scan | {"reverse": not scan["reverse"]}, cursor)
        except CursorError:
            return
        raise Difference("a cursor was taken by a scan in the other direction")

    async def _next_page(
        self, slot: int, scan: dict[str, Any], cursor: str | None, last: str
    ) -> None:
        what = f"page {scan}"
        try:
            page = await self._paged(scan, cursor)
        except UsageError:
            same(self._refuses(scan), True, f"{what} refused")
            return
        same(self._refuses(scan), False, f"{what} refused")
        rows = self._rows(scan, last)
        expected = rows[: scan["limit"]]
        same([entry.values for entry in page.entries], [row.owner for row in expected], what)
        for entry, row in zip(page.entries, expected, strict=True):
            self._compare(entry, scan["home"], row.record, row.owner)
        same(page.cursor is not None, len(rows) > len(expected), f"{what}, more")
        if page.cursor is not None:
            self._cursors[slot] = (scan, page.cursor, expected[-1].key)

    async def _paged(self, scan: dict[str, Any], cursor: str | None) -> Any:
        by, store = scan["by"], self._stores[scan["home"]]
        record, index = DERIVED[by] if by in DERIVED else (RECORDS[by], None)
        how = {name: scan[name] for name in ("reverse", "prefix", "between", "limit")}
        fields = self._leading(scan)
        return await store.page(
            record, by=None if index is None else index_of(index), cursor=cursor, **how, **fields
        )

    async def keys(self, **scan: Any) -> None:
        """Compare all keys, in pages, and their number."""
        by, store = scan["by"], self._stores[scan["home"]]
        declared = DERIVED[by][1] if by in DERIVED else RECORDS[by]
        found: list[str] = []
        cursor = None
        try:
            while True:
                how = {name: scan[name] for name in ("reverse", "prefix", "between", "limit")}
                keys, cursor = await store.keys(
                    declared, cursor=cursor, **how, **self._leading(scan)
                )
                found += keys
                if cursor is None:
                    break
            how = {name: scan[name] for name in ("prefix", "between")}
            count = await store.count(declared, **how, **self._leading(scan))
        except UsageError:
            same(self._refuses(scan), True, f"keys {scan} refused")
            return
        same(self._refuses(scan), False, f"keys {scan} refused")
        same(found, [f"{scan['home']}/{row.key}" for row in self._rows(scan, "")], f"keys {scan}")
        same(count, len(found), f"count {scan}")

    def _leading(self, scan: dict[str, Any]) -> dict[str, Any]:
        by = scan["by"]
        template = (DERIVED[by][1] if by in DERIVED else RECORDS[by]).template
        return dict(zip(template.fields[1:], scan["fields"], strict=False))

    def _refuses(self, scan: dict[str, Any]) -> bool:
        """Return True if the scan has a prefix or a range for a field that is not text, or for
        none."""
        texts = TEXT.get(
            scan["by"], (True, True) if scan["by"].endswith(("-owner", "-tag")) else (True,)
        )
        given = len(scan["fields"])
        narrowed = [scan[name] for name in ("prefix", "between") if scan[name] is not None]
        return len(narrowed) == 2 or (bool(narrowed) and (given >= len(texts) or not texts[given]))

    def _rows(self, scan: dict[str, Any], last: str) -> list[Listed]:
        """Return the expected rest of the scan."""
        by, fields, prefix = scan["by"], list(scan["fields"]), scan["prefix"]
        low, high = scan["between"] or (None, None)
        if by in FOLDED and fields:
            fields[0] = folded(fields[0])
        if by in FOLDED and prefix and not fields:
            prefix = folded(prefix)
        if by in FOLDED and not fields:
            low, high = (None if each is None else folded(each) for each in (low, high))
        rows = [
            r
            for r in self._homes[scan["home"]].listed(by, self._clock.now())
            if list(r.fields[: len(fields)]) == fields
        ]
        if prefix:
            rows = [row for row in rows if row.fields[len(fields)].startswith(prefix)]
        if low is not None:
            rows = [row for row in rows if row.fields[len(fields)] >= low]
        if high is not None:
            rows = [row for row in rows if row.fields[len(fields)] < high]
        if scan["reverse"]:
            return [row for row in reversed(rows) if not last or row.key < last]
        return [row for row in rows if row.key > last]


def index_of(derived: object) -> Index:
    assert isinstance(derived, Index)
    return derived
