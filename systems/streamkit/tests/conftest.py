"""A service of streamkit on SQLite and on PostgreSQL, and a client of a new customer."""

from collections.abc import Iterator

import httpx
import pytest

from systems.streamkit.tests.support.configs import new_customer
from systems.streamkit.tests.support.service import Service, serving
from tests.support import engine_openers


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("streamkit")
    with serving(engine_openers.ALL[request.param](folder), folder) as served:
        yield served


@pytest.fixture
def customer() -> str:
    return new_customer()


@pytest.fixture
def panel(service: Service, customer: str) -> Iterator[httpx.Client]:
    with service.client(customer) as client:
        yield client
