"""Backup and restore: a store of one moment in a file, and a store made to be what the file says, on whatever engine.

A backup is an export (see `lines`) that is of one moment, in key order, and was read again after it was written. Where an
engine has snapshots, the moment is the whole store's, and writers go on. Where it has none, it is each space's own: a space
that was written while it was read is read again; one that is written all the time is refused, and nothing is called a
backup that is none.

A restore is a move whose source is the file: it copies, compares the whole, and ends with equal counts and digests. Cut off,
it is run again and goes on. The file is read from end to end before the first row is written.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import BinaryIO, Final

import msgspec

from keyhouse.engine import Engine, ReadView, Snapshots, Span
from keyhouse.errors import ConflictError, UnreadableError, UsageError
from keyhouse.store.backup_file import BackupReader, read_backup
from keyhouse.store.jsonl import TrailerBuilder, encode_rows, encode_trailer
from keyhouse.store.move import MARK_SPACE, MoveProgress, Mover, MoveResult
from keyhouse.store.pagination import pages

ATTEMPTS: Final = 10
"""Times that a space is read, on an engine without snapshots, before its writers are too many."""


class BackupResult(msgspec.Struct, frozen=True):
    """`moment`: what is of one moment in it: the whole `store`, or each `space`."""

    rows: int
    spaces: int
    bytes: int
    sha256: str
    made: int
    moment: str


async def back_up(
    engine: Engine, file: BinaryIO, *, on_progress: Callable[[str, int], None] | None = None
) -> BackupResult:
    """Write a backup to a new file that can be read and written, and prove that it is there. `on_progress` is told what is
    done, `writing` or `checking`, and how many rows are done."""
    report = on_progress or (lambda phase, rows: None)
    made = engine.clock.now()
    if (await engine.scan(MARK_SPACE, Span(), limit=1)).rows:
        raise UsageError(
            "A move or a restore into this store has not ended: end that first.", space=MARK_SPACE
        )
    moment = "store" if isinstance(engine, Snapshots) else "space"
    async with AsyncExitStack() as stack:
        view: ReadView = (
            await stack.enter_async_context(engine.snapshot())
            if isinstance(engine, Snapshots)
            else engine
        )
        tally = TrailerBuilder()
        async for space in view.spaces():
            tally = await _write_space(view, space, file, tally, report)
    ending = tally.ending(made, moment)
    file.write(encode_trailer(ending))
    file.flush()
    os.fsync(file.fileno())
    file.seek(0)
    kept = read_backup(file, engine.clock, lambda rows: report("checking", rows))
    if kept.ending != ending:
        raise UnreadableError(
            "What the disk gives back is not what was written to it: this is no backup."
        )
    return BackupResult(ending.rows, len(kept.spaces_at), file.tell(), ending.sha256, made, moment)


async def _write_space(
    view: ReadView,
    space: str,
    file: BinaryIO,
    tally: TrailerBuilder,
    report: Callable[[str, int], None],
) -> TrailerBuilder:
    """Its rows as of one moment: all pages must be of the same revision, else they are written anew."""
    start = file.tell()
    for _ in range(ATTEMPTS):
        found, revisions = tally.copy(), set[int]()
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
        "The space is written all the time, and this engine has no snapshots: back up again with its writers stopped.",
        space=space,
    )


async def restore(
    engine: Engine,
    kept: BackupReader,
    *,
    replace: bool = False,
    on_progress: Callable[[MoveProgress], None] | None = None,
) -> MoveResult:
    """Make the store hold what the backup holds, and prove it. Refused when it holds anything else, unless `replace`: then
    rows that the backup does not have go."""
    mover = Mover(kept, engine, on_progress)
    if (there := await mover.begin(f"backup {kept.ending.sha256}", replace=replace)) is not None:
        return there
    await mover.copy()
    return await mover.end()
