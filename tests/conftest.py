"""How Hypothesis runs here: no deadline (two cores share the work), and a failure prints what replays it.

A soak (`tests/soak.py`) makes every law try up to twenty times as many examples. The conformance suite is in the
package, where pytest explains a failed assert only when it is told to, before anything imports it.

A run on several processes begins with the tests that are marked `long`, so that none of them is what the rest waits for
at the end. The coverage of the core is that of its own tests, on the engine that costs nothing: to trace the others doubles
their time, and says nothing that these do not.
"""

from collections.abc import Generator

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from tests.soak import size

pytest.register_assert_rewrite("keyhouse.testing", "tests.model")

settings.register_profile(
    "keyhouse",
    deadline=None,
    print_blob=True,
    max_examples=size(100, 2_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("keyhouse")

TRACED = ("tests/base/", "tests/keys/", "tests/schema/", "tests/store/")
UNTRACED_ENGINES = {"sqlite", "rocksdb", "jetstream", "jetstream-buckets", "postgres", "dynamodb"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Its fixtures are traced no more than itself. In a worker there are two tracers, one behind the other: when one stops,
    the other goes on."""
    stopped: list[Coverage] = []
    while not is_traced(item) and (tracing := Coverage.current()) is not None:
        tracing.stop()
        stopped.append(tracing)
    try:
        return (yield)
    finally:
        for tracing in reversed(stopped):
            tracing.start()


def is_traced(item: pytest.Item) -> bool:
    parameters = (
        item.callspec.params.values()
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ()
    )
    elsewhere = any(isinstance(value, str) and value in UNTRACED_ENGINES for value in parameters)
    return (
        item.nodeid.startswith(TRACED) and not elsewhere and item.get_closest_marker("long") is None
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = dealt(items, workers)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The order in which each worker begins with its share of the long ones: worksteal gives each a part of the list, all of
    the same length."""
    if workers < 2:
        return items
    long = [item for item in items if item.get_closest_marker("long")]
    short = [item for item in items if not item.get_closest_marker("long")]
    order: list[pytest.Item] = []
    for worker in range(workers):
        own = long[worker::workers]
        others = max(0, (len(items) - len(order)) // (workers - worker) - len(own))
        order += own + short[:others]
        del short[:others]
    return order
