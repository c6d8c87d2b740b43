"""Histories of concurrent clients on every engine are linearizable: reads, compare-and-set,
counters, claims of a free key, and batches of two keys. On an engine that several processes may
open, the clients are spread over two instances.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import pytest

from keyhouse.clock import SystemClock
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, Span
from keyhouse.testing.linearizability import Recorded, check
from tests.sizes import size
from tests.support.engine_openers import ALL, OPENERS
from tests.support.seeds import new_seed

CLIENTS, KEYS = 8, 10
OPERATIONS = size(1_000, 3_000, 1_000_000)
SLOWER = {"dynamodb": 4, "jetstream": 2, "jetstream-buckets": 4}
"""A part of the operations: these engines take milliseconds for one."""

HISTORY = 1_000
"""Operations of one history: each has other keys."""


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_every_history_is_linearizable(name: str, tmp_path: Path) -> None:
    random = Random(new_seed())

    async def run() -> None:
        opener = OPENERS[name](tmp_path)
        engines = [await opener(SystemClock())]
        if engines[0].capabilities.shared:
            engines.append(await opener(SystemClock()))
        left = OPERATIONS // SLOWER.get(name, 1)
        number = 0
        while left > 0:
            history = await record(engines, min(left, HISTORY), f"h{number}", random)
            verdict = check(history)
            assert verdict.is_linearizable, f"{verdict}"
            left -= HISTORY
            number += 1
        for engine in engines:
            await engine.close()

    asyncio.run(run())


async def record(
    engines: list[Engine], operations: int, prefix: str, random: Random
) -> list[Recorded]:
    """Run clients beside each other, and return what each of their calls did."""
    history: list[Recorded] = []

    async def client(number: int) -> None:
        recorder = Recorder(engines[number % len(engines)], prefix, history, number)
        for _ in range(operations // CLIENTS):
            await random.choice(recorder.verbs)(random)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return history


class Recorder:
    """One client. A state maps a key to its value, and to the revision that wrote it."""

    def __init__(self, engine: Engine, prefix: str, history: list[Recorded], number: int) -> None:
        self._engine = engine
        self._prefix = prefix
        self._history = history
        self._values = (f"{number}-{n}" for n in range(10**9))
        self._seen: dict[str, int | None] = {}
        self.verbs = (self.read, self.read, self.put, self.swap, self.swap, self.add, self.batch)

    def _key(self, random: Random) -> str:
        return f"{self._prefix}-{random.randrange(KEYS)}"

    async def read(self, random: Random) -> None:
        key = self._key(random)
        called = perf_counter()
        row = (await self._engine.read("s", [key]))[0]
        self._seen[key] = None if row is None else row.revision
        seen = shown(row)
        self._add((key,), called, lambda state: state if state.get(key) == seen else None, "read")

    async def put(self, random: Random) -> None:
        key, value = self._key(random), next(self._values)
        called = perf_counter()
        revision = await self._engine.commit("s", Batch(puts=(Put(key, value.encode()),)))
        self._wrote(key, revision)
        self._add((key,), called, lambda state: {key: (value, revision)}, f"put {value}")

    async def swap(self, random: Random) -> None:
        """Write over the revision that this client has seen last."""
        key, value = self._key(random), next(self._values)
        known = self._seen.get(key)
        batch = Batch(checks=(Check(key, known),), puts=(Put(key, value.encode()),))
        called = perf_counter()
        revision = await self._engine.commit("s", batch)
        self._wrote(key, revision)

        def apply(state: Any) -> Any:
            is_known = (state[key][1] if key in state else None) == known
            if is_known is not (revision is not None):
                return None
            return {key: (value, revision)} if is_known else state

        self._add((key,), called, apply, f"put {value} over {known}: {revision}")

    async def add(self, random: Random) -> None:
        key = f"{self._prefix}-counter"
        called = perf_counter()
        revision = await self._engine.commit("s", Batch(adds=(Add(key, 1),)))

        def apply(state: Any) -> Any:
            before = int(state[key][0]) if key in state else 0
            return {key: (f"{before + 1}", revision)}

        self._add((key,), called, apply, "add 1")
        called = perf_counter()
        row = (await self._engine.read("s", [key]))[0]
        seen = shown(row)
        self._add(
            (key,), called, lambda state: state if state.get(key) == seen else None, f"read {seen}"
        )

    async def batch(self, random: Random) -> None:
        """Write two keys in one commit, or read both from one snapshot."""
        keys = (f"{self._prefix}-pair-0", f"{self._prefix}-pair-1")
        called = perf_counter()
        if random.random() < 0.5:
            value = next(self._values)
            puts = tuple(Put(key, value.encode()) for key in keys)
            revision = await self._engine.commit("s", Batch(puts=puts))
            after = dict.fromkeys(keys, (value, revision))
            self._add(keys, called, lambda state: after, f"put both {value}")
            return
        page = await self._engine.scan("s", Span.prefix(f"{self._prefix}-pair-"), limit=9)
        seen = {row.key: shown(row) for row in page.rows}
        self._add(keys, called, lambda state: state if state == seen else None, f"read {seen}")

    def _wrote(self, key: str, revision: int | None) -> None:
        if revision is not None:
            self._seen[key] = revision

    def _add(
        self, keys: tuple[str, ...], called: float, apply: Callable[[Any], Any], text: str
    ) -> None:
        self._history.append(Recorded(keys, called, perf_counter(), apply, f"{keys[0]}: {text}"))


def shown(row: Row | None) -> tuple[str, int] | None:
    return None if row is None else (row.value.decode(), row.revision)
