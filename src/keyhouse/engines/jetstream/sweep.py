"""The sweep of one bucket: expired rows, old tombstones, old batch ids.

Expired rows are deleted like any row, by a tombstone that watches see. Tombstones, and the
announcements of erased spaces, stay until they are `changes_kept` messages old (each row and each
batch id is one message). Then the horizon is moved past them, and once every feed has had time to
receive it, they are purged.
"""

import asyncio
from typing import Any, Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.error_map import MISMATCH, Ack, translate
from keyhouse.engines.jetstream.feed import PRUNE_DELAY_SECONDS, HorizonRecord
from keyhouse.engines.jetstream.message import EXPECTED, Message
from keyhouse.engines.jetstream.pending import Applied, JetstreamSweep
from keyhouse.engines.jetstream.writer import JetstreamWriter
from keyhouse.engines.retention import Retention

SWEEP_ROWS: Final = 500
"""Rows deleted per commit: other commits run in between."""

PRUNE_ROWS: Final = 2_000
"""Tombstones that one sweep purges per bucket: each costs a request."""

PRUNE_AT_ONCE: Final = 32

HORIZONS_KEPT: Final = 32
"""Allowance for `horizon` messages, which are not changes: up to two per tenth of `changes_kept`.
"""

ERASURE_MESSAGES: Final = 4
"""Messages of an erasure that are not changes of its caller."""

ID_MARGIN_MILLISECONDS: Final = 3_600_000
"""Batch ids are kept this much longer: their times come from other machines' clocks."""


async def sweep(bucket: Bucket, writer: JetstreamWriter, clock: Clock, limit: int) -> int:
    """Delete up to `limit` expired rows and return their number."""
    swept = 0
    while swept < limit:
        expired = bucket.mirror.expired(clock.now(), min(SWEEP_ROWS, limit - swept))
        if not expired:
            break
        swept += await writer.submit(JetstreamSweep(expired))
        await bucket.wait_for(bucket.acknowledged)
    return swept


async def prune(bucket: Bucket, clock: Clock, retention: Retention) -> None:
    """Purge old tombstones and batch ids, and announce the next horizon."""
    mirror, now = bucket.mirror, clock.now()
    pruned = mirror.pruned
    if pruned < mirror.horizon and now - mirror.announced_at >= PRUNE_DELAY_SECONDS * 1_000:
        tombstones = mirror.tombstones(mirror.horizon)
        for start in range(0, min(len(tombstones), PRUNE_ROWS), PRUNE_AT_ONCE):
            some = tombstones[start : start + PRUNE_AT_ONCE]
            await asyncio.gather(
                *(
                    bucket.purge(bucket.names.row(*row_key), sequence + 1)
                    for row_key, sequence in some
                )
            )
        if len(tombstones) <= PRUNE_ROWS:
            await bucket.purge(bucket.names.erasures, mirror.horizon + 1)
            pruned = mirror.horizon
    own_messages = HORIZONS_KEPT + ERASURE_MESSAGES * mirror.erasures
    horizon = max(
        mirror.horizon,
        retention.prunable(mirror.position - own_messages, bucket.names.stream),
    )
    due_from = max(1, retention.kept.changes // 10)
    due = pruned == mirror.horizon and horizon - mirror.horizon >= due_from
    if due or pruned > mirror.pruned:
        await _announce(bucket, HorizonRecord(horizon if due else mirror.horizon, pruned, now))
    await _forget_ids(bucket, now)


async def _announce(bucket: Bucket, record: HorizonRecord) -> None:
    """Write the horizon, unless another process has just done so."""
    headers = {EXPECTED: str(bucket.mirror.horizon_sequence)}
    message = Message(bucket.names.horizon, msgspec.json.encode(record), headers)
    ack = msgspec.json.decode((await bucket.connection.request([message])).data, type=Ack)
    if ack.error is None:
        bucket.acknowledged = max(bucket.acknowledged, ack.seq)
    elif ack.error.err_code not in MISMATCH:
        raise translate(ack.error)
    elif await bucket.last_message(bucket.names.horizon) is None:
        # Another program purged it: the next sweep writes it again.
        bucket.mirror.horizon_sequence = 0


async def _forget_ids(bucket: Bucket, now: int) -> None:
    """Purge old batch ids. They are in time order, so a binary search finds the first to keep."""
    least, most = 1, bucket.mirror.position + 1
    oldest = await _first_id(bucket, least)
    if oldest is None or not _is_expired(oldest, now):
        return
    least = oldest["seq"] + 1
    while least < most:
        middle = (least + most) // 2
        message = await _first_id(bucket, middle)
        if message is not None and _is_expired(message, now):
            least = message["seq"] + 1
        else:
            most = middle
    await bucket.purge(bucket.names.ids, least)


async def _first_id(bucket: Bucket, sequence: int) -> dict[str, Any] | None:
    """Return the first batch id message at or after `sequence`."""
    answer = await bucket.connection.api(
        f"STREAM.MSG.GET.{bucket.names.stream}", seq=sequence, next_by_subj=bucket.names.ids
    )
    return None if answer is None else answer["message"]


def _is_expired(message: dict[str, Any], now: int) -> bool:
    return Applied.read(message["subject"], message.get("data", "")).expired(
        now - ID_MARGIN_MILLISECONDS
    )
