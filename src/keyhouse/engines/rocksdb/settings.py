"""How RocksDB is set up here, each setting with its reason. What makes a commit durable is in `database`."""

from collections.abc import Iterable
from typing import Final

from rocksdict import BlockBasedOptions, Cache, DBRecoveryMode, Options, WriteOptions

CACHE_BYTES: Final = 32 * 1_024 * 1_024
"""Blocks kept in memory, for all column families together."""

ROWS_BUFFER_BYTES: Final = 16 * 1_024 * 1_024
"""Rows gathered in memory before they go to a file; a crash reads so much of the log again."""

OTHER_BUFFER_BYTES: Final = 4 * 1_024 * 1_024

BUFFERS_MAX: Final = 4
"""So many may wait for the disk before writes do."""

LOG_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""A write-ahead log that has come to this is let go, by flushing the family that still needs it."""

FILTER_BITS: Final = 10
"""A key that is not there, as of a unique value that is free, is found to be missing without a look into the files."""

OPEN_FILES_MAX: Final = 256

FILES_SLOWDOWN: Final = 40
FILES_STOP: Final = 60
"""Files that wait to be compacted before writes have to wait: far above what a writer that syncs can cause."""

NOTES_KEPT: Final = 3
NOTES_BYTES: Final = 1_024 * 1_024
"""RocksDB's own diary, `LOG`: how many, and how large."""


def options(families: Iterable[str]) -> tuple[Options, dict[str, Options]]:
    """Of the database and the rows, and of each other family."""
    cache = Cache(CACHE_BYTES)
    rows = _family(cache, ROWS_BUFFER_BYTES)
    rows.create_if_missing(True)
    rows.create_missing_column_families(True)
    rows.set_paranoid_checks(True)
    # After a power cut the end of the log, which nobody was promised, may be torn anywhere: take what is whole before it.
    rows.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    rows.set_max_total_wal_size(LOG_BYTES_MAX)
    rows.set_max_open_files(OPEN_FILES_MAX)
    rows.set_avoid_unnecessary_blocking_io(
        True
    )  # reads are on the event loop: they delete no files
    rows.set_keep_log_file_num(NOTES_KEPT)
    rows.set_max_log_file_size(NOTES_BYTES)
    return rows, {name: _family(cache, OTHER_BUFFER_BYTES) for name in families}


def write_options() -> WriteOptions:
    """A write never waits for RocksDB to catch up: it would do so holding Python's lock. `database` says where it syncs."""
    writing = WriteOptions()
    writing.no_slowdown = True
    return writing


def _family(cache: Cache, buffer_bytes: int) -> Options:
    family = Options(raw_mode=True)  # else rocksdict pickles
    family.set_write_buffer_size(buffer_bytes)
    family.set_max_write_buffer_number(BUFFERS_MAX)
    family.set_level_zero_slowdown_writes_trigger(FILES_SLOWDOWN)
    family.set_level_zero_stop_writes_trigger(FILES_STOP)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(FILTER_BITS, False)
    family.set_block_based_table_factory(blocks)
    return family
