"""Erases one space of a bucket. The cost depends on the space alone, not on the bucket.

Theory of operation
-------------------
A purge deletes messages in the stream, but consumers are not notified of it: every mirror would
keep the rows. So each purge is announced by a message `erased`, which all feeds receive in stream
order, and each mirror drops the entries of the space up to the sequence that it names. Later writes
have a higher sequence and stay. The announcement names the space by a digest, and is pruned with
the tombstones.

The row `last` must be the last to go, and its absence must reach every process:

| step | the stream has of the space            | if it stops here                             |
|------|----------------------------------------|----------------------------------------------|
| 1    | everything; `last` is written again    | the call is repeated                         |
| 2    | `last` alone: the rest is purged       | the call is repeated                         |
| 3    | the tombstone of `last`                | every process sees it; the sweep prunes it   |
| 4    | nothing: the tombstone is purged       | mirrors have the tombstone until the sweep   |
|      |                                        | prunes, or a writer asks the server          |

A bucket that Keyhouse created for this space alone is deleted instead.
"""

from functools import partial

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Check, Put, Row
from keyhouse.engines.jetstream.bucket import Bucket
from keyhouse.engines.jetstream.error_map import Ack, translate
from keyhouse.engines.jetstream.feed import ErasedRecord
from keyhouse.engines.jetstream.message import Message
from keyhouse.engines.jetstream.pending import JetstreamCommit
from keyhouse.engines.jetstream.reader import rows
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.engines.jetstream.writer import JetstreamWriter


async def erase(
    bucket: Bucket, writer: JetstreamWriter, space: str, last: str | None, clock: Clock
) -> None:
    """Erase a space, the row at the key `last` at the very end."""
    if await until_available(lambda: bucket.delete_if_own(space)):
        return
    await bucket.open(writing=True)
    await until_available(bucket.sync)
    mark = None if last is None else await _write_again(bucket, writer, space, last, clock)
    if last is None or mark is None:
        return await _purge(bucket, space, bucket.mirror.position)
    await _purge(bucket, space, mark - 1)
    deletion = Batch(checks=(Check(last, mark),), deletes=(last,))
    deleted = await writer.submit(JetstreamCommit(space, deletion))
    if deleted is not None:  # else another call has written the row, and continues
        await _purge(bucket, space, deleted)


async def _write_again(
    bucket: Bucket, writer: JetstreamWriter, space: str, key: str, clock: Clock
) -> int | None:
    """Make a row the newest message of its space and return its sequence; None: it is absent."""
    row: Row | None
    while (row := (await rows(bucket, space, [key], clock))[0]) is not None:
        put = Put(key, row.value, row.expires)
        batch = Batch(checks=(Check(key, row.revision),), puts=(put,))
        sequence = await writer.submit(JetstreamCommit(space, batch))
        if sequence is not None:
            return sequence
        await until_available(bucket.sync)
    return None


async def _purge(bucket: Bucket, space: str, upto: int) -> None:
    """Purge the messages of a space up to a sequence, and wait until the mirror has dropped them.

    Another process drops them before its next read.
    """
    for subject in bucket.names.of_space(space):
        await until_available(partial(bucket.purge, subject, upto + 1))
    record = msgspec.json.encode(ErasedRecord(upto))
    announcement = Message(bucket.names.erased(space), record, {})

    async def announce() -> Ack:
        reply = await bucket.connection.request([announcement])
        ack = msgspec.json.decode(reply.data, type=Ack)
        if ack.error is not None:
            raise translate(ack.error)
        return ack

    bucket.acknowledged = max(bucket.acknowledged, (await until_available(announce)).seq)
    await until_available(bucket.sync)
