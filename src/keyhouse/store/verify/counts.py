"""The part of `verify` that compares counts with the number of their records."""

from collections import Counter as Multiset
from collections.abc import AsyncIterator

from keyhouse.engine import Row, number_of
from keyhouse.errors import CounterError
from keyhouse.store.jobs.recount import CountedRow, recount
from keyhouse.store.store import Store
from keyhouse.store.verify.finding import Finding


async def check_counts(
    store: Store, keys: set[str], counted: Multiset[str], *, repair: bool
) -> AsyncIterator[Finding]:
    """Yield the counts that differ from the number of their records, after these are counted again.

    `keys` are those of all stored counts; `counted` are the numbers that a scan has found.
    """
    wrong: dict[str, set[str]] = {}
    for key in sorted(keys | counted.keys()):
        if _number(await store.row(key)) != counted[key]:
            match = store.find(key)
            assert match is not None
            wrong.setdefault(match.record.name, set()).add(key)
    for name, of_record in wrong.items():
        for finding in await _recounted(store, name, of_record, repair):
            yield finding


async def _recounted(store: Store, name: str, keys: set[str], repair: bool) -> list[Finding]:
    record = store.schema.record(name)
    findings: dict[str, Finding] = {}

    async def settle(row: CountedRow) -> bool:
        number = _number(row.before)
        # it may be right: unreadable records are separate findings
        is_right = number is not None and row.number <= number <= row.number + row.unreadable
        if not await row.settle(store, writes=repair and not is_right):
            return False
        if not is_right:
            detail = f"is {number}, should be {row.number}"
            findings[row.key] = Finding("miscounted", row.key, name, detail, repair)
        return True

    counts = [each for each in record.derived if store.binding.derived(each).strategy == "add"]
    _, left = await recount(store, record, counts, settle, keys=keys)
    for key in left:
        detail = "changes too often to be counted; run verify again later"
        findings[key] = Finding("miscounted", key, name, detail)
    return [findings[key] for key in sorted(findings)]


def _number(row: Row | None) -> int | None:
    if row is None:
        return 0
    try:
        return number_of(row.key, row.value)
    except CounterError:
        return None
