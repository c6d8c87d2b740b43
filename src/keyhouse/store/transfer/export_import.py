"""Export a store as JSON Lines and import it, row by row with constant memory (format: `jsonl`).

An export is complete: every live row of the spaces, with derived rows and private members, so that
an import creates the same store. Protect it like the store. With schemas, the export is redacted
instead: only the records, without private members and without derived rows, which could repeat
them.

Each page is a separate snapshot: for a consistent export, stop the writers or make a backup.

An interrupted export resumes after its last complete line. An interrupted import is run again: it
reads before it writes, and writes only rows that are missing or differ. Neither needs a checkpoint.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress

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
from keyhouse.schema import BoundSchema, Schema
from keyhouse.store.reads.long_read import pages
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.transfer.import_writer import ImportWriter
from keyhouse.store.transfer.jsonl import (
    Checksum,
    ExportedRow,
    Trailer,
    blocks,
    decode,
    decode_all,
    encode_redacted,
    encode_rows,
    encode_trailer,
)

Report = Callable[[int], None]


class PartialExport(msgspec.Struct, frozen=True):
    """The complete lines of an interrupted export: their checksum and size, and the last row."""

    checksum: Checksum
    bytes: int = 0
    space: str = ""
    key: str = ""
    is_redacted: bool = False
    is_complete: bool = False


class ExportResult(msgspec.Struct, frozen=True):
    """`rows` of the whole file; `left_out` are rows of this run that a redacted export omits."""

    rows: int
    sha256: str
    left_out: int = 0


class ImportResult(msgspec.Struct, frozen=True):
    """The rows of the file. Rows neither `written` nor `expired` were stored already.

    `replaced` are the written rows that replaced different ones.
    """

    rows: int
    written: int
    expired: int
    replaced: int = 0
    dry_run: bool = False


def read_partial_export(lines: Iterable[bytes]) -> PartialExport:
    """Read an export that may be truncated, up to its last complete line."""
    checksum, size, last = Checksum(), 0, None
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        found = decode(line, number)
        size += len(line)
        if isinstance(found, Trailer):
            return PartialExport(checksum, size, is_complete=True)
        checksum.add(line)
        last = found
    return (
        PartialExport(checksum)
        if last is None
        else PartialExport(checksum, size, last.space, last.put.key, last.is_redacted)
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
    """Pass every row of the spaces (None: of all) to `write`, in order, then the trailer.

    With `resume`, start after its last row.
    """
    start = resume or PartialExport(Checksum())
    checksum, left_out = start.checksum, 0
    if start.is_complete:
        return _result(checksum, left_out)
    if checksum.rows and start.is_redacted != bool(schemas):
        raise UsageError(
            "An export must be resumed as it was started: complete, or redacted.",
            rows=checksum.rows,
        )
    redactor = _Redactor(schemas)
    async for space, rows in _pages(view, spaces, start):
        if schemas:
            redacted = [line for row in rows if (line := redactor.line(space, row)) is not None]
            lines, count = b"".join(redacted), len(redacted)
        else:
            lines, count = encode_rows(space, rows), len(rows)
        left_out += len(rows) - count
        checksum.add(lines, count)
        write(lines)
        if on_progress is not None:
            on_progress(checksum.rows)
    write(encode_trailer(checksum.trailer()))
    return _result(checksum, left_out)


async def import_rows(
    engine: Engine,
    lines: Iterable[bytes],
    *,
    allow_truncated: bool = False,
    dry_run: bool = False,
    on_progress: Report | None = None,
) -> ImportResult:
    """Write every row of the lines to the store, replacing existing ones.

    `allow_truncated`: the trailer may be missing. `dry_run`: count, but write nothing. An error has
    the field `written_up_to` if rows may have been written before it.
    """
    writer = ImportWriter(engine, dry_run=dry_run)
    checksum, trailer = Checksum(), None
    try:
        async with writer:
            for number, block in blocks(lines):
                rows, found = _rows_of(block, number, ended=trailer is not None)
                trailer = trailer or found
                checksum.add(b"".join(block[: len(rows)]), len(rows))
                await writer.put(rows)
                if on_progress is not None:
                    on_progress(checksum.rows)
    except KeyhouseError as error:
        if writer.written and not dry_run:
            error.fields["written_up_to"] = writer.written
        raise
    _check_trailer(checksum, trailer, allow_truncated=allow_truncated, dry_run=dry_run)
    return ImportResult(checksum.rows, writer.written, writer.expired, writer.replaced, dry_run)


def is_complete_export(lines: Iterable[bytes]) -> bool:
    """Return True if the trailer matches the lines before it, so that they can be imported.

    The rows are not decoded, so it takes a fraction of an import's time.
    """
    checksum, first, last = Checksum(), b"", b""
    for _, block in blocks(lines):
        checksum.add(b"".join((last, *block[:-1])), len(block) - (not last))
        first, last = first or block[0], block[-1]
    try:
        row, trailer = decode(first, 1), decode(last, 1)
    except KeyhouseError:
        return False
    if not isinstance(trailer, Trailer) or (isinstance(row, ExportedRow) and row.is_redacted):
        return False
    return trailer == checksum.trailer(trailer.made, trailer.moment)


def _rows_of(
    block: list[bytes], number: int, *, ended: bool
) -> tuple[list[ExportedRow], Trailer | None]:
    """Return the rows of a block, and the trailer if the block has it."""
    found = decode_all(block, number)
    rows = [each for each in found if isinstance(each, ExportedRow)]
    trailer = None
    if len(rows) < len(found) or ended:
        at = next((index for index, each in enumerate(found) if isinstance(each, Trailer)), -1)
        if ended or at != len(found) - 1:
            raise DocumentError(
                "The file continues after its trailer: write each export to a separate file.",
                line=number + at + 1,
            )
        last = found[-1]
        assert isinstance(last, Trailer)
        trailer = last
    redacted = next((index for index, row in enumerate(rows) if row.is_redacted), None)
    if redacted is not None:
        raise UsageError(
            "A redacted export has no private members and cannot be imported: make a complete one.",
            line=number + redacted,
        )
    return rows, trailer


def _result(checksum: Checksum, left_out: int) -> ExportResult:
    trailer = checksum.trailer()
    return ExportResult(trailer.rows, trailer.sha256, left_out)


async def _pages(
    view: ReadView, spaces: Collection[str] | None, start: PartialExport
) -> AsyncIterator[tuple[str, Sequence[Row]]]:
    names = (
        [space async for space in stored_spaces(view)] if spaces is None else sorted(set(spaces))
    )
    for space in names:
        if space < start.space:
            continue
        span = Span().after(start.key) if space == start.space and start.key else Span()
        async for page in pages(view, space, span):
            yield space, page.rows


class _Redactor:
    """Removes private members. Schemas are bound once for each space, which come one at a time."""

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = schemas
        self._space: str | None = None
        self._bindings: list[BoundSchema] = []

    def line(self, space: str, row: Row) -> bytes | None:
        """Return the line of a record without its private members; None if it is not a record."""
        if space != self._space:
            self._space, self._bindings = space, list(self._bound(space))
        for binding in self._bindings:
            found = binding.find(row.key)
            if found is not None and found.is_record:
                record = found.record
                try:
                    return encode_redacted(
                        space,
                        row.key,
                        record.json.shown(record.decode(row.value, row.key)),
                        row.expires,
                    )
                except (DataError, DocumentError):
                    return None
        return None

    def _bound(self, space: str) -> Iterator[BoundSchema]:
        for schema in self._schemas:
            with suppress(KeyFieldError):  # not a space of this schema
                yield BoundSchema(schema, {**schema.fixed, **schema.space.bound(space)})


def _check_trailer(
    checksum: Checksum, trailer: Trailer | None, *, allow_truncated: bool, dry_run: bool
) -> None:
    effect = "Nothing was written." if dry_run else "Its rows were imported."
    if trailer is None:
        if not allow_truncated:
            raise UnreadableError(
                f"The file has no trailer, so it may be truncated. {effect}", rows=checksum.rows
            )
    elif trailer != checksum.trailer(trailer.made, trailer.moment):
        raise UnreadableError(
            f"The file was changed: its rows do not match its trailer. {effect}",
            rows=checksum.rows,
            exported_rows=trailer.rows,
        )
