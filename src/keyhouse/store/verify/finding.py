"""Findings of `verify`, and their confirmation in a transaction."""

from collections.abc import Awaitable, Callable
from typing import Concatenate, Literal, ParamSpec

import msgspec

from keyhouse.errors import DataError, KeyFieldError
from keyhouse.store.store import Store
from keyhouse.store.writes.transaction import Transaction

P = ParamSpec("P")

_ATTEMPTS_MAX = 20

Kind = Literal[
    "missing",
    "wrong",
    "dangling",
    "miscounted",
    "unfolded",
    "foreign",
    "orphan",
    "unfinished",
    "unresolved",
    "conflict",
    "newer",
    "unmigrated",
    "sealed",
    "unreadable",
    "unknown",
]


class Finding(msgspec.Struct, frozen=True):
    """One row that is not as it should be. `of` is its record; `repaired`: it was corrected."""

    kind: Kind
    key: str
    of: str
    detail: str = ""
    repaired: bool = False


async def confirmed(
    store: Store,
    check: Callable[Concatenate[Transaction, P], Awaitable[Finding | None]],
    *args: P.args,
    **options: P.kwargs,
) -> Finding | None:
    """Run a check in a transaction, and return its finding if everything it read was current.

    A check that writes nothing must hold at one moment too: it is run again if a row has changed.
    """

    async def attempt(tx: Transaction) -> tuple[Finding | None, bool]:
        try:
            finding = await check(tx, *args, **options)
        except (DataError, KeyFieldError):
            tx.discard()
            return None, True  # the row has become unreadable, which is a separate finding
        return finding, tx.pending > 0 or finding is None or await tx.rows.is_unchanged()

    for _ in range(_ATTEMPTS_MAX):
        finding, is_confirmed = await store.transact(attempt)
        if is_confirmed:
            return finding
    return None  # it changes all the time: its writers keep it right
