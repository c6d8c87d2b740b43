"""The open folder: RocksDB's handles, what makes a write durable, and opening it anew when a write has failed.

`rocksdict` holds Python's lock for as long as a write lasts, and would hold up the event loop for the whole of a sync, from
whatever thread it is called. But it lets go of it in `flush_wal`. So a commit is a write without sync, which only copies
into the log and into memory, and then a sync of the log on a thread: the same system calls as a write with `sync`. What
lies between the two is nobody's to see: see `view`.

A handle that failed to write is of no more use (after ENOSPC it refuses everything, also when there is room again). It
still reads, so it stays until there is room for another.
"""

import os
import shutil
from contextlib import suppress
from typing import Final

from rocksdict import ColumnFamily, Rdict, Snapshot, WriteBatch

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

ROOM_BYTES: Final = 4 * 1_024 * 1_024
"""What opening needs on the disk, besides as much as the log that it reads again."""


class WriteStall(Exception):
    """RocksDB has to flush or compact before it takes more. Nothing was written: prepare the batch again."""


class Database:
    """`failed`: what the last write failed with; the folder has to be opened anew before the next."""

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
        """Make the folder if it is not there; the folder around it must be."""
        try:
            if not os.path.isdir(self.folder):
                os.mkdir(self.folder)
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
        """Never fails: all that was promised is in the log already. Whatever anyone still holds of the driver's objects, a
        snapshot, an iterator or a family, keeps the folder locked; so the families are taken from who has them."""
        self.families.clear()
        handles, self._handles = self._handles, {}
        for name in reversed(handles):
            with suppress(Exception):
                handles[name].close()

    def check_room(self) -> None:
        """Refuse to let go of a handle that can still read while there is no room to open another."""
        try:
            logs = [
                entry.stat().st_size
                for entry in os.scandir(self.folder)
                if entry.name.endswith(".log")
            ]
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise translate(error, self.folder) from error
        needed = ROOM_BYTES + sum(logs)
        if free < needed:
            raise FullError(FULL, folder=self.folder, free_bytes=free, needed_bytes=needed)

    def write(self, batch: WriteBatch) -> None:
        """Into the log, and not yet durable. A batch that failed is used up."""
        try:
            self.rows.write(batch, self._writing)
        except Exception as error:
            if is_stall(error):
                raise WriteStall from error
            self.failed = translate(error, self.folder)
            raise self.failed from error

    def sync(self) -> None:
        """What was written is durable when this returns. Lets other threads run meanwhile."""
        try:
            self.rows.flush_wal(True)
        except Exception as error:
            self.failed = translate_sync_error(error, self.folder)
            raise self.failed from error

    def snapshot(self) -> Snapshot:
        return self.rows.snapshot()

    def newest_revision(self) -> int:
        """0 before the first commit."""
        return self._revision(last=True) or 0

    def oldest_revision(self) -> int:
        """Of the changes that are kept; 1 before the first commit."""
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
