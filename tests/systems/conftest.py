"""Each system's store is driven on every engine."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.systems.support.store_driver")

from tests.support.engine_openers import OPENERS  # noqa: E402  # after it is registered, or its asserts say nothing
from tests.systems.support.store_driver import Drive  # noqa: E402


@pytest.fixture(params=OPENERS)
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    return Drive(OPENERS[request.param](tmp_path))
