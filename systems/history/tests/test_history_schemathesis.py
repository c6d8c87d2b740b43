"""Random requests of two callers by the OpenAPI document: no 5xx, and only documented
responses."""

from pathlib import Path

import pytest

from systems.history.tests.support.service import serving, token
from tests.sizes import size
from tests.support.engine_openers import sqlite
from tests.support.openapi_requests import check_reached, documented_statuses

OPERATIONS = 9
"""Of the document, without the event stream. A new one is tested by itself, and counted here."""


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    with serving(sqlite(tmp_path), tmp_path, entries_max=20) as service:
        tokens = [
            token(service.clock, sub="profile-1", scope="history.service"),
            token(service.clock, sub="profile-2", profiles=["profile-1"]),
        ]
        count, statuses = documented_statuses(
            service.url, tokens, examples=size(3, 30, 1_000), without="/watch$"
        )
    assert count == OPERATIONS
    check_reached(statuses, {200, 204, 400, 403, 404, 422})
