"""Tests of an engine that is not chosen (see `openers`) are not collected: they would start its server. Whatever is skipped
here for a reason that is not listed has failed: an engine that could not be put to a test has not passed it.
"""

from collections.abc import Generator
from typing import Final

import pytest

from tests.engines.openers import ALL, OPENERS

_OWN = {"postgres": ["test_postgres*.py", "test_sql_layouts.py"]}

collect_ignore_glob = [
    pattern
    for name in ALL
    if name not in OPENERS
    for pattern in _OWN.get(name, [f"test_{name}*.py"])
]

TOLD: Final = (
    "the memory engine does not declare durable",
    "the memory engine does not declare shared",
    "the rocksdb engine does not declare shared",
    "the jetstream engine does not declare snapshots",
    "the dynamodb engine does not declare snapshots",
    "this machine lets no process mount a disk of its own (unshare)",
)


def is_told(reason: str) -> bool:
    """Whether a test may be skipped for it."""
    return reason.endswith(TOLD)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        report.skipped
        and not hasattr(report, "wasxfail")
        and not is_told(str(report.longrepr).rstrip("')"))
    ):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped for a reason that tests/engines/conftest.py does not list: {report.longrepr}"
        )
    return report
