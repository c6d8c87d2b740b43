"""The table of limits that the workers of one host share: a file, mapped into each of them.

Theory of operation. A limit of a tenant is a few numbers. The table keeps them in slots, found by a
keyed hash of the limit's kind and the tenant's name: a bucket of eight slots, and a tag in one of
them. Locks are byte ranges of the file (`fcntl.lockf`): the kernel releases those of a process that
dies, so that none is left. Each store of eight bytes under a lock leaves a valid table, so that a
process may be killed between any two of them.

| bytes locked | for | meaning |
|---|---|---|
| 0 | opening | one process at a time finds, rebuilds and joins the table |
| 1 + c | the life of a process | column c is its own |
| 4096 + b | one update | of the slots of bucket b |

A slot has a tag (0: free), a time until which it must be kept, and values. A *number*, such as the
time at which a bucket of tokens is full again, is the first value. *Places* are counted in a column
for each process, with the generation of its owner: a count of an earlier owner is 0. A count of a
dead process is found when all places seem to be taken: its column is not locked. So its places are
given back at once.

The first process that opens the file makes it empty: numbers last no longer than the processes. The
file is rebuilt also if it is of another format or damaged. If it is deleted while processes have
it, they keep it, and those that start later share a new one.

A full bucket gives up the slot that can be spared first: a limit is forgotten as in a process that
has too many tenants. The hash has a secret key, so that nobody can choose names to that end. Calls
are made from one thread: the locks are those of the process.
"""

import fcntl
import mmap
import os
import secrets
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

from keyhouse.errors import FullError, UsageError
from keyhouse.service.limits import LIMIT_BUCKETS

__all__ = ["LIMITS_FILE", "LimitSlots", "LimitTable", "Slot"]

LIMITS_FILE: Final = "limits.table"
"""Its name in the data folder."""

_FORMAT: Final = 0x6B686C74_00000001
_BUCKET_SLOTS: Final = 8

_HEADER: Final = 4  # format, columns, and the key of the hash in two numbers
_TAG, _KEPT_UNTIL, _VALUES = range(3)

_OPENING_LOCK: Final = 0
_COLUMN_LOCKS: Final = 1
_BUCKET_LOCKS: Final = 4_096

_FOREVER: Final = 2**62
_COUNT_BITS: Final = 32
_COUNT_MASK: Final = 2**_COUNT_BITS - 1


class Slot:
    """A number of one tenant, while it is locked. `kept_until` is the time from which the slot may
    be used for another tenant."""

    __slots__ = ("_numbers", "_start")

    def __init__(self, numbers: "memoryview[int]", start: int) -> None:
        self._numbers = numbers
        self._start = start

    @property
    def value(self) -> int:
        """The number; 0 at first."""
        return self._numbers[self._start + _VALUES]

    def set(self, value: int, *, kept_until: int) -> None:
        self._numbers[self._start + _VALUES] = value
        self._numbers[self._start + _KEPT_UNTIL] = kept_until


