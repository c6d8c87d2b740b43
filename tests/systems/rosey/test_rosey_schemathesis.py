"""Random requests by the OpenAPI document of the operator's view: no 5xx, and only documented
responses."""

import asyncio
from pathlib import Path
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
from tests.systems.rosey.support.operator_view import Office, in_office, operator

EXAMPLES = size(6, 1_000)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = 5
"""Of the document. A new one is tested by itself, and counted here."""


@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value={"number": number}, ttl=60)
        await asyncio.to_thread(ask_all, f"{office.url}/rosey", operator(office.clock))

    in_office(tmp_path, story, quota_keys=10, rate_per_second=5)


def ask_all(url: str, token: str) -> None:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{url}/openapi.json").json())
    statuses: set[int] = set()
    count = 0
    for found in schema.get_all_operations():
        operation: Any = found  # a Result: `ok` raises what is wrong with the document
        statuses |= ask(operation.ok(), url, token)
        count += 1
    assert count == OPERATIONS
    assert {200, 400, 404} <= statuses, "it did not get beyond the door"


def ask(operation: Any, url: str, token: str) -> set[int]:
    """Ask one operation in many ways; the statuses of its answers."""
    statuses: set[int] = set()

    @hypothesis.given(
        case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
        | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def answered(case: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {token}"}
        response = case.call(base_url=url)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    answered()
    return statuses
