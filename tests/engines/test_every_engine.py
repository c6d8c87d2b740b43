"""No engine is left out: tests for all engines are collected for each, and not skipped."""

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
from keyhouse.service.registry import system_names
from keyhouse.testing.conformance import Conformance
from tests.engines.conftest import DESELECTED, is_known_skip
from tests.support.engine_openers import ALL, OPENERS

ROOT = Path(__file__).parents[2]

ENGINES = {"memory", "sqlite", "rocksdb", "postgres", "jetstream", "jetstream-buckets", "dynamodb"}
"""All six, JetStream in both layouts. Add new engines here too."""

ON_EVERY_ENGINE = (
    "tests/engines/test_conformance.py",
    "tests/engines/test_scripts.py",
    "tests/store/test_model.py",
)
COLLECTED = (*ON_EVERY_ENGINE, "systems")


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Return each test of both tiers with its engines, from a run with all engines: this one, if it
    is."""
    items = [*request.session.items, *request.config.stash.get(DESELECTED, [])]
    names = "\n".join(item.nodeid for item in items)
    if OPENERS != ALL or not all(
        f"{place}::" in names or f"{place}/" in names for place in COLLECTED
    ):
        names = _collect()
    engines: dict[str, set[str]] = defaultdict(set)
    for test, parameters in re.findall(r"^(\S+::test_\w+)\[(.*)\]$", names, re.MULTILINE):
        engines[test] |= {name for name in ENGINES if _names(name, parameters)}
    return engines


def _collect() -> str:
    environment = os.environ | {
        "TEST_ENGINES": "",
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
        "-p",
        "no:schemathesis",
        *COLLECTED,
    ]
    ran = subprocess.run(
        program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _names(engine: str, parameters: str) -> bool:
    """Return whether an engine is among the parameters, which pytest joins with dashes."""
    rest = parameters.replace("jetstream-buckets", "buckets")
    return re.search(rf"(^|-){engine.replace('jetstream-', '')}(-|$)", rest) is not None


def test_the_list_of_engines_is_complete() -> None:
    assert set(ALL) == ENGINES
    assert {engine for engine in SCHEMES.values()} == {name.partition("-")[0] for name in ENGINES}


def test_ci_tests_every_engine() -> None:
    """`make` takes ENGINES from the environment unless it is set on the command line."""
    assert "make test-all ENGINES= " in (ROOT / ".ci" / "run").read_text()
    assert (ROOT / "Makefile").read_text().count("TEST_ENGINES=$(ENGINES) $(PYTEST)") == 3


def test_make_test_leaves_out_one_layout_of_conformance_and_no_engine(
    request: pytest.FixtureRequest,
) -> None:
    left_out = {
        engine
        for item in request.config.stash.get(DESELECTED, [])
        if item.nodeid.startswith(f"{ON_EVERY_ENGINE[0]}::TestEngines")
        and item.get_closest_marker("extra") is not None
        for engine in ENGINES
        if _names(engine, item.nodeid.partition("[")[2].rstrip("]"))
    }
    assert left_out <= {"jetstream-buckets"}


def test_the_conformance_suite_runs_on_every_engine(collected: dict[str, set[str]]) -> None:
    suite = [name for name in dir(Conformance) if name.startswith("test_")]
    assert len(suite) > 100
    for name in suite:
        assert collected[f"{ON_EVERY_ENGINE[0]}::TestEngines::{name}"] == ENGINES, name


@pytest.mark.parametrize(
    ("test", "exempt"),
    [
        (
            f"{ON_EVERY_ENGINE[1]}::test_one_long_script_has_the_same_history_on_every_engine",
            {"memory", "jetstream-buckets"},
        ),
        (f"{ON_EVERY_ENGINE[1]}::test_an_engine_has_the_history_of_the_model", {"memory"}),
        (f"{ON_EVERY_ENGINE[2]}::test_the_store_matches_the_model", set()),
        (f"{ON_EVERY_ENGINE[2]}::test_whatever_hypothesis_does_the_store_is_the_model", set()),
    ],
)
def test_random_tests_run_on_every_engine(
    test: str, exempt: set[str], collected: dict[str, set[str]]
) -> None:
    assert collected[test] | exempt == ENGINES, (
        "exempt: the engine that others are compared with, and one layout in the long script"
    )


@pytest.mark.parametrize("system", system_names())
def test_every_system_is_tested_on_every_engine(
    system: str, collected: dict[str, set[str]]
) -> None:
    """This covers its store; the tests of its service choose two engines."""
    engine_tests = {
        test: found
        for test, found in collected.items()
        if f"/test_{system}_" in test and "memory" in found
    }
    assert len(engine_tests) >= 3
    assert all(engines == ENGINES for engines in engine_tests.values()), engine_tests


@pytest.mark.parametrize("name", list(OPENERS))
def test_each_opener_opens_the_named_engine(name: str, tmp_path: Path) -> None:
    async def check_opened() -> None:
        engine = await OPENERS[name](tmp_path)(ManualClock())
        try:
            assert engine.capabilities.name == name.partition("-")[0]
            assert engine.capabilities.durable == (name != "memory"), (
                "otherwise tests for durable engines are skipped"
            )
        finally:
            await engine.close()

    asyncio.run(check_opened())


@pytest.mark.parametrize(
    ("reason", "is_known"),
    [
        ("the memory engine does not declare shared", True),
        ("the rocksdb engine does not declare shared", True),
        ("the rocksdb engine does not declare durable", False),
        ("the sqlite engine does not declare shared", False),
        ("no server", False),
        ("this machine does not allow a private mount (unshare)", True),
    ],
)
def test_a_skip_without_a_known_reason_fails(reason: str, is_known: bool) -> None:
    assert is_known_skip(reason) is is_known
