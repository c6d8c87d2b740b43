"""Each system's store is driven on every engine that runs in this process."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.systems.driving")

from tests.systems.driving import Drive  # noqa: E402  # after it is registered, or its asserts say nothing


@pytest.fixture(params=["memory", "sqlite"])
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    return Drive("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/rows.db")
