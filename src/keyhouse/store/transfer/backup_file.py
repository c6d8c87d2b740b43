"""A backup file as a ReadView, so that it can be moved into an engine.

The whole file is read and checked first, so that no row of a damaged file is ever returned.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import BinaryIO

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.errors import DocumentError, UnreadableError, UsageError
from keyhouse.store.transfer.jsonl import Checksum, ExportedRow, Trailer, blocks, decode_all

Report = Callable[[int], None]


class SpaceOffset(msgspec.Struct):
    """The file offset of a space's first line, and the number of its lines."""

    start: int
    rows: int = 0


class BackupReader:
    """A ReadView of a backup file. The caller closes the file."""

    def __init__(
        self, file: BinaryIO, clock: Clock, trailer: Trailer, offsets: dict[str, SpaceOffset]
    ) -> None:
        self._file = file
        self._clock = clock
        self.trailer = trailer
        self.offsets = offsets
        self._space = ""
        self._next = ""
        self._left = 0

    @property
    def clock(self) -> Clock:
        return self._clock

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        """Return a page. The page after the last one is read on; any other starts at the first
        line.
        """
        if space not in self.offsets:
            return Page([], False, 0)
        if (space, span.start) != (self._space, self._next):
            self._rewind(space)
        now, rows = self._clock.now(), list[Row]()
        while self._left and len(rows) < limit:
            lines = list(islice(iter(self._file.readline, b""), min(limit - len(rows), self._left)))
            self._left -= len(lines)
            found = [
                Row(line.put.key, line.put.value, 0, line.put.expires) for line in _lines(lines)
            ]
            rows += [
                row
                for row in found
                if row.key in span and (row.expires is None or row.expires > now)
            ]
        self._space, self._next = space, rows[-1].key + "\0" if rows else ""
        return Page(rows, self._left > 0, 0)

    async def spaces(self) -> AsyncIterator[str]:
        for space in self.offsets:
            yield space

    def _rewind(self, space: str) -> None:
        offset = self.offsets[space]
        self._file.seek(offset.start)
        self._left = offset.rows


def read_backup(file: BinaryIO, clock: Clock, on_progress: Report | None = None) -> BackupReader:
    """Read and check a whole backup file from its current position.

    Raises UnreadableError if it is truncated or changed, and UsageError if it is not a backup.
    """
    checksum, trailer = Checksum(), None
    offsets: dict[str, SpaceOffset] = {}
    at, number, space, key = file.tell(), 1, "", ""
    for first, lines in blocks(file):
        if first != number + (trailer is not None):
            raise UsageError("The file has empty lines, so it is not a backup: import it.")
        try:
            found = decode_all(lines, number)
        except DocumentError as error:
            raise UnreadableError(
                "The backup is truncated or damaged at this line: use another.", **error.fields
            ) from error
        for line, each in zip(lines, found, strict=True):
            if trailer is not None:
                raise UnreadableError(
                    "The file continues after its trailer: write each export to a separate file.",
                    line=number + 1,
                )
            if isinstance(each, Trailer):
                trailer = each
                continue
            if each.is_redacted:
                raise UsageError(
                    "A redacted export has no private members and cannot be restored: make a"
                    " complete one."
                )
            if (each.space, each.put.key) <= (space, key) and offsets:
                raise UsageError(
                    "The lines are not in order, so it is not a backup: import it.", line=number
                )
            if each.space != space or not offsets:
                offsets[each.space] = SpaceOffset(at)
            space, key = each.space, each.put.key
            offsets[space].rows += 1
            checksum.add(line)
            at += len(line)
            number += 1
        if on_progress is not None:
            on_progress(checksum.rows)
    if trailer is None:
        raise UnreadableError("The file is truncated: it has no trailer.", rows=checksum.rows)
    if trailer != checksum.trailer(trailer.made, trailer.moment):
        raise UnreadableError(
            "The file was changed: its rows do not match its trailer. Use another backup.",
            rows=checksum.rows,
        )
    return BackupReader(file, clock, trailer, offsets)


def _lines(lines: list[bytes]) -> Iterator[ExportedRow]:
    return (line for line in decode_all(lines, 1) if isinstance(line, ExportedRow))
