"""Each system's store is driven on every engine.

On two of them in `make test-all` alone, except the store of history, whose engine of production is
DynamoDB: the emulation takes as long as all others together, and the second layout of JetStream
differs in the names of its buckets.
"""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.support.store_driver")

from tests.support.engine_openers import OPENERS  # noqa: E402  # after it is registered, or its asserts say nothing
from tests.support.store_driver import Drive  # noqa: E402

FURTHER_ENGINES = ("jetstream-buckets", "dynamodb")


@pytest.fixture(params=OPENERS)
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    return Drive(OPENERS[request.param](tmp_path))


def pytest_itemcollected(item: pytest.Item) -> None:
    if (
        isinstance(item, pytest.Function)
        and "drive" in item.fixturenames
        and item.callspec.params["drive"] in FURTHER_ENGINES
        and not item.nodeid.startswith("systems/history/")
    ):
        item.add_marker(pytest.mark.extra)
