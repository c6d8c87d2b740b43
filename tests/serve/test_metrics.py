"""A metered engine passes the conformance suite."""

from pathlib import Path

import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.limits import CHANGES_KEPT
from keyhouse.service.served_engine import ServedEngine
from keyhouse.testing.conformance import Conformance, Opener
from tests.support.engine_openers import ALL


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    inner = ALL["sqlite"](tmp_path)

    async def opened(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return ServedEngine(await inner(clock, changes_kept=changes_kept))

    return opened


class TestMetered(Conformance):
    """The suite on SQLite, metered."""
