"""Runs of a program in simulated time: by a seed, with faults, checked as it runs.

    async def scenario(world: World) -> None:
        one, other = world.process("one"), world.process("other")
        …

    simulate(scenario, seed=7)               # the trace of one run
    explore(scenario, seeds=range(200))      # raises FailedRunError at the first violation

Everything that a run does follows from its seed: delays, faults, the steps of clients. So a seed
that fails is replayed exactly, and shrinks: `explore` repeats it with fewer steps and faults for as
long as it still fails, and shows the last lines of the shortest trace.

The program must not use the clock of the machine, threads, sockets, or the order of a set of texts.
Its own randomness comes from `world.random`, or from Python's `random`, which is seeded.
"""

import asyncio
import random as _random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from keyhouse.testing.faults import Killed
from keyhouse.testing.simulation.event_loop import VirtualLoop
from keyhouse.testing.simulation.server import Network, SimulatedEngine, SimulatedServer

__all__ = [
    "FailedRunError",
    "FaultPlan",
    "SimulatedClock",
    "SimulatedProcess",
    "SimulationRun",
    "World",
    "explore",
    "simulate",
]

START: Final = 1_767_225_600_000
"""The time of the clock when a run starts: 2026-01-01."""

SECONDS_MAX: Final = 86_400.0
"""Simulated seconds after which a run counts as stuck."""

SETTLE_SECONDS: Final = 60.0

LINES_SHOWN: Final = 40
_SHRINK_RUNS: Final = 200

Scenario = Callable[["World"], Coroutine[Any, Any, None]]
Step = tuple[str, int]
"""A client, and the number of its step."""

