"""Rows for a response of limited size."""

from collections.abc import Callable
from typing import Any

from keyhouse.engine import Row
from keyhouse.schema import Declared, Derived
from keyhouse.store.reads.scan import Scan
from keyhouse.store.store import Store

__all__ = ["rows_while"]


async def rows_while(
    store: Store,
    declared: Declared,
    fits: Callable[[Row], bool],
    *,
    limit: int = 1_000,
    cursor: str | None = None,
    prefix: str | None = None,
    keys_only: bool = False,
    **fields: Any,
) -> tuple[list[Row], str | None]:
    """Return up to `limit` rows, undecoded, until one does not fit; and the cursor of the rest.

    No more is read than fits, but for a part of a page. If the first row does not fit, there are
    none, and the cursor is the one given.
    """
    bound = (
        store.binding.derived(declared)
        if isinstance(declared, Derived)
        else store.binding.record(declared)
    )
    keys = bound.template.range(fields, prefix=prefix)
    scan = Scan(
        store.engine,
        store.space,
        store.binding,
        bound,
        keys,
        reverse=False,
        mark="" if keys.accepts is None else f"\0{prefix}",
    )
    return await scan.rows_while(fits, limit, cursor, keys_only=keys_only)
