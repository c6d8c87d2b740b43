"""Do not collect the folders of engines that the run leaves out: their tests would start a server.

A skip for a reason that is not listed here counts as a failure: an engine that could not be tested
has not passed.
"""

from collections.abc import Generator, Sequence
from typing import Final

import pytest

from tests.support.engine_openers import ALL, OPENERS

_FOLDERS = {"postgres": ["postgres", "sql"]}

collect_ignore = [
    folder for name in ALL if name not in OPENERS for folder in _FOLDERS.get(name, [name])
]

KNOWN_SKIPS: Final = (
    "the memory engine does not declare durable",
    "the memory engine does not declare shared",
    "the rocksdb engine does not declare shared",
    "the jetstream engine does not declare snapshots",
    "the dynamodb engine does not declare snapshots",
    "this machine does not allow a private mount (unshare)",
    "pgbouncer is not installed: no package index of Python has it",
)


DESELECTED: Final = pytest.StashKey[list[pytest.Item]]()
"""Tests that this run leaves out by a mark."""


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        items[0].config.stash.setdefault(DESELECTED, []).extend(items)


@pytest.fixture
def brief_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report at once what the JetStream engine would retry for seconds."""
    monkeypatch.setattr("keyhouse.engines.jetstream.retry.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("keyhouse.engines.jetstream.connection.CONNECT_SECONDS", 1.0)


def is_known_skip(reason: str) -> bool:
    """Return whether a test may be skipped for this reason."""
    return reason.endswith(KNOWN_SKIPS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        report.skipped
        and not hasattr(report, "wasxfail")
        and not is_known_skip(str(report.longrepr).rstrip("')"))
    ):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped for a reason that tests/engines/conftest.py does not list: {report.longrepr}"
        )
    return report
