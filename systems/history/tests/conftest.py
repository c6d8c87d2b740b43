"""A service of each engine that history is promised to answer alike on."""

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.engines.dynamodb.layout import layout_of
from keyhouse.limits import CHANGES_KEPT
from keyhouse.testing.conformance import Opener
from systems.history.tests.support.service import Service, Viewer, serving
from tests.support import engine_openers
from tests.support.dynamodb_tables import settings as dynamodb_settings


def dynamodb_settings_of() -> tuple[Settings, Opener]:
    """Tables in the layout of the system, and how an engine is opened on them."""
    where = dynamodb_settings(layout=layout_of("history"))

    async def open_dynamodb(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        return await DynamoDBEngine.open(where, clock=clock, changes_kept=changes_kept)

    return where, open_dynamodb


def dynamodb(folder: Path) -> Opener:
    return dynamodb_settings_of()[1]


OPENERS = {
    "sqlite": engine_openers.sqlite,
    "postgres": engine_openers.postgres,
    "dynamodb": dynamodb,
}
CHOSEN = [name for name in OPENERS if name in engine_openers.OPENERS]


ON_TWO = [
    pytest.param(name, marks=pytest.mark.extra) if name == "postgres" else name for name in CHOSEN
]
"""The default engine and that of production; PostgreSQL too in `make test-all`."""


@pytest.fixture(scope="module", params=ON_TWO)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("history")
    with serving(OPENERS[request.param](folder), folder) as served:
        yield served


@pytest.fixture
def viewer(service: Service) -> Iterator[Viewer]:
    """A client of a profile that nobody else uses."""
    with closing(service.viewer(f"profile-{secrets.token_hex(6)}")) as made:
        yield made
