"""Random requests of two tenants by the generated OpenAPI document: no 5xx, and only documented
responses."""

from pathlib import Path

import pytest

from tests.service.schema_service.support.served import serving
from tests.sizes import size
from tests.support.engine_openers import sqlite
from tests.support.openapi_requests import check_reached, documented_statuses


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    with serving(sqlite(tmp_path), tmp_path, quota_keys=400) as served:
        tokens = [served.token(tenant) for tenant in ("ann", "bob")]
        _, statuses = documented_statuses(
            served.url, tokens, examples=size(3, 15, 1_000), without="/watch$"
        )
    check_reached(statuses, {200, 201, 204, 400, 404, 422})
