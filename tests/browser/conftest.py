"""The library of the page tests, one for each test process."""

from collections.abc import Iterator

import pytest

from tests.support.audiobook_pages import ServedLibrary, served_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLibrary]:
    """Its files have 60 seconds and two chapters each, so that nothing ends while a test that
    waits for its turn lets it play. Tests share it: each has its own listener."""
    with served_library(tmp_path_factory.mktemp("library"), seconds=60) as served:
        yield served
