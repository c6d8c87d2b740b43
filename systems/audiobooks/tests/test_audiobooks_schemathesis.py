"""Random requests of two callers by the OpenAPI document: no 5xx but a missing ffmpeg, and only
documented responses."""

from pathlib import Path

import pytest

from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_scan import album, scan
from tests.sizes import size
from tests.support.engine_openers import sqlite
from tests.support.openapi_requests import check_reached, documented_statuses

STREAMS_AND_ALIASES = "/events$|^/api/v1/audiobooks|^/(?!api/v1/)"


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    root = tmp_path / "books"
    album(root)
    with (
        LibraryService(sqlite(tmp_path), tmp_path / "data", roots=[root], docs=True) as service,
        service.admin() as admin,
        service.user(admin, "ann", "viewer") as viewer,
    ):
        scan(admin)
        keys = [
            client.post("/auth/api-keys", json={"name": "k"}).json()["data"]["key"]
            for client in (admin, viewer)
        ]
        count, statuses = documented_statuses(
            service.url.removesuffix("/api/v1"),
            keys,
            examples=size(2, 12, 300),
            without=STREAMS_AND_ALIASES,
        )
        service.check()
    assert count > 75
    check_reached(statuses, {200, 201, 204, 400, 403, 404, 409, 422})
    assert {each for each in statuses if each >= 500} <= {501}
