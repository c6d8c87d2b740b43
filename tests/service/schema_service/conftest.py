"""The recipes, served on each engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.schema_service.support.served import ENGINES, Served, serving, start_server
from tests.support.engine_openers import ALL


@pytest.fixture(scope="module", params=ENGINES)
def served(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("recipes")
    start_server(request.param)
    with serving(ALL[request.param](folder), folder) as each:
        yield each
