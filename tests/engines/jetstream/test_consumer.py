"""The costs of a large bucket in a process that mirrors it: bytes, calls, messages on their way."""

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.consumer import BATCH_MESSAGES, Consumer
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import Mirror
from keyhouse.engines.jetstream.settings import parse
from keyhouse.engines.jetstream.value_cache import ValueCache
from tests.engines.support.jetstream_rows import put, run, value
from tests.support.nats_servers import SharedBucket
from tests.support.polling import until

KEY_BYTES_MAX = 110
"""Of a key with 12 characters: a Python text of 61 bytes, and the columns. With 64 MiB of values
that is 177 bytes for each of a million keys."""

LOG_BYTES_MAX = 4_000_000
"""The log of recent changes, whatever the number of keys."""

CALLS_MAX = 25
"""Calls of Python functions for each message, from the socket to the mirror."""


def test_a_key_takes_few_bytes() -> None:
    """It had a dict entry, an object and a place in a list: 236 bytes, without its value."""
    spaces, keys = 250, 200
    tracemalloc.start()
    mirror = Mirror(ValueCache(0))
    mirror.finish_loading()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(spaces * keys):
        row_key = RowKey(f"space-{number % spaces:04d}", f"row-{number:08d}")
        mirror.deliver(row_key, Entry(number + 1, number + 1), b"value")
    for number in range(0, spaces * keys, 7):
        row_key = RowKey(f"space-{number % spaces:04d}", f"row-{number:08d}")
        sequence = spaces * keys + number + 1
        mirror.deliver(row_key, Entry(sequence, sequence), b"value")
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used < KEY_BYTES_MAX * spaces * keys + LOG_BYTES_MAX


def test_a_message_takes_few_calls(tmp_path: Path) -> None:
    """nats-py made an object of it, put that into a queue and woke a task."""

    async def scenario(there: SharedBucket) -> None:
        rows = 2_000
        for start in range(0, rows, 500):
            await put(there.engine, *(f"k{number:05d}" for number in range(start, start + 500)))
        other = JetstreamEngine.open(there.url)
        await other.connect()
        with counted_calls() as calls:
            assert await value(other, "k00000") == b"1"
        await other.close()
        assert rows < len(calls) < CALLS_MAX * rows

    run(tmp_path, scenario)


def test_no_more_than_two_batches_are_on_their_way(tmp_path: Path) -> None:
    """A consumer that pushes sent up to 32 MiB ahead. Replies to other requests on the connection
    waited behind them for longer than their timeout."""

    async def scenario(there: SharedBucket) -> None:
        rows = 3 * BATCH_MESSAGES
        for start in range(0, rows, 500):
            await put(there.engine, *(f"k{number:05d}" for number in range(start, start + 500)))
        connection = Connection(parse(there.url), on_disconnect=lambda: None)
        await connection.open()
        received: list[int] = []
        consumer = Consumer(
            connection,
            f"KV_{there.bucket}",
            lambda sequence, *_: received.append(sequence),
            lambda: None,
        )
        assert await consumer.start(1, [f"$KV.{there.bucket}.>"])
        await consumer.request()

        async def has_both() -> bool:
            return consumer.received == 2 * BATCH_MESSAGES

        await until(has_both)
        assert consumer.needs_request and not consumer.is_drained and not consumer.is_lost
        await consumer.request()

        async def has_all() -> bool:
            return consumer.is_drained

        await until(has_all)
        assert received == list(range(1, rows + 1))
        await consumer.stop()
        await connection.close()

    run(tmp_path, scenario)


@contextmanager
def counted_calls() -> Iterator[list[None]]:
    """Collect an item for each call of a Python function."""
    calls: list[None] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(None)

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
