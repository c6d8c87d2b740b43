"""Random requests of two tenants by the generated OpenAPI document: no 5xx, and only documented
responses."""

from collections.abc import Iterator
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

from tests.service.schema_service.support.served import Served, serving
from tests.soak import size
from tests.support.engine_openers import sqlite

EXAMPLES = size(15, 1_000)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("recipes")
    with serving(sqlite(folder), folder, quota_keys=400) as each:
        yield each


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(served: Served) -> None:
    document = httpx.get(f"{served.url}/openapi.json").json()
    del document["paths"]["/watch"]  # it does not end: its errors are tested by name
    schema = schemathesis.openapi.from_dict(document)
    tokens = [served.token(tenant) for tenant in ("ann", "bob")]
    statuses = set[int]()
    for found in schema.get_all_operations():
        operation: Any = found  # a Result: `ok` raises what is wrong with the document
        statuses |= ask(operation.ok(), served, tokens)
    assert {200, 201, 204, 400, 404, 422} <= statuses, "it did not get beyond the door"


def ask(operation: Any, served: Served, tokens: list[str]) -> set[int]:
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
        response = case.call(base_url=served.url)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    answered()
    return statuses
