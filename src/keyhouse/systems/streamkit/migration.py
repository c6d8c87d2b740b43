"""The document's key migration: every row of a customer from its v1 key to its v2 key.

Three passes over each category, each a job that a kill can't repeat or lose: copy what has no copy yet, look at every copy,
then delete what has a copy that is the same. Keys are taken apart and put together by their templates. A copy keeps the
times and the expiry of what it is a copy of. Run again, it finds nothing to do; run while customers write, it loses nothing:
see `versions` for why.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError
from keyhouse.store import Entry, Store, Transaction, forget_job, run_job, try_job
from keyhouse.systems.streamkit.schema import SCHEMAS
from keyhouse.systems.streamkit.versions import PAIRS, Pair

__all__ = [
    "PHASES",
    "Moved",
    "Progress",
    "customer_ids",
    "migrate_keys",
]

PHASES: Final = ("copy", "verify", "delete")

Progress = Callable[[str, str, int], None]
"""Is told the customer, the phase with its category, and how many rows that has looked at."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one customer. `conflicts` are v1 keys that were left, because v2 holds something else, or nothing."""

    customer: str
    copied: int = 0
    verified: int = 0
    deleted: int = 0
    conflicts: tuple[str, ...] = ()


async def customer_ids(engine: Engine) -> AsyncIterator[str]:
    """Every space that is a customer's."""
    async for space in engine.spaces():
        try:
            SCHEMAS[0].space.bound(space)
            PAIRS["notes"].v1.template.check({"customer": space})
        except KeyFieldError:
            continue
        yield space


async def migrate_keys(
    engine: Engine, customer: str, *, dry_run: bool = False, on_progress: Progress | None = None
) -> Moved:
    """Move all that one customer has to v2 keys. `dry_run`: say what would be copied, and change nothing."""
    store = Store(SCHEMAS[0], engine, customer)
    conflicts: set[str] = set()
    counts = dict.fromkeys(PHASES, 0)
    for phase in PHASES[:1] if dry_run else PHASES:
        for pair in PAIRS.values():
            report = (
                None
                if on_progress is None
                else partial(on_progress, customer, f"{phase} {pair.category}")
            )
            step = partial(_STEPS[phase], pair, conflicts)
            if dry_run:
                state = await try_job(store, pair.v1, step, on_progress=report)
            else:
                run = await run_job(store, _job(phase, pair), pair.v1, step, on_progress=report)
                assert run is not None
                state = run
            counts[phase] += state.done if phase == "verify" else state.changed
    if not dry_run:
        await store.transact(partial(_forget, store))
    return Moved(
        customer=customer,
        copied=counts["copy"],
        verified=counts["verify"],
        deleted=counts["delete"],
        conflicts=tuple(sorted(conflicts)),
    )


async def _copy(pair: Pair[Any], conflicts: set[str], tx: Transaction, entry: Entry[Any]) -> None:
    if await _second(pair, tx, entry) is None:
        await tx.restore(pair.v2, entry.record, expires=entry.expires)


async def _verify(pair: Pair[Any], conflicts: set[str], tx: Transaction, entry: Entry[Any]) -> None:
    copy = await _second(pair, tx, entry)
    if copy is None and await tx.row(entry.key) is not None:
        conflicts.add(entry.key)
        return
    if copy is not None and not _same(copy, entry):
        conflicts.add(entry.key)


async def _delete(pair: Pair[Any], conflicts: set[str], tx: Transaction, entry: Entry[Any]) -> None:
    copy = await _second(pair, tx, entry)
    if copy is not None and _same(copy, entry):
        conflicts.discard(entry.key)
        fields: dict[str, Any] = {pair.field: entry.values[-1]}
        await tx.delete(pair.v1, **fields)
    else:
        conflicts.add(entry.key)


_STEPS: Final = {"copy": _copy, "verify": _verify, "delete": _delete}


async def _second(pair: Pair[Any], tx: Transaction, entry: Entry[Any]) -> Entry[Any] | None:
    fields: dict[str, Any] = {pair.field: entry.values[-1]}
    return await tx.entry(pair.v2, **fields)


def _same(copy: Entry[Any], entry: Entry[Any]) -> bool:
    return (copy.record, copy.expires) == (entry.record, entry.expires)


def _job(phase: str, pair: Pair[Any]) -> str:
    return f"keys-v2-{phase}-{pair.category}"


async def _forget(store: Store, tx: Transaction) -> None:
    """A run that came to its end leaves nothing behind, and the next one looks anew."""
    for phase in PHASES:
        for pair in PAIRS.values():
            await forget_job(tx, store, _job(phase, pair))
