"""Assumptions: the first attempt of a transaction takes rows to be as they were seen last.

Theory of operation. A transaction checks at its commit that each row it read is still as it was.
So it may as well not read a row whose revision it knows from before, and have only the check: if
the row has changed, the commit fails as after any lost race, and nothing is written.

    who assumes             which rows                            known from
    CachedReads.get_in      those that a result was made of       the cached result
    LinkGuard               an owner, and that it has no guard    the last commit that read it
    append to a log         that a new position is free           it is new

A wrong assumption can show earlier than in the commit: as an error of the work, which decided by an
old record, or as a limit that the commit exceeds only by its additional checks. So three rules
hold, in `Attempts.run` alone:

    1. Only a first attempt assumes (`RowBuffer.may_assume`): every later one reads, and decides by
       what is stored.
    2. An error after an assumption is not the caller's: the work runs again, without assumptions.
    3. A wrong assumption does not mean contention: the second attempt does not wait for others.
"""

from collections.abc import Mapping

from keyhouse.engine import Check
from keyhouse.store.writes.row_buffer import RowBuffer, revision_of


def assume(rows: RowBuffer, checks: Mapping[str, Check]) -> bool:
    """Take rows to be at the revisions of these checks, by key, without reading them.

    Return False, and assume nothing, if one of them was written here, or read or assumed at another
    revision, or if no other attempt would follow a lost race.
    """
    if not rows.may_assume:
        return False
    keys = checks.keys()
    for used in (rows.stored, rows.writes, rows.adds, rows.assumed):
        if used and not keys.isdisjoint(used):
            if any([_is_used_otherwise(rows, check) for check in checks.values()]):
                return False
            break
    rows.assumed = {**rows.assumed, **checks} if rows.assumed else checks
    return True


def assume_absent(rows: RowBuffer, key: str) -> bool:
    """Take a row to be absent without reading it. Return False, and assume nothing, if it was used
    here already, or if no other attempt would follow."""
    if not rows.may_assume or key in rows.stored or key in rows.writes:
        return False
    rows.stored[key] = None
    return True


def _is_used_otherwise(rows: RowBuffer, check: Check) -> bool:
    """Return whether a row was written here, or read or assumed at another revision."""
    key = check.key
    if key in rows.writes or key in rows.adds:
        return True
    if rows.assumed and rows.assumed.get(key, check) != check:
        return True
    return key in rows.stored and revision_of(rows.stored[key]) != check.revision
