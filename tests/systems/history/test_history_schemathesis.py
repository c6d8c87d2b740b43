"""Random requests of two callers by the OpenAPI document: no 5xx, and only documented
responses."""

from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.soak import size
from tests.support.engine_openers import sqlite
from tests.systems.history.support.service import Service, serving, token

EXAMPLES = size(30, 1_000)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = 9
"""Of the document, without the event stream, which does not end. A new one is tested by itself, and counted here."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("history")
    with serving(sqlite(folder), folder, entries_max=20) as served:
        yield served


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(service: Service) -> None:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{service.url}/openapi.json").json())
    tokens = [
        token(service.clock, sub="profile-1", scope="history.service"),
        token(service.clock, sub="profile-2", profiles=["profile-1"]),
    ]
    count, statuses = 0, set[int]()
    for found in schema.exclude(path_regex="/watch$").get_all_operations():
        operation: Any = found  # a Result: `ok` raises what is wrong with the document
        statuses |= ask(operation.ok(), service, tokens)
        count += 1
    assert count == OPERATIONS
    assert {200, 204, 400, 403, 404, 422} <= statuses, "it did not get beyond the door"


def ask(operation: Any, service: Service, tokens: list[str]) -> set[int]:
    """Ask one operation in many ways; the statuses of its answers."""
    statuses: set[int] = set()

    @hypothesis.given(
        case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
        | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
        bearer=hypothesis.strategies.sampled_from(tokens),
    )
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def answered(case: Any, bearer: str) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {bearer}"}
        response = case.call(base_url=service.url)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    answered()
    return statuses
