"""The open folder: RocksDB's handles, durable writes, and reopening after a failed write.

`rocksdict` holds Python's lock during a write, and would block the event loop for a whole sync, on
whatever thread it is called. But it releases the lock in `flush_wal`. So a commit is a write
without sync, which only copies into the log and into memory, and then a sync of the log on a
thread: the same system calls as a write with `sync`. Rows written and not yet synced are hidden
from readers: see `view`.

A handle that failed to write is unusable for writes (after ENOSPC it rejects everything, even when
there is space again). It still reads, so it stays open until there is space for another.
"""

import os
import shutil
from contextlib import suppress
from typing import Final

from rocksdict import (
    BottommostLevelCompaction,
    ColumnFamily,
    CompactOptions,
    Rdict,
    Snapshot,
    WriteBatch,
)

from keyhouse.engines.rocksdb.encoding import (
    APPLIED,
    CHANGES,
    EXPIRY,
    FAMILIES,
    FORMAT,
    FORMAT_KEY,
    META,
    ROWS,
    number_of,
)
from keyhouse.engines.rocksdb.error_map import FULL, is_stall, translate, translate_sync_error
from keyhouse.engines.rocksdb.format_check import check_folder, check_format
from keyhouse.engines.rocksdb.settings import options, write_options
from keyhouse.errors import FullError, KeyhouseError

OPEN_BYTES: Final = 4 * 1_024 * 1_024
"""Disk space needed to open a folder, in addition to the size of the log that is replayed."""


class WriteStall(Exception):
    """RocksDB must flush or compact before it accepts writes. Nothing was written: try again."""


class Database:
    """`failed`: the error of the last write; the folder must be reopened before the next one."""

    rows: Rdict
    expiry: Rdict
    changes: Rdict
    applied: Rdict

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.failed: KeyhouseError | None = None
        self.families: dict[str, ColumnFamily] = {}
        self._handles: dict[str, Rdict] = {}
        self._writing = write_options()

    @property
    def is_open(self) -> bool:
        return bool(self._handles)

    def open(self) -> None:
        """Open the folder, or create it; its parent folder must exist."""
        try:
            if not os.path.isdir(self.folder):
                os.mkdir(self.folder, 0o700)
            check_folder(self.folder)
            self._open()
        except Exception as error:
            self.close()
            raise translate(error, self.folder) from error
        self.failed = None

    def _open(self) -> None:
        rows, families = options(name for name in FAMILIES if name != ROWS)
        self.rows = Rdict(self.folder, rows, families)
        self._handles = {ROWS: self.rows}
        for name in families:
            self._handles[name] = self.rows.get_column_family(name)
            self.families[name] = self.rows.get_column_family_handle(name)
        self.expiry, self.changes, self.applied = (
            self._handles[name] for name in (EXPIRY, CHANGES, APPLIED)
        )
        if check_format(self.folder, self._handles[META].get(FORMAT_KEY)):
            batch = WriteBatch(raw_mode=True)
            batch.put(FORMAT_KEY, b"%d" % FORMAT, self.families[META])
            self.rows.write(batch)
            self.rows.flush_wal(True)

    def close(self) -> None:
        """Close the handles. Never raises: every confirmed commit is in the log already.

        Any driver object that is still referenced, a snapshot, an iterator or a family, keeps the
        folder locked; so the families are removed from the shared dictionary.
        """
        self.families.clear()
        handles, self._handles = self._handles, {}
        for name in reversed(handles):
            with suppress(Exception):
                handles[name].close()

    def check_space(self) -> None:
        """Raise FullError if there is no space to open another handle: this one can still read."""
        try:
            logs = [
                entry.stat().st_size
                for entry in os.scandir(self.folder)
                if entry.name.endswith(".log")
            ]
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise translate(error, self.folder) from error
        needed = OPEN_BYTES + sum(logs)
        if free < needed:
            raise FullError(FULL, folder=self.folder, free_bytes=free, needed_bytes=needed)

    def write(self, batch: WriteBatch) -> None:
        """Write to the log, not yet durable. A batch that failed cannot be written again."""
        try:
            self.rows.write(batch, self._writing)
        except Exception as error:
            if is_stall(error):
                raise WriteStall from error
            self.failed = translate(error, self.folder)
            raise self.failed from error

    def sync(self) -> None:
        """Make all writes durable. Other threads run meanwhile."""
        try:
            self.rows.flush_wal(True)
        except Exception as error:
            self.failed = translate_sync_error(error, self.folder)
            raise self.failed from error

    def compact(self, prefix: bytes, *, rows_only: bool) -> None:
        """Write the rows whose keys begin with `prefix` to new files, without the deleted ones, and
        all that is kept beside the rows, unless `rows_only`; drop the log.
        """
        compaction = CompactOptions()
        compaction.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        try:
            for handle in self._handles.values():
                handle.flush(True)
                if handle is not self.rows and not rows_only:
                    handle.compact_range(None, None, compaction)
            self.rows.compact_range(prefix, prefix[:-1] + b"\1", compaction)
        except Exception as error:
            raise translate(error, self.folder) from error

    def snapshot(self) -> Snapshot:
        return self.rows.snapshot()

    def newest_revision(self) -> int:
        """Return 0 before the first commit."""
        return self._revision(last=True) or 0

    def oldest_revision(self) -> int:
        """Return the oldest revision in the log of changes; 1 before the first commit."""
        return self._revision(last=False) or 1

    def _revision(self, *, last: bool) -> int | None:
        changes = self.changes.iter()
        try:
            changes.seek_to_last() if last else changes.seek_to_first()
            if changes.valid():
                return number_of(changes.key())
            changes.status()
        except Exception as error:
            raise translate(error, self.folder) from error
        finally:
            del changes
        return None
