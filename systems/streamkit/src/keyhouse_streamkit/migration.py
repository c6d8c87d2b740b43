"""The document's key migration: moves every row of a customer from its v1 key to its v2 key.

`keyhouse.store.jobs.key_migration` explains how, and why customers may write meanwhile.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial

from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError
from keyhouse.store import KeyMigrationResult, Store
from keyhouse.store import migrate_keys as migrate_store
from keyhouse_streamkit.schema import NOTE, SCHEMAS


class MigratedCustomer(KeyMigrationResult, frozen=True, kw_only=True):
    """The result for one customer; `conflicts` are v1 keys."""

    customer: str


async def customer_ids(engine: Engine) -> AsyncIterator[str]:
    """Iterate over the spaces that are customers."""
    async for space in engine.spaces():
        try:
            SCHEMAS[0].space.bound(space)
            NOTE.template.check({"customer": space})
        except KeyFieldError:
            continue
        yield space


async def migrate_keys(
    engine: Engine,
    customer: str,
    *,
    dry_run: bool = False,
    on_progress: Callable[[str, str, int], None] | None = None,
) -> MigratedCustomer:
    """Move all rows of one customer to v2 keys. `dry_run`: count what would be copied."""
    report = None if on_progress is None else partial(on_progress, customer)
    store = Store(SCHEMAS[0], engine, customer)
    result = await migrate_store(store, job="keys-v2", dry_run=dry_run, on_progress=report)
    return MigratedCustomer(
        customer=customer,
        copied=result.copied,
        verified=result.verified,
        deleted=result.deleted,
        conflicts=result.conflicts,
    )
