"""No engine is left out: what is to be shown on every engine is collected for each of them, and is not skipped."""

import asyncio
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.registry import SCHEMES
from keyhouse.systems.registry import NAMES
from keyhouse.testing.conformance import Conformance
from tests.engines.conftest import is_known_skip
from tests.support.engine_openers import ALL, OPENERS

ROOT = Path(__file__).parents[2]

ENGINES = {"memory", "sqlite", "rocksdb", "postgres", "jetstream", "jetstream-buckets", "dynamodb"}
"""All six, JetStream in both of its layouts. An engine that is added is added here too."""

SHOWN = (
    "tests/engines/test_conformance.py",
    "tests/engines/test_scripts.py",
    "tests/store/test_model.py",
)
LOOKED_AT = (*SHOWN, "tests/systems")


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Each test of a run that nobody narrowed, with the engines that it is for: of this run, where it is one."""
    names = "\n".join(item.nodeid for item in request.session.items)
    if OPENERS != ALL or not all(
        f"{place}::" in names or f"{place}/" in names for place in LOOKED_AT
    ):
        names = _collect()
    engines: dict[str, set[str]] = defaultdict(set)
    for test, parameters in re.findall(r"^(\S+::test_\w+)\[(.*)\]$", names, re.MULTILINE):
        engines[test] |= {name for name in ENGINES if _names(name, parameters)}
    return engines


def _collect() -> str:
    environment = os.environ | {
        "KEYHOUSE_ENGINES": "",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    program = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        *LOOKED_AT,
    ]
    ran = subprocess.run(
        program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _names(engine: str, parameters: str) -> bool:
    """Whether it is one of the parameters: pytest puts dashes between them, and one engine has a dash of its own."""
    rest = parameters.replace("jetstream-buckets", "buckets")
    return re.search(rf"(^|-){engine.replace('jetstream-', '')}(-|$)", rest) is not None


def test_the_list_of_engines_is_whole() -> None:
    assert set(ALL) == ENGINES
    assert {engine for engine in SCHEMES.values()} == {name.partition("-")[0] for name in ENGINES}


def test_ci_narrows_nothing() -> None:
    """`make` takes ENGINES from its surroundings, unless it is said on its line."""
    assert "make test ENGINES= " in (ROOT / ".ci" / "run").read_text()
    assert "KEYHOUSE_ENGINES=$(ENGINES) $(BIN)/python -m pytest" in (ROOT / "Makefile").read_text()


def test_the_suite_is_put_to_every_engine(collected: dict[str, set[str]]) -> None:
    suite = [name for name in dir(Conformance) if name.startswith("test_")]
    assert len(suite) > 100
    for name in suite:
        assert collected[f"{SHOWN[0]}::TestEngines::{name}"] == ENGINES, name


@pytest.mark.parametrize(
    ("test", "besides"),
    [
        (
            f"{SHOWN[1]}::test_one_long_script_has_the_same_history_on_every_engine",
            {"memory", "jetstream-buckets"},
        ),
        (f"{SHOWN[1]}::test_an_engine_has_the_history_of_the_model", {"memory"}),
        (f"{SHOWN[2]}::test_the_store_answers_and_holds_what_the_model_says", set()),
        (f"{SHOWN[2]}::test_whatever_hypothesis_does_the_store_is_the_model", set()),
    ],
)
def test_random_runs_are_of_every_engine(
    test: str, besides: set[str], collected: dict[str, set[str]]
) -> None:
    assert collected[test] | besides == ENGINES, (
        "without what the others are compared with, and one layout of the long script"
    )


@pytest.mark.parametrize("system", NAMES)
def test_every_system_is_driven_on_every_engine(
    system: str, collected: dict[str, set[str]]
) -> None:
    """Its store, that is; the tests of its service name the two engines that they run on."""
    driven = {
        test: found
        for test, found in collected.items()
        if f"/test_{system}_" in test and "memory" in found
    }
    assert len(driven) >= 3
    assert all(engines == ENGINES for engines in driven.values()), driven


@pytest.mark.parametrize("name", list(OPENERS))
def test_an_opener_opens_the_engine_of_its_name(name: str, tmp_path: Path) -> None:
    async def look() -> None:
        engine = await OPENERS[name](tmp_path)(ManualClock())
        try:
            assert engine.capabilities.name == name.partition("-")[0]
            assert engine.capabilities.durable == (name != "memory"), (
                "else what is for durable engines is skipped"
            )
        finally:
            await engine.close()

    asyncio.run(look())


@pytest.mark.parametrize(
    ("reason", "is_known"),
    [
        ("the memory engine does not declare shared", True),
        ("the rocksdb engine does not declare shared", True),
        ("the rocksdb engine does not declare durable", False),
        ("the sqlite engine does not declare shared", False),
        ("no server", False),
        ("this machine lets no process mount a disk of its own (unshare)", True),
    ],
)
def test_a_skip_without_a_known_reason_fails(reason: str, is_known: bool) -> None:
    assert is_known_skip(reason) is is_known
