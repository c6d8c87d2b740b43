"""Back up a consistent store to a file, and restore it, on any engine.

A backup is an export (see `jsonl`) that is consistent, in key order, and was read again after it
was written. On an engine with snapshots the whole store is of one moment, and writers continue. On
others each space is: a space written while it was read is read again, and one that is written all
the time raises ConflictError.

A restore is a move whose source is the file: it copies, compares everything, and ends with equal
counts and digests. If it is interrupted, run it again: it resumes. The whole file is checked before
the first row is written.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import BinaryIO, Final

import msgspec

from keyhouse.engine import Engine, ReadView, Snapshots, Span
from keyhouse.errors import ConflictError, UnreadableError, UsageError
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store.reads.long_read import pages
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.transfer.backup_file import BackupReader, read_backup
from keyhouse.store.transfer.jsonl import Checksum, encode_rows, encode_trailer
from keyhouse.store.transfer.move import MoveProgress, Mover, MoveResult

ATTEMPTS: Final = 10
"""Attempts to read a space that is being written, on an engine without snapshots."""


class BackupResult(msgspec.Struct, frozen=True):
    """The result of a backup. `moment`: the whole `store` is consistent, or each `space`."""

    rows: int
    spaces: int
    bytes: int
    sha256: str
    made: int
    moment: str


async def back_up(
    engine: Engine, file: BinaryIO, *, on_progress: Callable[[str, int], None] | None = None
) -> BackupResult:
    """Write a backup to a new file, opened for reading and writing, and check it.

    `on_progress` is called with the phase, `writing` or `checking`, and the number of rows done.
    """
    report = on_progress or (lambda phase, rows: None)
    made = engine.clock.now()
    if (await engine.scan(MARK_SPACE, Span(), limit=1)).rows:
        raise UsageError(
            "A move or restore into this store is unfinished: finish it first.", space=MARK_SPACE
        )
    moment = "store" if isinstance(engine, Snapshots) else "space"
    async with AsyncExitStack() as stack:
        view: ReadView = (
            await stack.enter_async_context(engine.snapshot())
            if isinstance(engine, Snapshots)
            else engine
        )
        checksum = Checksum()
        async for space in stored_spaces(view):
            checksum = await _write_space(view, space, file, checksum, report)
    trailer = checksum.trailer(made, moment)
    file.write(encode_trailer(trailer))
    file.flush()
    os.fsync(file.fileno())
    file.seek(0)
    backup = read_backup(file, engine.clock, lambda rows: report("checking", rows))
    if backup.trailer != trailer:
        raise UnreadableError(
            "The file read back from the disk differs from what was written: not a backup."
        )
    return BackupResult(
        trailer.rows, len(backup.offsets), file.tell(), trailer.sha256, made, moment
    )


async def _write_space(
    view: ReadView,
    space: str,
    file: BinaryIO,
    checksum: Checksum,
    report: Callable[[str, int], None],
) -> Checksum:
    """Write a space as of one moment: if its pages are not of one revision, write them again."""
    start = file.tell()
    for _ in range(ATTEMPTS):
        found, revisions = checksum.copy(), set[int]()
        async for page in pages(view, space):
            revisions.add(page.revision)
            lines = encode_rows(space, page.rows)
            found.add(lines, len(page.rows))
            file.write(lines)
            report("writing", found.rows)
            if len(revisions) > 1:
                break
        else:
            return found
        file.seek(start)
        file.truncate()
    raise ConflictError(
        "The space is written all the time, and this engine has no snapshots: stop its writers,"
        " then back up again.",
        space=space,
    )


async def restore(
    engine: Engine,
    backup: BackupReader,
    *,
    replace: bool = False,
    on_progress: Callable[[MoveProgress], None] | None = None,
) -> MoveResult:
    """Make the store equal to the backup, and verify it.

    Raises UsageError if the store has other rows; with `replace`, those are deleted.
    """
    mover = Mover(backup, engine, on_progress)
    source = f"backup {backup.trailer.sha256}"
    if (unchanged := await mover.start(source, replace=replace)) is not None:
        return unchanged
    await mover.copy()
    return await mover.finish()
