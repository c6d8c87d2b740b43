"""The part of `verify` that checks links: every owner exists, every reference resolves, and every
deletion has ended.

The store writes no record without those that it is linked to, so an orphan was written by another
program, by an import, or before the link was declared. A record whose owner is still being
deleted is not an orphan: the deletion's job is a separate finding, and `repair` resumes it.
"""

from collections.abc import AsyncIterator
from typing import Any

from keyhouse.errors import DataError
from keyhouse.schema import BoundLink, BoundRecord, KeyValues, deletion_job
from keyhouse.schema.meta import DELETION_JOBS
from keyhouse.store.entry import ANY
from keyhouse.store.jobs.cascade_delete import cascade_delete, resume_deletions
from keyhouse.store.store import Store
from keyhouse.store.verify.finding import Finding, confirmed
from keyhouse.store.writes.transaction import Transaction


async def check_deletions(store: Store, *, repair: bool) -> AsyncIterator[Finding]:
    """Yield deletions that were interrupted; `repair` finishes them."""
    meta = store.schema.meta
    if meta is None or not store.schema.has_links:
        return
    now = store.engine.clock.now()
    pending = [
        entry
        async for entry in store.scan(meta.job)
        if str(entry.values[0]).startswith(DELETION_JOBS) and entry.record.lease_until <= now
    ]
    if pending and repair:
        await resume_deletions(store)
    for entry in pending:
        detail = f"the deletion of {entry.record.cursor} was interrupted"
        repaired = repair and await store.row(entry.key) is None
        yield Finding("unfinished", entry.key, "job", detail, repaired)


async def check_links(
    store: Store, record: BoundRecord[Any], key: str, value: Any, values: KeyValues, *, repair: bool
) -> AsyncIterator[Finding]:
    """Yield a finding for each record that a stored one is linked to and that does not exist."""
    for link in store.binding.links(record).links:
        owners = link.owner_keys(value, values)
        for owner, row in zip(owners, await store.rows(owners), strict=True):
            if row is None and (
                finding := await confirmed(store, _unlinked, link, key, values, owner)
            ):
                yield await _repaired(store, record, values, finding) if repair else finding


async def _unlinked(
    tx: Transaction, link: BoundLink, key: str, values: KeyValues, owner: str
) -> Finding | None:
    written = await tx.row(key)
    if written is None or await tx.row(owner) is not None:
        return None
    if owner not in link.owner_keys(link.child.decode(written[0], key), values):
        return None
    if not link.owns:
        detail = f"refers to {owner}, which does not exist"
        return Finding("unresolved", key, link.child.name, detail)
    meta = tx.binding.schema.meta
    assert meta is not None  # a schema with links has one
    if await tx.get(meta.job, name=deletion_job(link.owner.name, owner)) is not None:
        return None
    return Finding("orphan", key, link.child.name, f"belongs to {owner}, which does not exist")


async def _repaired(
    store: Store, record: BoundRecord[Any], values: KeyValues, finding: Finding
) -> Finding:
    """Delete an orphan with all that belongs to it."""
    if finding.kind != "orphan":
        return finding
    fields: dict[str, Any] = dict(zip(record.template.fields, values, strict=True))
    try:
        await cascade_delete(store, record.declared, ANY, fields)
    except DataError:
        return finding
    return Finding(finding.kind, finding.key, finding.of, finding.detail, repaired=True)
