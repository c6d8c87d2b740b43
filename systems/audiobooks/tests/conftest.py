"""A served library for each test, on SQLite.

Every test runs on RocksDB too in `make test-all`; in `make test`, those of `on_both_engines`, and
the stores of the library on every engine."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from systems.audiobooks.tests.support.service import LibraryService
from tests.support import engine_openers


@pytest.fixture(params=["sqlite", pytest.param("rocksdb", marks=pytest.mark.extra)])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LibraryService]:
    """A library with one root, `books`. Afterwards `verify` finds nothing."""
    root = tmp_path / "books"
    root.mkdir()
    opener = engine_openers.ALL[request.param](tmp_path)
    with LibraryService(opener, tmp_path / "data", roots=[root]) as served:
        yield served
        served.check()


@pytest.fixture
def admin(service: LibraryService) -> Iterator[httpx.Client]:
    with service.admin() as client:
        yield client
