"""Random requests of two customers by the OpenAPI document: no 5xx, and only documented
responses."""

from pathlib import Path

import pytest

from systems.streamkit.tests.support.service import serving, token
from tests.sizes import size
from tests.support.engine_openers import sqlite
from tests.support.openapi_requests import check_reached, documented_statuses

OPERATIONS = 11
"""Of the document. A new one is tested by itself, and counted here."""


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    with serving(sqlite(tmp_path), tmp_path, quota_keys=40) as service:
        tokens = [token(customer, service.clock) for customer in ("12345", "67890")]
        count, statuses = documented_statuses(service.url, tokens, examples=size(3, 30, 1_000))
    assert count == OPERATIONS
    check_reached(statuses, {200, 201, 400, 404, 422})
