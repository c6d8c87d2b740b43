"""What `verify` finds, and the look that is confirmed of it."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from keyhouse.errors import DataError, KeyFieldError
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

_LOOKS_MAX = 20

Kind = Literal[
    "missing", "wrong", "dangling", "miscounted", "unfolded", "conflict", "unreadable", "unknown"
]


class Finding(msgspec.Struct, frozen=True):
    """One row that is not as it should be. `repaired`: it is now."""

    kind: Kind
    key: str
    of: str
    detail: str = ""
    repaired: bool = False


async def confirmed(
    store: Store, work: Callable[[Transaction], Awaitable[Finding | None]]
) -> Finding | None:
    """What is found, where all that was looked at stood together: a look that mends nothing must hold as one that does."""

    async def looked(tx: Transaction) -> tuple[Finding | None, bool]:
        try:
            finding = await work(tx)
        except (DataError, KeyFieldError):
            tx.forget()
            return (
                None,
                True,
            )  # it has become unreadable since: another finding, which is made when its own turn comes
        return finding, tx.pending > 0 or finding is None or await tx.holds()

    for _ in range(_LOOKS_MAX):
        finding, confirmed = await store.transact(looked)
        if confirmed:
            return finding
    return None  # it changes all the time, and so is seen to by those who change it
