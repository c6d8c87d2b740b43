"""Links, forgotten spaces and rows of other programs against a model, on every engine.

Each run has a new seed. A failure prints it, with the number of the operation and the last ones;
`TEST_SEED=… pytest tests/store/test_linked_model.py` replays it.
"""

import asyncio
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.store.writes.link_guard import LinkGuard
from tests.model.comparison import Difference
from tests.model.linked import WEIGHTS, LinkedPlayer, generate
from tests.sizes import size
from tests.support.engine_openers import ALL, OPENERS
from tests.support.seeds import new_seed

OPERATIONS = size(200, 600, 10_000)
FEWER_OPERATIONS = dict.fromkeys(
    ("jetstream", "jetstream-buckets", "dynamodb", "postgres"), size(60, 150, 1_500)
)


def run(engine: str, folder: Path, operations: int) -> None:
    seed = new_seed()
    label = f"TEST_SEED={seed} on {engine}"
    player = LinkedPlayer(ALL[engine](folder), ManualClock())
    asyncio.run(player.play(generate(seed, operations), label))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("engine", list(OPENERS))
def test_links_and_foreign_rows_match_the_model(engine: str, tmp_path: Path) -> None:
    run(engine, tmp_path, FEWER_OPERATIONS.get(engine, OPERATIONS))


def test_links_and_foreign_rows_match_the_model_in_memory(tmp_path: Path) -> None:
    run("memory", tmp_path, 300)


def test_the_model_finds_an_owner_that_leaves_its_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def none(*_: object) -> None:
        return None

    monkeypatch.setattr(LinkGuard, "delete_dependent", none)
    with pytest.raises(Difference):
        run("memory", tmp_path, 2_000)


def test_the_operations_have_every_kind() -> None:
    assert {operation.name for operation in generate(1, 2_000)} == set(WEIGHTS)
    assert generate(1, 50) == generate(1, 50) != generate(2, 50)
