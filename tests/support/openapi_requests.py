"""Random requests to every operation of an OpenAPI document, whose responses must be in it."""

from collections.abc import Sequence
from typing import Any

import httpx
import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.sizes import SOAK

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def documented_statuses(
    url: str,
    tokens: Sequence[str],
    *,
    examples: int,
    without: str = "^$",
    document: str = "/openapi.json",
) -> tuple[int, set[int]]:
    """Send `examples` requests to each operation, with one of the tokens, and check the responses.

    Return the number of operations and all statuses. `without` is a pattern of paths that are left
    out, such as streams, which do not end.
    """
    schema = schemathesis.openapi.from_dict(httpx.get(url + document).json())
    statuses = set[int]()
    count = 0
    for found in schema.exclude(path_regex=without).get_all_operations():
        operation: Any = found  # a Result: `ok` raises what is wrong with the document
        _send(operation.ok(), url, tokens, examples, statuses)
        count += 1
    return count, statuses


def check_reached(statuses: set[int], expected: set[int]) -> None:
    """Check that the requests got beyond the caller's check; in long runs, all `expected` statuses.

    A few random requests may all be valid, or all unknown records.
    """
    assert expected & {200, 201} & statuses, "no request was accepted"
    if SOAK:
        assert expected <= statuses, f"never seen: {sorted(expected - statuses)}"


def _send(
    operation: Any, url: str, tokens: Sequence[str], examples: int, statuses: set[int]
) -> None:
    @hypothesis.given(
        case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
        | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
        bearer=hypothesis.strategies.sampled_from(tokens),
    )
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def answered(case: Any, bearer: str) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {bearer}"}
        response = case.call(base_url=url, timeout=60)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    answered()
