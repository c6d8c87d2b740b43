"""RocksDB's options, each with its reason. `database` makes a commit durable."""

from collections.abc import Iterable
from typing import Final

from rocksdict import BlockBasedOptions, Cache, DBRecoveryMode, Options, WriteOptions

CACHE_BYTES: Final = 32 * 1_024 * 1_024
"""Block cache, shared by all column families."""

ROWS_BUFFER_BYTES: Final = 16 * 1_024 * 1_024
"""Rows in memory before they are flushed; after a crash, as much of the log is replayed."""

OTHER_BUFFER_BYTES: Final = 4 * 1_024 * 1_024

BUFFERS_MAX: Final = 4
"""Write buffers that may wait for a flush before writes stall."""

LOG_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""At this size, the family that still needs the write-ahead log is flushed, and the log deleted."""

FILTER_BITS: Final = 10
"""Bloom filter: an absent key, such as a free unique value, costs no read of the files."""

OPEN_FILES_MAX: Final = 256

FILES_SLOWDOWN: Final = 40
FILES_STOP: Final = 60
"""Files waiting for compaction before writes stall: far more than a writer that syncs can cause."""

INFO_LOGS_KEPT: Final = 3
INFO_LOG_BYTES: Final = 1_024 * 1_024
"""Number and size of RocksDB's own log files, `LOG`."""


def options(families: Iterable[str]) -> tuple[Options, dict[str, Options]]:
    """Return the options of the database with its rows, and of each other family."""
    cache = Cache(CACHE_BYTES)
    rows = _family(cache, ROWS_BUFFER_BYTES)
    rows.create_if_missing(True)
    rows.create_missing_column_families(True)
    rows.set_paranoid_checks(True)
    # After a power cut the unconfirmed end of the log may be torn: recover all records before it.
    rows.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    rows.set_max_total_wal_size(LOG_BYTES_MAX)
    rows.set_max_open_files(OPEN_FILES_MAX)
    rows.set_avoid_unnecessary_blocking_io(True)  # reads on the event loop delete no files
    rows.set_keep_log_file_num(INFO_LOGS_KEPT)
    rows.set_max_log_file_size(INFO_LOG_BYTES)
    return rows, {name: _family(cache, OTHER_BUFFER_BYTES) for name in families}


def write_options() -> WriteOptions:
    """Have a write stall raise instead of wait: the driver would wait with Python's lock held."""
    writing = WriteOptions()
    writing.no_slowdown = True
    return writing


def _family(cache: Cache, buffer_bytes: int) -> Options:
    family = Options(raw_mode=True)  # rocksdict pickles otherwise
    family.set_write_buffer_size(buffer_bytes)
    family.set_max_write_buffer_number(BUFFERS_MAX)
    family.set_level_zero_slowdown_writes_trigger(FILES_SLOWDOWN)
    family.set_level_zero_stop_writes_trigger(FILES_STOP)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(FILTER_BITS, False)
    family.set_block_based_table_factory(blocks)
    return family
