"""Move a store from one engine to another: every row of every space, with its value and expiry.

Theory of operation. There is one step, which is repeated: compare a space in both engines row by
row, and write the differences to the target. The first pass over all spaces copies. A pass without
differences proves that both are equal: it counts the rows and computes both digests. After a kill,
a lost connection or a write to the source, the next pass corrects the target: **the target is its
own checkpoint**, and a move that is run again skips the rows that are there.

    phase        work                                             ends when
    copying      first pass over all spaces                       every space was read once
    following    apply changes from watches (with `switch`)       the switch is set
    verifying    compare all spaces, again while they differ      nothing differs

With `switch`, little is left to do once the source's writers are stopped and the switch is set.

A target is overwritten, and rows that the source does not have are deleted. So it must be empty, or
already be the target of this move: a row in a separate space (`MARK_SPACE`) marks it from the first
write to the last. A target with the same rows is left unchanged.

Revisions and batch ids are not moved: clients that hold a revision of the source must read again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, ReadView, Span
from keyhouse.errors import ConflictError, UnreadableError, UsageError
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store.reads.stored_spaces import stored_spaces
from keyhouse.store.transfer.bulk_writer import commit_with_retry
from keyhouse.store.transfer.follow import Follower
from keyhouse.store.transfer.reconcile import Comparison, reconcile, spaces_of_both

MARK_KEY: Final = "move"

PASSES_MAX: Final = 5
"""Verifying passes with differences before the move fails."""


class MoveMark(msgspec.Struct, frozen=True):
    """The marker row. `source` is the name given by the caller; `started` in clock milliseconds."""

    source: str
    started: int


class SpaceDigest(msgspec.Struct, frozen=True):
    """The number of rows and the digest of a space, equal in both engines."""

    space: str
    rows: int
    digest: str


class MoveResult(msgspec.Struct, frozen=True):
    """The result of a move. `written` are the rows that this run put or deleted, in `passes`
    passes.
    """

    rows: int
    written: int
    passes: int
    spaces: list[SpaceDigest]


class MoveProgress(msgspec.Struct, frozen=True):
    """Progress of a move, also reported at the start of each phase, with an empty `space`.

    `rows` were compared in this phase; `written` in the whole run.
    """

    phase: str
    space: str
    rows: int
    written: int


Report = Callable[[MoveProgress], None]


async def move(
    source: Engine,
    target: Engine,
    *,
    name: str,
    switch: asyncio.Event | None = None,
    on_progress: Report | None = None,
) -> MoveResult:
    """Make the target equal to the source, and verify it.

    `name` identifies the source: an interrupted move resumes only with the same name. With
    `switch`, follow changes until it is set; stop the source's writers before setting it.
    """
    mover = Mover(source, target, on_progress)
    if (unchanged := await mover.start(name)) is not None:
        return unchanged
    revisions = await mover.copy()
    if switch is not None:
        await mover.follow(source, revisions, switch)
    return await mover.finish()


async def unfinished_move(target: Engine) -> MoveMark | None:
    """Return the mark of a move into this engine that has not ended, or None."""
    [row] = await target.read(MARK_SPACE, [MARK_KEY])
    if row is None:
        return None
    try:
        return msgspec.json.decode(row.value, type=MoveMark)
    except msgspec.MsgspecError as error:
        raise UnreadableError(
            "The row that marks the target of a move is unreadable.", space=MARK_SPACE
        ) from error


class Mover:
    """The phases of a move. The source may be an engine or a backup file."""

    def __init__(self, source: ReadView, target: Engine, on_progress: Report | None) -> None:
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._phase = "copying"
        self._compared = 0
        self._written = 0
        self._passes = 0

    async def start(self, name: str, *, replace: bool | None = None) -> MoveResult | None:
        """Mark the target, or return the result if it already equals the source.

        With `replace`, other rows of the target may be deleted; None if the caller has no such
        option.
        """
        if (await self._source.scan(MARK_SPACE, Span(), limit=1)).rows:
            raise UsageError(
                "The source is the target of an unfinished move: finish that one first.",
                space=MARK_SPACE,
            )
        mark = await unfinished_move(self._target)
        if mark is None:
            return await self._start_new(name, replace)
        if mark.source != name:
            raise UsageError(
                "A move from another source into this target is unfinished: finish it, or choose an"
                " empty target.",
                started_from=mark.source,
                source=name,
            )
        return None

    async def _start_new(self, name: str, replace: bool | None) -> MoveResult | None:
        async for _ in stored_spaces(self._target):
            self._enter("verifying")
            found, differing = await self._pass(write=False)
            if not differing:
                return found
            if not replace:
                raise UsageError(
                    "The target has other rows: choose an empty one."
                    if replace is None
                    else "The target has other rows: choose an empty one, or delete them with"
                    " --replace (in a program, replace=True).",
                    differing_rows=differing,
                )
            break
        mark = msgspec.json.encode(MoveMark(name, self._target.clock.now()))
        marking = Batch(checks=(Check(MARK_KEY, None),), puts=(Put(MARK_KEY, mark),))
        if await self._target.commit(MARK_SPACE, marking) is None:
            raise ConflictError("Another move into this target has just started.")
        return None

    async def copy(self) -> dict[str, int]:
        """Run the first pass, and return each space's revision from before it was copied."""
        revisions: dict[str, int] = {}
        self._passes += 1
        for space in await self._spaces():
            revisions[space] = (await self._source.scan(space, Span(), limit=1)).revision
            await self._reconcile(space)
        return revisions

    async def follow(
        self, source: Engine, revisions: dict[str, int], switch: asyncio.Event
    ) -> None:
        self._enter("following")
        await Follower(source, self._target, self._reconcile, self._applied).run(revisions, switch)

    async def verify(self) -> MoveResult:
        """Compare all spaces, and repeat while something differs."""
        for _ in range(PASSES_MAX):
            self._enter("verifying")
            found, differing = await self._pass(write=True)
            if not differing:
                return found
        raise ConflictError(
            "The source was written while it was compared: stop its writers, then run the move"
            " again; it resumes here.",
            differing_rows=differing,
        )

    async def finish(self) -> MoveResult:
        """Verify, and remove the marker row."""
        result = await self.verify()
        await commit_with_retry(self._target, MARK_SPACE, Batch(deletes=(MARK_KEY,)))
        return result

    async def _pass(self, *, write: bool) -> tuple[MoveResult, int]:
        """Compare all spaces once, and also return the number of rows that differed."""
        self._passes += 1
        spaces: list[SpaceDigest] = []
        differing = 0
        for space in await self._spaces():
            found = await self._reconcile(space, write=write)
            differing += found.differing
            if not found.differing and found.source.text() != found.target.text():
                raise UnreadableError(
                    "The rows of both engines are equal, but their digests differ.", space=space
                )
            if found.source.rows:
                spaces.append(SpaceDigest(space, found.source.rows, found.source.text()))
        return MoveResult(
            sum([space.rows for space in spaces]), self._written, self._passes, spaces
        ), differing

    async def _spaces(self) -> list[str]:
        return [space async for space in spaces_of_both(self._source, self._target)]

    async def _reconcile(self, space: str, *, write: bool = True) -> Comparison:
        def on_rows(compared: int, written: int) -> None:
            self._compared += compared
            self._written += written
            self._report(space)

        return await reconcile(self._source, self._target, space, on_rows, write=write)

    def _applied(self, space: str, changes: int) -> None:
        self._compared += changes
        self._written += changes
        self._report(space)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._compared = 0
        self._report("")

    def _report(self, space: str) -> None:
        if self._on_progress is not None:
            self._on_progress(MoveProgress(self._phase, space, self._compared, self._written))
