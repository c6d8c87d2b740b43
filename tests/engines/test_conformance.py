"""Every engine fulfils the whole contract."""

from pathlib import Path

import pytest

from keyhouse.testing.conformance import Conformance, Opener
from tests.support.engine_openers import OPENERS


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return OPENERS[request.param](tmp_path)


class TestEngines(Conformance):
    """The conformance suite, once per engine."""
