"""Rows by which the processes of a service agree on something that no schema has.

They are in a space beside those of the tenants. Each is changed by reading it and writing it with a
check that nobody else has written it since; it expires when nobody has written it for a while.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final, TypeVar

from keyhouse.engine import Batch, Check, Engine, Put
from keyhouse.errors import ContentionError
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.schema.space import SERVICE_SPACE

R = TypeVar("R")

_ATTEMPTS_BEFORE_PAUSE: Final = 4


async def update_service_row(
    engine: Engine,
    key: str,
    change: Callable[[bytes | None], tuple[bytes | None, R]],
    *,
    kept_seconds: float,
) -> R:
    """Replace the value of a row by the one that `change` returns; return its result.

    `change` gets None if there is no row, and returns None to delete it. It is called again if
    another process was first. A value that stays the same is not written.
    """
    for attempt in range(TRANSACTION_ATTEMPTS_MAX):
        [row] = await engine.read(SERVICE_SPACE, [key])
        old = None if row is None else row.value
        new, result = change(old)
        if new == old:
            return result
        expires = engine.clock.now() + round(1_000 * kept_seconds)
        batch = Batch(
            checks=(Check(key, None if row is None else row.revision),),
            puts=() if new is None else (Put(key, new, expires),),
            deletes=(key,) if new is None else (),
        )
        if await engine.commit(SERVICE_SPACE, batch) is not None:
            return result
        if attempt >= _ATTEMPTS_BEFORE_PAUSE:
            await asyncio.sleep(random.uniform(0, 0.001 * min(attempt, 50)))
    raise ContentionError(
        "Too many processes write the same row: try again later.", space=SERVICE_SPACE, key=key
    )
