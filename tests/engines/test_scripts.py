"""One script gives the same history on every engine. A failure names its seed, and replays:

TEST_SEED=… pytest tests/engines/test_scripts.py -k long
"""

import asyncio
import os
from functools import cache
from pathlib import Path

import pytest

from keyhouse.testing.generator import generate
from keyhouse.testing.script import parse, play
from tests.sizes import SOAK, size
from tests.support.engine_openers import ALL, OPENERS

SEEDS = range(size(1, 10, 100))
OPERATIONS = size(1_000, 2_000, 5_000)
LAYOUTS = ("jetstream", "jetstream-buckets")
"""Of one engine: each has half of the seeds, or of the operations of the only one."""

FEWER_SEEDS = {} if SOAK or len(SEEDS) == 1 else {LAYOUTS[n]: SEEDS[n::2] for n in (0, 1)}
FEWER_OPERATIONS = (
    {}
    if SOAK
    else dict.fromkeys(LAYOUTS, size(500, 2_000, 2_000)) | {"dynamodb": size(100, 250, 250)}
)

LONG_OPERATIONS = size(800, 5_000, 5_000)
LONG_OPERATIONS_OF = {"dynamodb": size(250, 5_000, 5_000)}
LONG_SEED = int(os.environ.get("TEST_SEED") or 5_000)

ENGINES = [name for name in OPENERS if name != "memory"]
CASES = [
    (engine, seed) for seed in SEEDS for engine in ENGINES if seed in FEWER_SEEDS.get(engine, SEEDS)
]
"""Ordered by seed, so that a worker reuses the model's history."""


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "jetstream-buckets"])
def test_one_long_script_has_the_same_history_on_every_engine(engine: str, tmp_path: Path) -> None:
    compare(engine, LONG_SEED, LONG_OPERATIONS_OF.get(engine, LONG_OPERATIONS), tmp_path)


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize(("engine", "seed"), CASES)
def test_an_engine_has_the_history_of_the_model(engine: str, seed: int, tmp_path: Path) -> None:
    compare(engine, seed, FEWER_OPERATIONS.get(engine, OPERATIONS), tmp_path)


def compare(engine: str, seed: int, operations: int, folder: Path) -> None:
    """Assert equal histories; on failure show the first difference and the replay command."""
    expected = modelled(seed, operations)
    history = asyncio.run(play(generate(seed, operations), OPENERS[engine](folder)))
    assert len(history) == len(expected) == operations
    differing = [number for number in range(operations) if history[number] != expected[number]]
    assert not differing, (
        f"TEST_SEED={seed} on {engine}, operation {differing[0]} of {operations}:\n"
        f"{history[differing[0]]}\nmodel:\n{expected[differing[0]]}"
    )


@cache
def modelled(seed: int, operations: int) -> list[str]:
    return asyncio.run(play(generate(seed, operations), ALL["memory"](Path())))


@pytest.fixture(scope="module")
def histories() -> list[str]:
    return [line for seed in range(10) for line in modelled(seed, 2_000)]


def test_watchers_end_with_the_stored_rows(histories: list[str]) -> None:
    followed = [line for line in histories if line.startswith("follow")]
    assert len(followed) > 300
    assert not [line for line in followed if "-> agrees" not in line]


def test_histories_contain_only_revisions_of_commits(histories: list[str]) -> None:
    assert not [line for line in histories if "UNKNOWN" in line]


@pytest.mark.parametrize(
    "answer", ["-> lost", "-> refused", "-> holds", "more=True", '-> ["a", "a/b", "b"]', "-> #200"]
)
def test_the_scripts_cover_every_kind_of_result(histories: list[str], answer: str) -> None:
    assert any(answer in line for line in histories)


def test_a_script_depends_only_on_its_seed() -> None:
    assert generate(1, 100) == generate(1, 100)
    assert generate(1, 100).splitlines()[1:] != generate(2, 100).splitlines()[1:]
    assert generate(3, 100).startswith("# seed 3, 100 operations\n")


def test_a_script_parses_back_to_its_operations() -> None:
    script = generate(4, 200)
    assert "\n".join(str(operation) for operation in parse(script)) == script.partition("\n")[
        2
    ].rstrip("\n")


@pytest.mark.parametrize("line", ["fly {}", 'commit {"space": "a", "checks": {"k": "perhaps"}}'])
def test_a_script_with_an_unknown_word_is_rejected(line: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such"):
        asyncio.run(play(line, ALL["memory"](tmp_path)))
