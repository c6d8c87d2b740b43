"""Several engines racing on one bucket: counters, compare-and-set, checks of unwritten rows."""

import asyncio
import random
from collections import Counter

from keyhouse.engine import Add, Batch, Check, Put
from keyhouse.engines.jetstream import JetstreamEngine

ENGINES = 3
TASKS = 6
ROUNDS = 20
SPACE = "s"


class Race:
    def __init__(self, url: str, seed: int) -> None:
        self._engines = [JetstreamEngine.open(url) for _ in range(ENGINES)]
        self._seed = seed
        self._done: Counter[str] = Counter()
        self._guards: set[int] = set()
        self._guarded: list[tuple[int, int]] = []
        """Pairs of the guard's revision that a commit checked and the commit's own revision."""

    async def faults(self) -> list[str]:
        """Run the race and return every deviation."""
        await self._engines[0].commit(SPACE, Batch(puts=(Put("set", b"0"), Put("guard", b"0"))))
        runs = [
            (engine, f"{number}-{task}")
            for number, engine in enumerate(self._engines)
            for task in range(TASKS)
        ]
        await asyncio.gather(*(self._run(engine, name) for engine, name in runs))
        found = []
        for key, count in self._done.items():
            (row,) = await self._engines[-1].read(SPACE, [key])
            if row is None or int(row.value) != count:
                found.append(f"{key} is {row}, and {count} were acknowledged")
        for guard, revision in self._guarded:
            if any(guard < other < revision for other in self._guards):
                found.append(
                    f"the commit {revision} checked the guard at {guard}, which had changed"
                )
        for engine in self._engines:
            await engine.close()
        return found

    async def _run(self, engine: JetstreamEngine, name: str) -> None:
        dice = random.Random(f"{self._seed} {name}")
        for number in range(ROUNDS):
            match dice.randrange(4):
                case 0:
                    await engine.commit(SPACE, Batch(adds=(Add("pair", 1), Add("other", 1))))
                    self._done.update(("pair", "other"))
                case 1:
                    await engine.commit(SPACE, Batch(adds=(Add("single", 1),)))
                    self._done.update(("single",))
                case 2:
                    await self._increment(engine, "set")
                    self._done.update(("set",))
                case _ if dice.random() < 0.3:
                    self._guards.add(await self._increment(engine, "guard"))
                    self._done.update(("guard",))
                case _:
                    await self._check(engine, f"{name}-{number}")

    async def _increment(self, engine: JetstreamEngine, key: str) -> int:
        while True:
            (row,) = await engine.read(SPACE, [key])
            assert row is not None
            batch = Batch(
                checks=(Check(key, row.revision),), puts=(Put(key, b"%d" % (int(row.value) + 1)),)
            )
            if (revision := await engine.commit(SPACE, batch)) is not None:
                return revision

    async def _check(self, engine: JetstreamEngine, key: str) -> None:
        while True:
            (row,) = await engine.read(SPACE, ["guard"])
            assert row is not None
            batch = Batch(checks=(Check("guard", row.revision),), puts=(Put(key, b"1"),))
            if (revision := await engine.commit(SPACE, batch)) is not None:
                return self._guarded.append((row.revision, revision))
