"""Hypothesis settings, the order of tests over processes, and coverage of the core.

Hypothesis has no deadline (two cores are shared), and a failure prints its replay. The number of
its examples is one of `tests/sizes.py`.

The conformance suite is in the package, so its asserts must be registered for rewriting before
anything imports it.

A run on several processes starts with tests marked `long`, so that the end does not wait for one.
They wait more than they compute, so one process starts with the others. `TEST_ORDER=SEED`
shuffles the modules, and the tests of each, first (`make steady`).

A run with `--cov` (`make coverage`) traces the import of the core too, and not the collection of
tests.

The garbage collector never looks at what the collection leaves: 1.5 million objects, a second each
time.
"""

import gc
import os
import pkgutil
import random
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from tests.sizes import size
from tests.support.failure_report import LOGS, FailureReport

pytest.register_assert_rewrite("keyhouse.testing", "tests.model")

settings.register_profile(
    "keyhouse",
    deadline=None,
    print_blob=True,
    max_examples=size(30, 100, 2_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("keyhouse")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a background job (`nohup make test &`). Programs that tests start would inherit it, and
    # a test that sends them Ctrl-C would wait forever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Under `nohup`, a program of a test would not stop when the test closes its terminal. This
    # process goes on with a handler, which programs do not inherit.
    signal.signal(signal.SIGHUP, lambda number, frame: None)

ORDER = os.environ.get("TEST_ORDER", "")
if ORDER and not ORDER.isdecimal():
    raise pytest.UsageError(f"TEST_ORDER is the seed of a random order, and not {ORDER!r}.")

CORE_PACKAGES = ("keyhouse.keys", "keyhouse.schema", "keyhouse.store")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FailureReport(config))


@pytest.fixture(scope="session", autouse=True)
def logs_of_this_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    LOGS.add(tmp_path_factory.getbasetemp())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    if Coverage.current() is not None:
        for package in CORE_PACKAGES:
            for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
                import_module(module.name)
    gc.disable()
    try:
        with untraced():
            return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@contextmanager
def untraced() -> Iterator[None]:
    """Stop tracing. A worker has two stacked tracers: when one stops, the other takes over."""
    stopped: list[Coverage] = []
    while (tracing := Coverage.current()) is not None:
        tracing.stop()
        stopped.append(tracing)
    try:
        yield
    finally:
        for tracing in reversed(stopped):
            tracing.start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ORDER:
        items[:] = shuffled(items, int(ORDER))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = order_for_workers(items, workers)


def shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return another order of modules, and of the tests of each: fixtures of a module are made
    once."""
    generator = random.Random(seed)
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order = list(modules.values())
    generator.shuffle(order)
    for tests in order:
        generator.shuffle(tests)
    return [item for tests in order for item in tests]


def order_for_workers(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return an order in which each worker but the last starts with its share of long tests:
    worksteal gives each worker a slice of the list, all of the same length."""
    if workers < 2:
        return items
    long = [item for item in items if item.get_closest_marker("long")]
    short = [item for item in items if not item.get_closest_marker("long")]
    order: list[pytest.Item] = []
    for worker in range(workers):
        own = long[worker :: workers - 1] if worker < workers - 1 else []
        others = max(0, (len(items) - len(order)) // (workers - worker) - len(own))
        order += own + short[:others]
        del short[:others]
    return order