FaultKind = Literal["crash", "partition", "kill", "clock"]


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The number of faults of each kind in a run, at random times of its first `seconds`.

    `crashes` of the server, which is up again within `down_seconds`; `partitions` of a process from
    it, as long; `kills` of a process, which the scenario may start again; `clock_jumps` of the
    server's clock, forward or back by at most `jump_seconds`.
    """

    crashes: int = 1
    partitions: int = 2
    kills: int = 1
    clock_jumps: int = 1
    seconds: float = 60.0
    down_seconds: float = 5.0
    jump_seconds: float = 30.0


class PlannedFault(msgspec.Struct, frozen=True):
    at: float
    kind: FaultKind
    seconds: float
    choice: float


class SimulatedClock:
    """Milliseconds of simulated time, and what it was set forward or back by. Ids take their random
    bits from it, so they follow the seed."""

    def __init__(self, loop: VirtualLoop, random: _random.Random) -> None:
        self._loop = loop
        self.offset_ms = 0
        self.random_bits = random.getrandbits

    def now(self) -> int:
        return START + self.offset_ms + int(self._loop.now * 1_000)


class SimulatedProcess:
    """A process of the program: its engine and its tasks. A killed one is started again by
    `World.process` with the same name, as the scenario decides; `number` counts its starts."""

    def __init__(self, world: "World", name: str, number: int, engine: SimulatedEngine) -> None:
        self.name = name
        self.number = number
        self.engine = engine
        self.is_alive = True
        self._world = world
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of this process. An exception of it ends the run, unless the process was
        killed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def kill(self) -> None:
        """End the process at once: nothing that it is about to do happens."""
        if self.is_alive:
            self._world.note(self.name, "is killed")
            self.stop()

    def stop(self) -> None:
        """Kill without a word: the run is over."""
        self.is_alive = False
        self.engine.kill()
        for task in self._tasks:
            task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or not self.is_alive:
            return
        if not isinstance(error, Killed):
            self._world.fail(f"{self.name} raised {type(error).__name__}: {error}", error)


class World:
    """The surroundings of a scenario: processes, time, randomness, and the checks of a run."""

    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        *,
        network: Network,
        changes_kept: int,
        kept: frozenset[Step] | None = None,
    ) -> None:
        self.seed = seed
        self.random = _random.Random(f"{seed}")
        self.clock = SimulatedClock(loop, _random.Random(f"{seed}/ids"))
        self.trace: list[str] = []
        self.processes: dict[str, SimulatedProcess] = {}
        self.server = SimulatedServer(
            self.clock,
            _random.Random(f"{seed}/server"),
            network,
            self.note,
            changes_kept=changes_kept,
        )
        self.steps_taken: list[Step] = []
        self._loop = loop
        self._kept = kept
        self._failed: asyncio.Future[None] = loop.create_future()
        self.calm_after = 0.0

    @property
    def seconds(self) -> float:
        """The simulated seconds since the run started; no fault changes them."""
        return self._loop.now

    def process(self, name: str) -> SimulatedProcess:
        """Start a process, or start it again after it was killed."""
        before = self.processes.get(name)
        number = 1 if before is None else before.number + 1
        seeded = _random.Random(f"{self.seed}/{name}/{number}")
        process = SimulatedProcess(self, name, number, SimulatedEngine(self.server, name, seeded))
        self.processes[name] = process
        self.note(name, "starts")
        return process

    def steps(self, client: str, count: int) -> Iterator[_random.Random]:
        """Yield the randomness of each step of a client. Steps that a shorter run leaves out are
        not yielded; the others are as before."""
        for number in range(count):
            step = client, number
            if self._kept is None or step in self._kept:
                self.steps_taken.append(step)
                yield _random.Random(f"{self.seed}/{client}/{number}")

    async def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until no fault is left, everything is connected, and late requests have arrived;
        then for this long."""
        await asyncio.sleep(max(0.0, self.calm_after - self._loop.now))
        self.server.calm()
        await asyncio.sleep(seconds)

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self._loop.now:10.3f}  {who}: {what}")

    def check(self, condition: object, text: str) -> None:
        """End the run as a failure unless the condition holds, whatever the caller catches."""
        if not condition:
            self.fail(text)
            raise AssertionError(text)

    def fail(self, text: str, cause: BaseException | None = None) -> None:
        """End the run as a failure."""
        if not self._failed.done():
            error = AssertionError(text)
            error.__cause__ = cause
            self._failed.set_exception(error)

    async def run(self, scenario: Scenario, faults: Sequence[PlannedFault]) -> None:
        ends = [each.at + each.seconds for each in faults if each.kind != "clock"]
        self.calm_after = max(ends, default=0.0)
        nemesis = self._loop.create_task(self._inject(faults))
        running = self._loop.create_task(scenario(self))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await asyncio.wait([running, self._failed], return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            running.result()
        finally:
            for process in self.processes.values():
                process.stop()
            nemesis.cancel()
            running.cancel()
            self._failed.cancel()

    async def _inject(self, faults: Sequence[PlannedFault]) -> None:
        for fault in faults:
            await asyncio.sleep(max(0.0, fault.at - self._loop.now))
            self._start(fault)

    def _start(self, fault: PlannedFault) -> None:
        alive = [each for each in self.processes.values() if each.is_alive]
        chosen = alive[int(fault.choice * len(alive))] if alive else None
        if fault.kind == "crash":
            self.server.crash()
            self._loop.call_later(fault.seconds, self.server.restart)
        elif fault.kind == "clock":
            self.note("clock", f"jumps by {fault.seconds:.3f} s")
            self.clock.offset_ms += int(fault.seconds * 1_000)
        elif chosen is not None and fault.kind == "kill":
            chosen.kill()
        elif chosen is not None:
            self.note(chosen.name, f"is cut off for {fault.seconds:.3f} s")
            chosen.engine.disconnect()
            self._loop.call_later(fault.seconds, chosen.engine.reconnect)


class SimulationRun(msgspec.Struct, kw_only=True):
    """One run: its trace, and the error that ended it, if one did."""

    seed: int
    trace: list[str]
    steps: list[Step] = []
    error: BaseException | None = None


class FailedRunError(AssertionError):
    """A violation, with the seed and the shortest trace that shows it."""

    def __init__(self, run: SimulationRun, *, faults: int) -> None:
        self.run = run
        shown = run.trace[-LINES_SHOWN:]
        super().__init__(
            "\n".join(
                [
                    f"seed {run.seed} fails: {run.error}",
                    f"after {len(run.steps)} steps and {faults} faults; the end of its trace:",
                    *shown,
                ]
            )
        )


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    faults: FaultPlan | None = None,
    network: Network | None = None,
    changes_kept: int = 10_000,
) -> SimulationRun:
    """Run a scenario once by a seed, and return its trace."""
    planned = planned_faults(seed, faults or FaultPlan())
    return _run(scenario, seed, planned, None, network or Network(), changes_kept)


