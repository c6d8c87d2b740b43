"""Moving a store from one engine to another: every row of every space, with its value and expiry.

There is one step, and it is repeated: walk a space in both engines side by side, and write into the target what differs.
The first time over all spaces, that copies. A time in which nothing differs proves that both hold the same: it counts the
rows and makes the digests of both. Whatever happens in between, a kill, a lost connection, writers at the source, the next
time over sets it right: so **the target is its own checkpoint**. A move that is run again reads what is there, and goes on
writing where the rows end.

With `switch`, changes are followed by watches after the first copy, so that little is left to do when the writers of the
source have been stopped and the switch is set.

A target is overwritten, and what the source does not have is deleted from it. So it must be empty, or be the target of this
same move: a row in a space of its own (`MARK_SPACE`) says so from the first write to the last. A target that holds the same
rows already is left as it is.

Revisions are the target's own, and the ids of applied batches stay behind: who holds a revision of the source reads again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, ReadView, Span
from keyhouse.errors import ConflictError, UnreadableError, UsageError
from keyhouse.store.bulk_writer import commit_with_retry
from keyhouse.store.follow import Follower
from keyhouse.store.pagination import spaces_of_both
from keyhouse.store.reconcile import Compared, reconcile

MARK_SPACE: Final = "keyhouse-move"
"""The space of the target that holds one row, `move`, while a move into it has not ended."""

MARK_KEY: Final = "move"

PASSES_MAX: Final = 5
"""Times that the whole is compared again because something still differed, before the caller is told."""


class Mark(msgspec.Struct, frozen=True):
    """Whose target this is. `source` is what the caller calls the source; `started` in the clock's milliseconds."""

    source: str
    started: int


class SpaceDigest(msgspec.Struct, frozen=True):
    """A space as it was found in both engines."""

    space: str
    rows: int
    digest: str


class MoveResult(msgspec.Struct, frozen=True):
    """`written`: rows put or deleted in the target by this run, over `passes` times through the whole."""

    rows: int
    written: int
    passes: int
    spaces: list[SpaceDigest]


class MoveProgress(msgspec.Struct, frozen=True):
    """`phase`: `copying`, `following` or `verifying`, told at its start with no space. `rows` were looked at in this phase;
    `written`, in the whole run."""

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
    """Make the target hold what the source holds, and prove it. `name` is what the source is called: a move that was cut off
    goes on only from a source of the same name. With `switch`, follow changes until it is set; stop the writers first."""
    mover = Mover(source, target, on_progress)
    if (there := await mover.begin(name)) is not None:
        return there
    revisions = await mover.copy()
    if switch is not None:
        await mover.follow(source, revisions, switch)
    return await mover.end()


class Mover:
    """The steps of a move. What is moved may be an engine, or a file that shows itself as one."""

    def __init__(self, source: ReadView, target: Engine, on_progress: Report | None) -> None:
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._phase = "copying"
        self._looked = 0
        self._written = 0
        self._passes = 0

    async def begin(self, name: str, *, replace: bool = False) -> MoveResult | None:
        """Mark the target; or what it holds, when it is the same already. `replace`: its own rows may go."""
        if (await self._source.scan(MARK_SPACE, Span(), limit=1)).rows:
            raise UsageError(
                "The source is itself the target of a move that has not ended: end that one first.",
                space=MARK_SPACE,
            )
        [row] = await self._target.read(MARK_SPACE, [MARK_KEY])
        if row is None:
            return await self._begin_new(name, replace)
        try:
            mark = msgspec.json.decode(row.value, type=Mark)
        except msgspec.MsgspecError as error:
            raise UnreadableError(
                "The row that marks the target of a move can't be read.", space=MARK_SPACE
            ) from error
        if mark.source != name:
            raise UsageError(
                "A move from another source into this target has not ended: end it, or name an empty target.",
                begun_from=mark.source,
                source=name,
            )
        return None

    async def _begin_new(self, name: str, replace: bool) -> MoveResult | None:
        async for _ in self._target.spaces():
            self._enter("verifying")
            found, differing = await self._pass(write=False)
            if not differing:
                return found
            if not replace:
                raise UsageError(
                    "The target holds other rows: name an empty one.", differing_rows=differing
                )
            break
        mark = msgspec.json.encode(Mark(name, self._target.clock.now()))
        begun = Batch(checks=(Check(MARK_KEY, None),), puts=(Put(MARK_KEY, mark),))
        if await self._target.commit(MARK_SPACE, begun) is None:
            raise ConflictError("Another move into this target has just begun.")
        return None

    async def copy(self) -> dict[str, int]:
        """The first time through; each space's revision before it."""
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
        await Follower(source, self._target, self._reconcile, self._followed).run(revisions, switch)

    async def verify(self) -> MoveResult:
        """Compare the whole, and again while something differs, until nothing does."""
        for _ in range(PASSES_MAX):
            self._enter("verifying")
            found, differing = await self._pass(write=True)
            if not differing:
                return found
        raise ConflictError(
            "The source was written while it was compared: stop its writers, then run the move again; it goes on from here.",
            differing_rows=differing,
        )

    async def end(self) -> MoveResult:
        """Compare, and take the mark away."""
        moved = await self.verify()
        await commit_with_retry(self._target, MARK_SPACE, Batch(deletes=(MARK_KEY,)))
        return moved

    async def _pass(self, *, write: bool) -> tuple[MoveResult, int]:
        """The whole, once; and how many rows differed."""
        self._passes += 1
        spaces: list[SpaceDigest] = []
        differing = 0
        for space in await self._spaces():
            found = await self._reconcile(space, write=write)
            differing += found.differing
            if not found.differing and found.source.text() != found.target.text():
                raise UnreadableError(
                    "The two engines agree row by row, but not in their digests.", space=space
                )
            if found.source.rows:
                spaces.append(SpaceDigest(space, found.source.rows, found.source.text()))
        return MoveResult(
            sum([space.rows for space in spaces]), self._written, self._passes, spaces
        ), differing

    async def _spaces(self) -> list[str]:
        return [
            space
            async for space in spaces_of_both(self._source, self._target)
            if space != MARK_SPACE
        ]

    async def _reconcile(self, space: str, *, write: bool = True) -> Compared:
        def seen(looked: int, written: int) -> None:
            self._looked += looked
            self._written += written
            self._report(space)

        return await reconcile(self._source, self._target, space, seen, write=write)

    def _followed(self, space: str, changes: int) -> None:
        self._looked += changes
        self._written += changes
        self._report(space)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._looked = 0
        self._report("")

    def _report(self, space: str) -> None:
        if self._on_progress is not None:
            self._on_progress(MoveProgress(self._phase, space, self._looked, self._written))
