"""What is measured of every engine alike: commits of a record alone and of one with five derived rows, by one writer and 64.

The limit makes the same rows durable with the driver alone: the rows with their revision, and one entry of the log of
changes for each commit, as a watch needs it. It checks nothing, and its revisions are a counter of the process. With 64
writers it puts all that waits into one write, as we do: one write for each commit is slower by far, and shown as `single`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from keyhouse.bench.contest import Contestant, contest
from keyhouse.bench.figure import Figure
from keyhouse.engine import Batch, Engine, Put

Rows = list[tuple[str, bytes]]
Write = Callable[[list[Rows]], Awaitable[object]]
"""Make the rows of several commits durable, at once."""

Commit = Callable[[Rows], Awaitable[object]]
Read = Callable[[str], Awaitable[object]]

SPACE = "s"
WRITERS = 64
DERIVED = 5
GOAL = 0.60
VALUE = b'{"title":"' + b"v" * 280 + b'"}'


def rows(number: int, derived: int) -> Rows:
    """A record of about 300 bytes, and its derived rows."""
    record = [(f"t/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", VALUE)]
    return record + [
        (f"idx/track/{n}/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", b"1") for n in range(derived)
    ]


class Groups:
    """Whatever comes in while one write is under way becomes the next: what a careful person puts in front of a driver."""

    def __init__(self, write: Write, rows_max: int = 1_000) -> None:
        self._write = write
        self._rows_max = rows_max
        self._waiting: list[tuple[Rows, asyncio.Future[None]]] = []
        self._working: asyncio.Future[None] | None = None

    async def commit(self, written: Rows) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((written, answer))
        if self._working is None:
            self._working = asyncio.ensure_future(self._serve())
        await answer

    async def _serve(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            size = self._rows_max // len(self._waiting[0][0])
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            await self._write([written for written, _ in group])
            for _, answer in group:
                answer.set_result(None)
            await asyncio.sleep(0)
        self._working = None


def of_engine(engine: Engine, *, spaces: int = 1) -> Commit:
    turn = count()

    async def commit(written: Rows) -> object:
        space = SPACE if spaces == 1 else f"{SPACE}{next(turn) % spaces}"
        return await engine.commit(
            space, Batch(puts=tuple([Put(key, value) for key, value in written]))
        )

    return commit


def writing(commit: Commit, writers: int, commits: int, derived: int) -> Contestant:
    """Each writer waits for its answer before it writes again."""
    numbers = count()

    async def write() -> None:
        for _ in range(commits):
            await commit(rows(next(numbers), derived))

    async def run() -> int:
        await asyncio.gather(*(write() for _ in range(writers)))
        return writers * commits

    return run


def reading(read: Read, readers: int, reads: int) -> Contestant:
    keys = [rows(number, 0)[0][0] for number in range(readers)]

    async def ask(key: str) -> None:
        for _ in range(reads):
            await read(key)

    async def run() -> int:
        await asyncio.gather(*map(ask, keys))
        return readers * reads

    return run


async def measure_commits(
    name: str,
    engine: Engine,
    write: Write,
    *,
    rounds: int,
    alone: int,
    each: int,
    rows_max: int = 1_000,
) -> list[Figure]:
    """Four figures. `alone` and `each`: the commits of one writer in a round, and of each of 64."""

    async def single(written: Rows) -> None:
        await write([written])

    ours, grouped = of_engine(engine), Groups(write, rows_max)
    figures: list[Figure] = []
    for derived in (0, DERIVED):
        limit = {
            "ours": writing(ours, 1, alone, derived),
            "limit": writing(single, 1, alone, derived),
        }
        figures.append(await figure(name, f"commit of {_named(derived)}, 1 writer", limit, rounds))
        contestants = {
            "ours": writing(ours, WRITERS, each, derived),
            "limit": writing(grouped.commit, WRITERS, each, derived),
            "single": writing(single, WRITERS, max(1, each // 4), derived),
        }
        figures.append(
            await figure(
                name, f"commit of {_named(derived)}, {WRITERS} writers", contestants, rounds
            )
        )
    return figures


async def measure_reads(
    name: str, engine: Engine, read: Read, *, rounds: int, alone: int, each: int
) -> list[Figure]:
    """A row by its key; bare, one request for each."""

    async def ours(key: str) -> object:
        return await engine.read(SPACE, [key])

    return [
        await figure(
            name,
            f"read of one row, {readers} reader{'s' if readers > 1 else ''}",
            {"ours": reading(ours, readers, reads), "limit": reading(read, readers, reads)},
            rounds,
            unit="reads/s",
        )
        for readers, reads in ((1, alone), (WRITERS, each))
    ]


async def figure(
    name: str,
    work: str,
    contestants: dict[str, Contestant],
    rounds: int,
    *,
    unit: str = "commits/s",
    goal: float = GOAL,
) -> Figure:
    results = await contest(contestants, rounds=rounds)
    return Figure(row=name, work=work, unit=unit, results=list(results.values()), goal=goal)


def _named(derived: int) -> str:
    return f"a record and {derived} derived rows" if derived else "one row"
