"""The store against its model: every result and every row equals the oracle's.

Each run has a new seed. A failure prints it, with the number of the operation and the last ones as
text; `TEST_SEED=… pytest tests/store/test_model.py` replays it. A soak runs up to ten times as
many operations.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from keyhouse.engine import Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError
from keyhouse.schema import BoundUnique
from keyhouse.store import Transaction
from keyhouse.store.reads.scan import Scan
from keyhouse.store.writes import transaction, write_plan
from keyhouse.store.writes.row_buffer import RowBuffer
from keyhouse.store.writes.shared_rows import successor_of
from keyhouse.testing.script import parse
from tests.model import Difference, Generator, Player, generate, play
from tests.model.generator import WEIGHTS
from tests.sizes import size
from tests.support.engine_openers import ALL, OPENERS
from tests.support.seeds import new_seed

OPERATIONS = size(800, 5_000, 50_000)
FEWER_OPERATIONS = dict.fromkeys(("jetstream", "jetstream-buckets"), size(200, 2_500, 25_000)) | {
    "postgres": size(250, 5_000, 50_000),
    "dynamodb": size(100, 2_000, 10_000),
}
RUNS = dict.fromkeys(("memory", "sqlite", "rocksdb"), size(2, 6, 6))
EXAMPLES = size(6, 25, 250)
FEWER_EXAMPLES = dict.fromkeys(("jetstream", "jetstream-buckets", "postgres"), size(2, 10, 100)) | {
    "dynamodb": size(1, 5, 50)
}
PLANTED_OPERATIONS = 4_000


def run(seed: int, engine: str, folder: Path, operations: int) -> int:
    label = f"TEST_SEED={seed} on {engine}"
    return asyncio.run(play(generate(seed, operations), ALL[engine](folder), label=label))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize(
    ("engine", "number"), [(name, n) for name in OPENERS for n in range(RUNS.get(name, 1))]
)
def test_the_store_matches_the_model(engine: str, number: int, tmp_path: Path) -> None:
    operations = FEWER_OPERATIONS.get(engine, OPERATIONS)
    assert run(new_seed(), engine, tmp_path, operations) == operations


class StoreMachine(RuleBasedStateMachine):
    """Operations drawn by Hypothesis, which shrinks a failure."""

    engine = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._player = self._runner.run(Player.open(OPENERS[self.engine](Path(self._folder.name))))

    @rule(kind=st.sampled_from(list(WEIGHTS)), dice=st.randoms(use_true_random=False))
    def operate(self, kind: str, dice: Random) -> None:
        operation = Generator(dice).make(kind)
        note(str(operation))
        self._runner.run(self._player.play(operation))

    @invariant()
    def every_row_is_right(self) -> None:
        self._runner.run(self._player.check())

    def teardown(self) -> None:
        try:
            self._runner.run(self._player.verify())
        finally:
            self._runner.run(self._player.close())
            self._runner.close()
            self._folder.cleanup()


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("engine", list(OPENERS))
def test_whatever_hypothesis_does_the_store_is_the_model(engine: str) -> None:
    machine = type("Machine", (StoreMachine,), {"engine": engine})
    examples = FEWER_EXAMPLES.get(engine, EXAMPLES)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=40)
    )


Method = Callable[..., Any]


def keep_old_index_rows(owned_changes: Method) -> Method:
    return lambda *arguments: {
        key: put for key, put in owned_changes(*arguments).items() if put is not None
    }


def let_index_rows_live_on(owned_changes: Method) -> Method:
    return lambda *arguments: {
        key: put and Put(key, put.value) for key, put in owned_changes(*arguments).items()
    }


def count_only_upward(add: Method) -> Method:
    return lambda self, key, by: add(self, key, by) if by > 0 else None


def show_what_has_expired(live: Method) -> Method:
    return lambda self, space, key: self._stored(space, key)


def answer(value: object) -> Callable[[Method], Method]:
    async def planted(*arguments: Any) -> object:
        return value

    return lambda method: planted


PLANTED: dict[str, tuple[object, str, Callable[[Method], Method]]] = {
    "an old index row stays": (write_plan, "owned_changes", keep_old_index_rows),
    "an index row outlives its record": (write_plan, "owned_changes", let_index_rows_live_on),
    "a refused put stays in its transaction": (
        RowBuffer,
        "restore",
        lambda restore: lambda self, kept: None,
    ),
    "a unique value is given twice": (
        BoundUnique,
        "merge",
        lambda merge: lambda self, key, row, removed, added: added,
    ),
    "the first has no successor": (transaction, "successor_of", answer(None)),
    "a member goes though another record lists it": (Transaction, "still_listed", answer(False)),
    "a count never goes down": (RowBuffer, "add", count_only_upward),
    "an expectation is not looked at": (
        Transaction,
        "apply",
        lambda apply: lambda self, plan, expect=None: apply(self, plan),
    ),
    "an expired row is shown": (MemoryEngine, "live", show_what_has_expired),
    "a cursor fits every scan": (Scan, "checksum", lambda mark: lambda self: 0),
}


@pytest.mark.parametrize("bug", list(PLANTED))
def test_the_model_finds_a_planted_bug(
    bug: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owner, name, plant = PLANTED[bug]
    monkeypatch.setattr(owner, name, plant(getattr(owner, name)))
    with pytest.raises(Difference) as found:
        run(new_seed(), "memory", tmp_path, PLANTED_OPERATIONS)
    assert isinstance(found.value.__cause__, (Difference, KeyhouseError))


def test_a_failure_prints_the_script_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transaction, "successor_of", answer(None)(successor_of))
    with pytest.raises(Difference) as first:
        run(7, "memory", tmp_path, PLANTED_OPERATIONS)
    found = re.match(r"TEST_SEED=(\d+) on memory, operation (\d+): ", str(first.value))
    assert found is not None and found[1] == "7"
    script = "\n".join(map(str, generate(7, int(found[2]))))
    assert script.endswith(str(first.value).partition("the last operations:\n")[2])
    with pytest.raises(Difference, match=f"a script, operation {found[2]}: "):
        asyncio.run(play(parse(script), ALL["memory"](tmp_path)))


def test_the_operations_come_to_every_kind() -> None:
    operations = generate(1, 5_000)
    assert {operation.name for operation in operations} == set(WEIGHTS)
    assert generate(1, 50) == operations[:50] != generate(2, 50)