class LimitTable:
    """Opened by `open`; shared by `workers` processes, and by those that replace them."""

    def __init__(self, file: int, columns: int, buckets: int) -> None:
        self._file = file
        self._columns = columns
        self._buckets = buckets
        self._width = _VALUES + columns
        self._map = mmap.mmap(file, _size(columns, buckets))
        self._numbers = memoryview(self._map).cast("q")
        self._slots = _HEADER + columns
        self._column = -1

    @classmethod
    def open(cls, folder: Path, workers: int, buckets: int = LIMIT_BUCKETS) -> "LimitTable":
        """Open the table of a data folder; make it if it is missing or unusable."""
        path, columns = folder / LIMITS_FILE, 2 * workers + 2  # twice: while they are replaced
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX, 1, _OPENING_LOCK)
                table = cls._joined(file, path, columns, buckets)
            except BaseException:
                os.close(file)
                raise
            if table is not None:
                fcntl.lockf(file, fcntl.LOCK_UN, 1, _OPENING_LOCK)
                return table
            os.close(file)

    @classmethod
    def _joined(cls, file: int, path: Path, columns: int, buckets: int) -> "LimitTable | None":
        """Take a column; None if the file is no longer the one of this path."""
        if not path.exists() or not os.path.samestat(os.fstat(file), path.stat()):
            return None
        size = _size(columns, buckets)
        is_used = any(not _is_free(file, column) for column in range(columns))
        if not is_used:
            os.ftruncate(file, 0)
            _allocate(file, size)
        elif os.fstat(file).st_size != size or not _is_valid(file, columns):
            path.unlink()
            return None
        table = cls(file, columns, buckets)
        if not is_used:
            table._write_header()
        table._take_column()
        return table

    def _write_header(self) -> None:
        self._numbers[1] = self._columns
        self._numbers[2], self._numbers[3] = secrets.randbits(62), secrets.randbits(62)
        self._numbers[0] = _FORMAT  # last: until then it is of no format

    def _take_column(self) -> None:
        for column in range(self._columns):
            if _try_lock(self._file, column):
                self._column = column
                self._numbers[_HEADER + column] += 1
                self._key = bytes(self._map[16:32])
                return
        raise UsageError(
            "Too many processes share the limits of this data folder: stop some of them.",
            processes=self._columns,
        )

    def close(self) -> None:
        """Give back the places of this process."""
        self._numbers.release()
        self._map.close()
        os.close(self._file)

    def slots(self, kind: str) -> "LimitSlots":
        """Return the slots of one kind of limit, such as "rates:rosey"."""
        return LimitSlots(self, kind)

    @contextmanager
    def locked(self, kind: str, name: str, now: int) -> Iterator[Slot]:
        """Lock the slot of a name, which is a new one if it had none."""
        with self._slot(kind, name, now) as start:
            yield Slot(self._numbers, start)

    def hold(self, kind: str, name: str, most: int) -> bool:
        """Take a place, unless `most` are taken by all processes together."""
        numbers, column = self._numbers, self._column
        with self._slot(kind, name, 0) as start:
            counts = range(start + _VALUES, start + self._width)
            if self._places(counts) >= most:
                for each, at in enumerate(counts):
                    if each != column and numbers[at] and _is_free(self._file, each):
                        numbers[at] = 0  # of a process that has died
                if self._places(counts) >= most:
                    return False
            generation = numbers[_HEADER + column]
            own = self._count(column, counts[column])
            numbers[start + _KEPT_UNTIL] = _FOREVER
            numbers[counts[column]] = generation << _COUNT_BITS | (own + 1)
            return True

    def release(self, kind: str, name: str) -> None:
        """Give a place back."""
        numbers, column = self._numbers, self._column
        with self._slot(kind, name, 0) as start:
            counts = range(start + _VALUES, start + self._width)
            if own := self._count(column, counts[column]):
                numbers[counts[column]] = numbers[_HEADER + column] << _COUNT_BITS | (own - 1)
            if not self._places(counts):
                numbers[start + _TAG] = 0

    def _places(self, counts: range) -> int:
        return sum([self._count(column, at) for column, at in enumerate(counts)])

    def _count(self, column: int, at: int) -> int:
        """Return the places of a process, if its count is one of the owner of the column."""
        count = self._numbers[at]
        is_current = count >> _COUNT_BITS == self._numbers[_HEADER + column]
        return count & _COUNT_MASK if is_current else 0

    @contextmanager
    def _slot(self, kind: str, name: str, now: int) -> Iterator[int]:
        """Lock the bucket of a name, and return where its slot starts."""
        text = f"{kind}\0{name}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=16, key=self._key).digest()
        bucket = int.from_bytes(digest[:8]) % self._buckets
        tag = int.from_bytes(digest[8:]) >> 2 | 1
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _BUCKET_LOCKS + bucket)
        try:
            yield self._find(bucket, tag, now)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _BUCKET_LOCKS + bucket)

    def _find(self, bucket: int, tag: int, now: int) -> int:
        numbers, width = self._numbers, self._width
        first = self._slots + bucket * _BUCKET_SLOTS * width
        starts = range(first, first + _BUCKET_SLOTS * width, width)
        for start in starts:
            if numbers[start] == tag:
                return start
        spared = min(starts, key=lambda each: numbers[each] and max(now, numbers[each + 1]))
        numbers[spared + _TAG] = 0
        for at in range(spared + _KEPT_UNTIL, spared + width):
            numbers[at] = 0
        numbers[spared + _TAG] = tag
        return spared


class LimitSlots:
    """The slots of one kind of limit. `locked` is for a number; `hold` and `release` are for
    places."""

    __slots__ = ("_kind", "_table")

    def __init__(self, table: LimitTable, kind: str) -> None:
        self._table = table
        self._kind = kind

    def locked(self, name: str, now: int) -> AbstractContextManager[Slot]:
        return self._table.locked(self._kind, name, now)

    def hold(self, name: str, most: int) -> bool:
        """Take a place, unless `most` are taken by all workers together."""
        return self._table.hold(self._kind, name, most)

    def release(self, name: str) -> None:
        self._table.release(self._kind, name)


def _size(columns: int, buckets: int) -> int:
    slots = buckets * _BUCKET_SLOTS * (_VALUES + columns)
    return 8 * (_HEADER + columns + slots)


def _allocate(file: int, size: int) -> None:
    """Allocate the file whole: a write to a map that finds the disk full would end the process."""
    os.ftruncate(file, size)
    if sys.platform == "linux":
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            raise FullError(
                "The table of the workers' limits does not fit into the data folder: free space.",
                bytes=size,
                reason=error.strerror,
            ) from None


def _is_valid(file: int, columns: int) -> bool:
    return os.pread(file, 16, 0) == struct.pack("=qq", _FORMAT, columns)


def _try_lock(file: int, column: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _COLUMN_LOCKS + column)
    except OSError:
        return False
    return True


def _is_free(file: int, column: int) -> bool:
    """Return whether no other process has the column. The caller's own must not be asked for."""
    if not _try_lock(file, column):
        return False
    fcntl.lockf(file, fcntl.LOCK_UN, 1, _COLUMN_LOCKS + column)
    return True
