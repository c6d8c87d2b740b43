"""A backup that lies in a file, shown as a View: what can be walked as an engine can, so that it can be moved into one.

It was read from end to end before, so that nothing of a damaged file is ever shown.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import BinaryIO

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Page, Row, Span
from keyhouse.errors import UnreadableError, UsageError
from keyhouse.store.jsonl import ExportedRow, Trailer, TrailerBuilder, blocks, decode_all

Report = Callable[[int], None]


class SpaceOffset(msgspec.Struct):
    """Where a space's lines begin, and how many they are."""

    start: int
    rows: int = 0


class BackupReader:
    """Is a View. The file is the caller's to close."""

    def __init__(
        self, file: BinaryIO, clock: Clock, ending: Trailer, spaces_at: dict[str, SpaceOffset]
    ) -> None:
        self._file = file
        self._clock = clock
        self.ending = ending
        self.spaces_at = spaces_at
        self._space = ""
        self._next = ""
        self._left = 0

    @property
    def clock(self) -> Clock:
        return self._clock

    async def scan(self, space: str, span: Span, *, limit: int) -> Page:
        """A page behind the last one, as a walk asks for, is read on; any other begins at the space's first line."""
        if space not in self.spaces_at:
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
        for space in self.spaces_at:
            yield space

    def _rewind(self, space: str) -> None:
        place = self.spaces_at[space]
        self._file.seek(place.start)
        self._left = place.rows


def read_backup(file: BinaryIO, clock: Clock, on_progress: Report | None = None) -> BackupReader:
    """Read the whole file, from where it stands; refused when it is cut off, changed, or not in the order of a backup."""
    tally, ending = TrailerBuilder(), None
    places: dict[str, SpaceOffset] = {}
    at, number, space, key = file.tell(), 1, "", ""
    for first, lines in blocks(file):
        if first != number + (ending is not None):
            raise UsageError("It has empty lines, so it is no backup: import it.")
        found = decode_all(lines, number)
        for line, each in zip(lines, found, strict=True):
            if ending is not None:
                raise UnreadableError(
                    "There are lines behind the last one: give each export a file of its own.",
                    line=number + 1,
                )
            if isinstance(each, Trailer):
                ending = each
                continue
            if each.is_shown:
                raise UsageError(
                    "This export is for people, without private members, so it can't be restored: make a complete one."
                )
            if (each.space, each.put.key) <= (space, key) and places:
                raise UsageError(
                    "Its lines are not in order, so it is no backup: import it.", line=number
                )
            if each.space != space or not places:
                places[each.space] = SpaceOffset(at)
            space, key = each.space, each.put.key
            places[space].rows += 1
            tally.add(line)
            at += len(line)
            number += 1
        if on_progress is not None:
            on_progress(tally.rows)
    if ending is None:
        raise UnreadableError(
            "The file ends without its last line: it was cut off.", rows=tally.rows
        )
    if ending != tally.ending(ending.made, ending.moment):
        raise UnreadableError(
            "The file is not what was written: its last line tells of other rows.", rows=tally.rows
        )
    return BackupReader(file, clock, ending, places)


def _lines(lines: list[bytes]) -> Iterator[ExportedRow]:
    return (line for line in decode_all(lines, 1) if isinstance(line, ExportedRow))
