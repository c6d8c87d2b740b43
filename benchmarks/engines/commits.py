"""The cases of every engine: reads, and commits with 0 and 5 derived rows by 1 and 64 writers.

The baseline makes the same rows durable with the driver alone: the rows with their revision, and
one change log entry per commit, as a watch needs it. It checks nothing, and its revisions are a
counter in the process. With 64 writers it groups pending commits into one write, as the engines do;
one write per commit is much slower, and shown as `single`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from keyhouse.bench.comparison import Workload, compare
from keyhouse.bench.result import Result
from keyhouse.engine import Batch, Engine, Put

Rows = list[tuple[str, bytes]]
Write = Callable[[list[Rows]], Awaitable[object]]
"""Makes the rows of several commits durable in one write."""

Commit = Callable[[Rows], Awaitable[object]]
Read = Callable[[str], Awaitable[object]]

SPACE = "s"
WRITERS = 64
DERIVED = 5
GOAL = 0.60
VALUE = b'{"title":"' + b"v" * 280 + b'"}'


def rows(number: int, derived: int) -> Rows:
    """Return a record of about 300 bytes, and its derived rows."""
    record = [(f"t/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", VALUE)]
    return record + [
        (f"idx/track/{n}/{number:012d}/01ARZ3NDEKTSV4RRFFQ69G5FAV", b"1") for n in range(derived)
    ]


class GroupCommit:
    """Commits that arrive during a write share the next one, as in careful hand-written code."""

    def __init__(self, write: Write, rows_max: int = 1_000) -> None:
        self._write = write
        self._rows_max = rows_max
        self._pending: list[tuple[Rows, asyncio.Future[None]]] = []
        self._task: asyncio.Future[None] | None = None

    async def commit(self, written: Rows) -> None:
        done = asyncio.get_running_loop().create_future()
        self._pending.append((written, done))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        await done

    async def _run(self) -> None:
        await asyncio.sleep(0)
        while self._pending:
            size = self._rows_max // len(self._pending[0][0])
            group, self._pending = self._pending[:size], self._pending[size:]
            await self._write([written for written, _ in group])
            for _, done in group:
                done.set_result(None)
            await asyncio.sleep(0)
        self._task = None


def of_engine(engine: Engine, *, spaces: int = 1) -> Commit:
    turn = count()

    async def commit(written: Rows) -> object:
        space = SPACE if spaces == 1 else f"{SPACE}{next(turn) % spaces}"
        return await engine.commit(
            space, Batch(puts=tuple([Put(key, value) for key, value in written]))
        )

    return commit


def writing(commit: Commit, writers: int, commits: int, derived: int) -> Workload:
    """Return a workload whose writers wait for each commit before the next."""
    numbers = count()

    async def write() -> None:
        for _ in range(commits):
            await commit(rows(next(numbers), derived))

    async def run() -> int:
        await asyncio.gather(*(write() for _ in range(writers)))
        return writers * commits

    return run


def reading(read: Read, readers: int, reads: int) -> Workload:
    keys = [rows(number, 0)[0][0] for number in range(readers)]

    async def read_one(key: str) -> None:
        for _ in range(reads):
            await read(key)

    async def run() -> int:
        await asyncio.gather(*map(read_one, keys))
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
) -> list[Result]:
    """Return four results. Commits per round: `alone` of one writer, `each` of each of 64."""

    async def single(written: Rows) -> None:
        await write([written])

    ours, grouped = of_engine(engine), GroupCommit(write, rows_max)
    results: list[Result] = []
    for derived in (0, DERIVED):
        workloads = {
            "ours": writing(ours, 1, alone, derived),
            "baseline": writing(single, 1, alone, derived),
        }
        work = f"commit of {rows_text(derived)}, 1 writer"
        results.append(await result(name, work, workloads, rounds))
        workloads = {
            "ours": writing(ours, WRITERS, each, derived),
            "baseline": writing(grouped.commit, WRITERS, each, derived),
            "single": writing(single, WRITERS, max(1, each // 4), derived),
        }
        work = f"commit of {rows_text(derived)}, {WRITERS} writers"
        results.append(await result(name, work, workloads, rounds))
    return results


async def measure_reads(
    name: str, engine: Engine, read: Read, *, rounds: int, alone: int, each: int
) -> list[Result]:
    """Read one row by its key; the baseline sends one request each."""

    async def ours(key: str) -> object:
        return await engine.read(SPACE, [key])

    return [
        await result(
            name,
            f"read of one row, {readers} reader{'s' if readers > 1 else ''}",
            {"ours": reading(ours, readers, reads), "baseline": reading(read, readers, reads)},
            rounds,
            unit="reads/s",
        )
        for readers, reads in ((1, alone), (WRITERS, each))
    ]


async def result(
    name: str,
    work: str,
    workloads: dict[str, Workload],
    rounds: int,
    *,
    unit: str = "commits/s",
    goal: float = GOAL,
) -> Result:
    measured = await compare(workloads, rounds=rounds)
    return Result(case=name, work=work, unit=unit, measurements=list(measured.values()), goal=goal)


def rows_text(derived: int) -> str:
    return f"a record and {derived} derived rows" if derived else "one row"
