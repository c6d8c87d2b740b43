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
from typing import Any

import msgspec

from keyhouse.engine import Engine, ReadView, Row, Span
from keyhouse.errors import (
    DataError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    UnreadableError,
    UsageError,
)
from keyhouse.schema import Record, Schema
from keyhouse.store.binding import Binding
from keyhouse.store.import_writer import ImportWriter
from keyhouse.store.jsonl import (
    ExportedRow,
    Trailer,
    TrailerBuilder,
    blocks,
    decode,
    decode_all,
    encode_redacted,
    encode_rows,
    encode_trailer,
)
from keyhouse.store.pagination import pages

Report = Callable[[int], None]


class PartialExport(msgspec.Struct, frozen=True):
    """An export as far as it came: its whole lines, how many bytes they are, and the row of the last one."""

    tally: TrailerBuilder
    bytes: int = 0
    space: str = ""
    key: str = ""
    is_shown: bool = False
    ended: bool = False


class ExportResult(msgspec.Struct, frozen=True):
    """`rows` of the whole file; `left_out`: rows of this run that an export for people does not show."""

    rows: int
    sha256: str
    left_out: int = 0


class ImportResult(msgspec.Struct, frozen=True):
    """`rows` in the file; of them `written`, and `expired` meanwhile, so not written. The others were there already. Of the
    written, `replaced` went over rows that were there and differed."""

    rows: int
    written: int
    expired: int
    replaced: int = 0
    dry_run: bool = False


def read_partial_export(lines: Iterable[bytes]) -> PartialExport:
    """What there is of an export that may have been cut off: up to its last whole line."""
    tally, size, last = TrailerBuilder(), 0, None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        found = decode(line, number)
        size += len(line)
        if isinstance(found, Trailer):
            return PartialExport(tally, size, ended=True)
        tally.add(line)
        last = found
    return (
        PartialExport(tally)
        if last is None
        else PartialExport(tally, size, last.space, last.put.key, last.is_shown)
    )


async def export_rows(
    view: ReadView,
    write: Callable[[bytes], object],
    *,
    spaces: Collection[str] | None = None,
    schemas: Sequence[Schema] = (),
    resume: PartialExport | None = None,
    on_progress: Report | None = None,
) -> ExportResult:
    """Give every row of the spaces (`None`: of all) to `write`, in order, and the last line. `resume`: go on behind it."""
    start = resume or PartialExport(TrailerBuilder())
    tally, left_out = start.tally, 0
    if start.ended:
        return _exported(tally, left_out)
    if tally.rows and start.is_shown != bool(schemas):
        raise UsageError(
            "An export goes on as it was begun: complete, or for people.", rows=tally.rows
        )
    shown = _Shown(schemas)
    async for space, rows in _pages(view, spaces, start):
        if schemas:
            kept = [line for row in rows if (line := shown.line(space, row)) is not None]
            lines, count = b"".join(kept), len(kept)
        else:
            lines, count = encode_rows(space, rows), len(rows)
        left_out += len(rows) - count
        tally.add(lines, count)
        write(lines)
        if on_progress is not None:
            on_progress(tally.rows)
    write(encode_trailer(tally.ending()))
    return _exported(tally, left_out)


async def import_rows(
    engine: Engine,
    lines: Iterable[bytes],
    *,
    partial: bool = False,
    dry_run: bool = False,
    on_progress: Report | None = None,
) -> ImportResult:
    """Put every row of the lines into the store, over those that are there. `partial`: the last line may be missing.
    `dry_run`: say what would be done, and write nothing. An error in the midst says in `written_up_to` how many rows may be
    written before it."""
    incoming = ImportWriter(engine, dry_run=dry_run)
    tally, ending = TrailerBuilder(), None
    try:
        async with incoming:
            for number, block in blocks(lines):
                rows, found = _rows_of(block, number, ended=ending is not None)
                ending = ending or found
                tally.add(b"".join(block[: len(rows)]), len(rows))
                await incoming.put(rows)
                if on_progress is not None:
                    on_progress(tally.rows)
    except KeyhouseError as error:
        if incoming.written and not dry_run:
            error.fields["written_up_to"] = incoming.written
        raise
    _check_ending(tally, ending, partial=partial, dry_run=dry_run)
    return ImportResult(tally.rows, incoming.written, incoming.expired, incoming.replaced, dry_run)


