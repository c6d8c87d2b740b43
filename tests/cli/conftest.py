"""A folder with a store, for the data commands."""

from pathlib import Path

import pytest

from tests.cli.support.board import BOARD, GOAL, STORE
from tests.support.program import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a board of one clip."""
    run("put", BOARD, "clip:goal", GOAL, *STORE, cwd=tmp_path)
    return tmp_path
