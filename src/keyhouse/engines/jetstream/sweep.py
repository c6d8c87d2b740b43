"""What the sweep does to one bucket: rows that have expired, entries that no watch needs any more, batch ids of yesterday.

Rows go as any row goes: by a marker, which watches see. Markers stay until they are `changes_kept` messages old, of which
each row and each batch id is one; then the horizon is moved over them, and a while later, when everyone who follows the
stream has heard of it, they are purged.
"""

import asyncio
from typing import Any, Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.error_map import MISMATCH, Ack, translate
from keyhouse.engines.jetstream.feed import PRUNE_DELAY_SECONDS, Horizon
from keyhouse.engines.jetstream.message import EXPECTED, Message
from keyhouse.engines.jetstream.pending import Applied, JetstreamSweep
from keyhouse.engines.jetstream.writer import JetstreamWriter

SWEEP_ROWS: Final = 500
"""Rows that are removed in one commit: between two of them, others commit."""

PRUNE_ROWS: Final = 2_000
"""Markers that one sweep purges from one bucket: each is a request."""

PRUNE_AT_ONCE: Final = 32

HORIZONS_KEPT: Final = 32
"""Messages about the horizon, which are no changes, among those that are kept: up to two for each tenth of them."""

ID_MARGIN_MILLISECONDS: Final = 3_600_000
"""How much longer than a day a batch id is kept: its time is by the clock of whoever wrote it."""


async def sweep(bucket: Bucket, writer: JetstreamWriter, clock: Clock, limit: int) -> int:
    """Remove up to `limit` expired rows; how many went."""
    swept = 0
    while swept < limit:
        expired = bucket.mirror.take_expired(clock.now(), min(SWEEP_ROWS, limit - swept))
        if not expired:
            break
        try:
            swept += await writer.submit(JetstreamSweep(expired))
        except BaseException:
            bucket.mirror.requeue(expired)
            raise
    return swept


async def prune(bucket: Bucket, clock: Clock, changes_kept: int) -> None:
    """Let go of what is kept for watches and for batch ids beyond their time."""
    mirror, now = bucket.mirror, clock.now()
    pruned = mirror.pruned
    if pruned < mirror.horizon and now - mirror.announced_at >= PRUNE_DELAY_SECONDS * 1_000:
        tombstones = mirror.tombstones(mirror.horizon)
        for start in range(0, min(len(tombstones), PRUNE_ROWS), PRUNE_AT_ONCE):
            some = tombstones[start : start + PRUNE_AT_ONCE]
            await asyncio.gather(
                *(
                    _purge(bucket, bucket.names.row(*row_key), sequence + 1)
                    for row_key, sequence in some
                )
            )
        pruned = mirror.horizon if len(tombstones) <= PRUNE_ROWS else pruned
    horizon = max(mirror.horizon, mirror.position - changes_kept - HORIZONS_KEPT)
    due = pruned == mirror.horizon and horizon - mirror.horizon >= max(1, changes_kept // 10)
    if due or pruned > mirror.pruned:
        await _announce(bucket, Horizon(horizon if due else mirror.horizon, pruned, now))
    await _forget_ids(bucket, now)


async def _announce(bucket: Bucket, horizon: Horizon) -> None:
    """Unless somebody else just did."""
    headers = {EXPECTED: str(bucket.mirror.horizon_sequence)}
    message = Message(bucket.names.horizon, msgspec.json.encode(horizon), headers)
    ack = msgspec.json.decode((await bucket.connection.request([message])).data, type=Ack)
    if ack.error is None:
        bucket.acknowledged = max(bucket.acknowledged, ack.seq)
    elif ack.error.err_code not in MISMATCH:
        raise translate(ack.error)
    elif await bucket.last_message(bucket.names.horizon) is None:
        bucket.mirror.horizon_sequence = (
            0  # somebody has purged it: the next sweep puts it there again
        )


async def _forget_ids(bucket: Bucket, now: int) -> None:
    """Ids lie in the order of their times, so the first that is still needed is found by halving."""
    least, most = 1, bucket.mirror.position + 1
    oldest = await _first_id(bucket, least)
    if oldest is None or not _is_expired(oldest, now):
        return
    least = oldest["seq"] + 1
    while least < most:
        middle = (least + most) // 2
        found = await _first_id(bucket, middle)
        if found is not None and _is_expired(found, now):
            least = found["seq"] + 1
        else:
            most = middle
    await _purge(bucket, bucket.names.ids, least)


async def _first_id(bucket: Bucket, sequence: int) -> dict[str, Any] | None:
    """The first row of an id from `sequence` on."""
    found = await bucket.connection.api(
        f"STREAM.MSG.GET.{bucket.names.stream}", seq=sequence, next_by_subj=bucket.names.ids
    )
    return None if found is None else found["message"]


def _is_expired(found: dict[str, Any], now: int) -> bool:
    return Applied.read(found["subject"], found.get("data", "")).expired(
        now - ID_MARGIN_MILLISECONDS
    )


async def _purge(bucket: Bucket, subject: str, before: int) -> None:
    """The messages of the subject with a lower sequence: a newer one stays."""
    await bucket.connection.api(f"STREAM.PURGE.{bucket.names.stream}", filter=subject, seq=before)
