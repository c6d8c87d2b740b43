"""Export and import: a store as JSON lines, and back, row by row and with flat memory. The form is in `lines`.

An export is complete: every live row of the spaces, derived rows and private members included, so that what is imported
elsewhere is the same store. Guard it like the store. With schemas it is one for people instead: the records alone, without
their private members, and without the rows derived from them, which could repeat those.

Each page is of its own moment: stop the writers for an export of one moment.

An export that was cut off goes on behind its last whole line. An import that was cut off is run again: it looks before it
writes, and writes only rows that are not there or differ. Neither needs a checkpoint.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from keyhouse.engine import Engine, Put, Row, Span
from keyhouse.errors import DataError, DocumentError, KeyFieldError, UnreadableError, UsageError
from keyhouse.schema import Record, Schema
from keyhouse.store.binding import Binding
from keyhouse.store.lines import Ending, Line, Tally, decode, encode_ending, encode_row, encode_shown
from keyhouse.store.walking import rows
from keyhouse.store.writes import Writes

WRITE_BYTES: Final = 64 * 1_024
"""Lines are written so many bytes at a time."""

LOOK_ROWS: Final = 200
LOOK_BYTES: Final = 1_024 * 1_024
"""Rows, and bytes of values, of one space that an import compares with the store at a time."""

Report = Callable[[int], None]


class Begun(msgspec.Struct, frozen=True):
    """An export as far as it came: its whole lines, how many bytes they are, and the row of the last one."""

    tally: Tally
    bytes: int = 0
    space: str = ""
    key: str = ""
    is_shown: bool = False
    ended: bool = False


class Exported(msgspec.Struct, frozen=True):
    """`rows` of the whole file; `left_out`: rows of this run that an export for people does not show."""

    rows: int
    sha256: str
    left_out: int = 0


class Imported(msgspec.Struct, frozen=True):
    """`rows` in the file; of them `written`, and `expired` meanwhile, so not written. The others were there already."""

    rows: int
    written: int
    expired: int


def begun(lines: Iterable[bytes]) -> Begun:
    """What there is of an export that may have been cut off: up to its last whole line."""
    tally, size, last = Tally(), 0, None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        found = decode(line, number)
        size += len(line)
        if isinstance(found, Ending):
            return Begun(tally, size, ended=True)
        tally.add(line)
        last = found
    return Begun(tally) if last is None else Begun(tally, size, last.space, last.put.key, last.is_shown)


async def export_rows(
    engine: Engine,
    write: Callable[[bytes], object],
    *,
    spaces: Collection[str] | None = None,
    schemas: Sequence[Schema] = (),
    resume: Begun | None = None,
    on_progress: Report | None = None,
) -> Exported:
    """Give every row of the spaces (`None`: of all) to `write`, in order, and the last line. `resume`: go on behind it."""
    start = resume or Begun(Tally())
    tally, left_out = start.tally, 0
    if start.ended:
        return _exported(tally, left_out)
    if tally.rows and start.is_shown != bool(schemas):
        raise UsageError("An export goes on as it was begun: complete, or for people.", rows=tally.rows)
    shown = _Shown(schemas)
    waiting = bytearray()
    async for space, row in _rows(engine, spaces, start):
        line = shown.line(space, row) if schemas else encode_row(space, Put(row.key, row.value, row.expires))
        if line is None:
            left_out += 1
            continue
        tally.add(line)
        waiting += line
        if len(waiting) >= WRITE_BYTES:
            write(bytes(waiting))
            waiting.clear()
            if on_progress is not None:
                on_progress(tally.rows)
    write(bytes(waiting) + encode_ending(tally.ending()))
    if on_progress is not None:
        on_progress(tally.rows)
    return _exported(tally, left_out)


async def import_rows(
    engine: Engine, lines: Iterable[bytes], *, partial: bool = False, on_progress: Report | None = None
) -> Imported:
    """Put every row of the lines into the store, over those that are there. `partial`: the last line may be missing."""
    importer = _Importer(engine)
    tally, ending = Tally(), None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = decode(line, number)
        if ending is not None:
            raise DocumentError("There are lines behind the last one.", line=number)
        if isinstance(found, Ending):
            ending = found
            continue
        if found.is_shown:
            raise UsageError("The private members were left out of this export, so it can't be imported.", line=number)
        tally.add(line)
        await importer.add(found)
        if on_progress is not None and tally.rows % LOOK_ROWS == 0:
            on_progress(tally.rows)
    await importer.flush()
    if on_progress is not None:
        on_progress(tally.rows)
    _check_ending(tally, ending, partial=partial)
    return Imported(tally.rows, importer.written, importer.expired)


def _exported(tally: Tally, left_out: int) -> Exported:
    ending = tally.ending()
    return Exported(ending.rows, ending.sha256, left_out)


async def _rows(engine: Engine, spaces: Collection[str] | None, start: Begun) -> AsyncIterator[tuple[str, Row]]:
    names = [space async for space in engine.spaces()] if spaces is None else sorted(set(spaces))
    for space in names:
        if space < start.space:
            continue
        span = Span().after(start.key) if space == start.space and start.key else Span()
        async for row in rows(engine, space, span):
            yield space, row


class _Shown:
    """What people may see, by these schemas. A schema is bound once for each space, which come one after the other."""

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = schemas
        self._space: str | None = None
        self._bindings: list[Binding] = []

    def line(self, space: str, row: Row) -> bytes | None:
        """The line of a record without its private members; `None` for all that is not a record of these schemas."""
        if space != self._space:
            self._space, self._bindings = space, list(self._bound(space))
        for binding in self._bindings:
            found = binding.find(row.key)
            if found is not None and isinstance(found.declared, Record):
                record: Record[Any] = found.declared
                try:
                    return encode_shown(space, row.key, record.shown(record.decode(row.value, row.key)), row.expires)
                except (DataError, DocumentError):
                    return None
        return None

    def _bound(self, space: str) -> Iterator[Binding]:
        for schema in self._schemas:
            with suppress(KeyFieldError):  # it has no such space
                yield Binding(schema, {**schema.fixed, **schema.space.bound(space)})


def _check_ending(tally: Tally, ending: Ending | None, *, partial: bool) -> None:
    if ending is None:
        if not partial:
            raise UnreadableError(
                "The file ends without its last line, so it may have been cut off. The rows up to there were imported.",
                rows=tally.rows,
            )
    elif ending != tally.ending():
        raise UnreadableError(
            "The file is not what was exported: its last line tells of other rows. Its rows were imported.",
            rows=tally.rows,
            exported_rows=ending.rows,
        )


class _Importer:
    """Rows that wait to be compared with those of the store: of one space, each key once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._space = ""
        self._waiting: dict[str, Put] = {}
        self._bytes = 0
        self.written = 0
        self.expired = 0

    async def add(self, line: Line) -> None:
        if line.space != self._space or len(self._waiting) >= LOOK_ROWS or self._bytes > LOOK_BYTES:
            await self.flush()
        self._space = line.space
        self._waiting[line.put.key] = line.put
        self._bytes += len(line.put.value)

    async def flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        if not waiting:
            return
        writes = Writes(self._engine, self._space)
        now = self._engine.clock.now()
        there = await self._engine.read(self._space, list(waiting))
        for put, row in zip(waiting.values(), there, strict=True):
            if put.expires is not None and put.expires <= now:
                self.expired += 1
            elif row is None or (row.value, row.expires) != (put.value, put.expires):
                self.written += 1
                await writes.put(put)
        await writes.flush()