def explore(
    scenario: Scenario,
    seeds: Iterable[int],
    *,
    faults: FaultPlan | None = None,
    network: Network | None = None,
    changes_kept: int = 10_000,
) -> int:
    """Run a scenario by each seed, and return how many runs there were.

    Raises FailedRunError for the first that fails, with the fewest steps and faults found.
    """
    runs = 0
    network = network or Network()
    for seed in seeds:
        runs += 1
        planned = planned_faults(seed, faults or FaultPlan())
        run = _run(scenario, seed, planned, None, network, changes_kept)
        if run.error is not None:
            shortest, left = _shrink(scenario, run, planned, network, changes_kept)
            raise FailedRunError(shortest, faults=len(left)) from shortest.error
    return runs


def planned_faults(seed: int, plan: FaultPlan) -> list[PlannedFault]:
    random = _random.Random(f"{seed}/faults")
    counts: dict[FaultKind, int] = {
        "crash": plan.crashes,
        "partition": plan.partitions,
        "kill": plan.kills,
        "clock": plan.clock_jumps,
    }
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    faults = [
        PlannedFault(
            random.uniform(0, plan.seconds),
            kind,
            random.uniform(-plan.jump_seconds, plan.jump_seconds)
            if kind == "clock"
            else random.uniform(0, plan.down_seconds),
            random.random(),
        )
        for kind in kinds
    ]
    return sorted(faults, key=lambda each: each.at)


def _run(
    scenario: Scenario,
    seed: int,
    faults: Sequence[PlannedFault],
    kept: frozenset[Step] | None,
    network: Network,
    changes_kept: int,
) -> SimulationRun:
    state = _random.getstate()
    _random.seed(seed)
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)  # what killed tasks raise while they are cancelled
    world = World(seed, loop, network=network, changes_kept=changes_kept, kept=kept)
    run = SimulationRun(seed=seed, trace=world.trace)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(world.run(scenario, faults))
    except (Exception, Killed) as error:
        run.error = error
    finally:
        _random.setstate(state)
    run.steps = world.steps_taken
    return run


def _shrink(
    scenario: Scenario,
    run: SimulationRun,
    faults: Sequence[PlannedFault],
    network: Network,
    changes_kept: int,
) -> tuple[SimulationRun, Sequence[PlannedFault]]:
    """Leave out faults and steps for as long as the run fails in the same way."""
    kind = type(run.error)
    left = _Left(run.steps, list(faults))
    runs, size = 0, max(1, len(left) // 2)
    while size:
        shorter, at = False, 0
        while at < len(left) and runs < _SHRINK_RUNS:
            tried = left.without(at, size)
            runs += 1
            kept = frozenset(tried.steps)
            again = _run(scenario, run.seed, tried.faults, kept, network, changes_kept)
            if type(again.error) is kind:
                left, run, shorter = tried, again, True
            else:
                at += size
        if runs >= _SHRINK_RUNS:
            break
        size = size if shorter and size > 1 else size // 2
    return run, left.faults


class _Left(msgspec.Struct):
    """The steps and faults of a run, as one list."""

    steps: list[Step]
    faults: list[PlannedFault]

    def __len__(self) -> int:
        return len(self.steps) + len(self.faults)

    def without(self, at: int, size: int) -> "_Left":
        steps = self.steps[:at] + self.steps[at + size :]
        begin = max(0, at - len(self.steps))
        end = max(0, at + size - len(self.steps))
        return _Left(steps, self.faults[:begin] + self.faults[end:])
