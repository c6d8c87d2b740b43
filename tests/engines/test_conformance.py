"""Every engine fulfils the whole contract."""

from pathlib import Path

import pytest

from keyhouse.testing.conformance import Conformance, Opener
from tests.support.engine_openers import OPENERS

LAYOUTS = ("jetstream-buckets",)
"""Second layouts of an engine. A usual run plays random scripts and the model on them."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.extra if name in LAYOUTS else ()) for name in OPENERS
    ]
)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return OPENERS[request.param](tmp_path)


class TestEngines(Conformance):
    """The conformance suite, once per engine."""