def is_complete_export(lines: Iterable[bytes]) -> bool:
    """Whether the last line tells of just the lines before it: they are then what was exported, and fit to be imported. They
    are not looked into, so it takes a small part of an import's time."""
    tally, first, last = TrailerBuilder(), b"", b""
    for _, block in blocks(lines):
        tally.add(b"".join((last, *block[:-1])), len(block) - (not last))
        first, last = first or block[0], block[-1]
    try:
        begins, ends = decode(first, 1), decode(last, 1)
    except KeyhouseError:
        return False
    is_shown = isinstance(begins, ExportedRow) and begins.is_shown
    return (
        isinstance(ends, Trailer) and not is_shown and ends == tally.ending(ends.made, ends.moment)
    )


def _rows_of(
    block: list[bytes], number: int, *, ended: bool
) -> tuple[list[ExportedRow], Trailer | None]:
    """The rows of a block, and the last line if it is there."""
    found = decode_all(block, number)
    rows = [each for each in found if isinstance(each, ExportedRow)]
    ending = None
    if len(rows) < len(found) or ended:
        at = next((index for index, each in enumerate(found) if isinstance(each, Trailer)), -1)
        if ended or at != len(found) - 1:
            raise DocumentError(
                "There are lines behind the last one: give each export a file of its own.",
                line=number + at + 1,
            )
        last = found[-1]
        assert isinstance(last, Trailer)
        ending = last
    if (shown := next((index for index, row in enumerate(rows) if row.is_shown), None)) is not None:
        raise UsageError(
            "This export is for people, without private members, so it can't be imported: make a complete one.",
            line=number + shown,
        )
    return rows, ending


def _exported(tally: TrailerBuilder, left_out: int) -> ExportResult:
    ending = tally.ending()
    return ExportResult(ending.rows, ending.sha256, left_out)


async def _pages(
    view: ReadView, spaces: Collection[str] | None, start: PartialExport
) -> AsyncIterator[tuple[str, Sequence[Row]]]:
    names = [space async for space in view.spaces()] if spaces is None else sorted(set(spaces))
    for space in names:
        if space < start.space:
            continue
        span = Span().after(start.key) if space == start.space and start.key else Span()
        async for page in pages(view, space, span):
            yield space, page.rows


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
                    return encode_redacted(
                        space, row.key, record.shown(record.decode(row.value, row.key)), row.expires
                    )
                except (DataError, DocumentError):
                    return None
        return None

    def _bound(self, space: str) -> Iterator[Binding]:
        for schema in self._schemas:
            with suppress(KeyFieldError):  # it has no such space
                yield Binding(schema, {**schema.fixed, **schema.space.bound(space)})


def _check_ending(
    tally: TrailerBuilder, ending: Trailer | None, *, partial: bool, dry_run: bool
) -> None:
    if ending is None:
        if not partial:
            raise UnreadableError(
                "The file ends without its last line, so it may have been cut off. The rows up to there were imported."
                if not dry_run
                else "The file ends without its last line, so it may have been cut off. Nothing was written.",
                rows=tally.rows,
            )
    elif ending != tally.ending(ending.made, ending.moment):
        raise UnreadableError(
            "The file is not what was exported: its last line tells of other rows. Its rows were imported."
            if not dry_run
            else "The file is not what was exported: its last line tells of other rows. Nothing was written.",
            rows=tally.rows,
            exported_rows=ending.rows,
        )
