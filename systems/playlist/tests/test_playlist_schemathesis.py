"""Random requests of an admin, a blessed member, a viewer and nobody by the OpenAPI document: no
5xx, and only documented responses."""

import asyncio
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

from keyhouse import open_engine
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse_playlist.client import PlaylistClient
from keyhouse_playlist.schema import BLESSED
from keyhouse_playlist.stores import PlaylistStores
from systems.playlist.tests.support.processes import demonstration, printed_code
from systems.playlist.tests.support.service import fill, item
from tests.serve.support.serve_process import Serving, serving
from tests.sizes import size
from tests.support.openapi_requests import check_reached

EXAMPLES = size(2, 15, 500)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = 29
"""Of the API, without the event stream, which does not end. A new one is tested by itself, and
counted here."""

SETTINGS = {
    "KEYHOUSE_PLAYLIST_DELIVERY": "console",
    "KEYHOUSE_PLAYLIST_ADMINS": "Ada",
    "KEYHOUSE_PLAYLIST_QUEUE_INTERVAL_SECONDS": "0",
    "KEYHOUSE_PLAYLIST_RATE_PER_SECOND": "100000",
    "KEYHOUSE_PLAYLIST_RATE_BURST": "100000",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("playlist")
    (folder / "data").mkdir()
    fill(folder / "data", [item("v", "V")])
    with (
        serving(folder, "playlist", **SETTINGS) as found,
        demonstration(folder / "data"),
    ):
        yield found


def tokens(served: Serving) -> list[str]:
    """The sessions of an admin, a blessed member and a viewer; and none."""

    async def bless() -> None:
        buckets = with_embedded_user(served.nats, served.log_path.parent / "data", BUCKETS_USER)
        engine = await open_engine(f"{buckets}/?prefix=&sync=always")
        await PlaylistStores(engine, "default").acl.put(BLESSED, ["Bob"])
        await engine.close()

    asyncio.run(bless())
    found = []
    for name in ("Ada", "Bob", "Vic"):
        url = f"{served.http}/playlist"
        PlaylistClient.request_code(url, name)
        with PlaylistClient.sign_in(url, name, printed_code(served, name)) as client:
            found.append(client.token)
    with PlaylistClient(f"{served.http}/playlist", token=found[0]) as ada:
        ada.create("First", ["v"])
    return [*found, ""]


@pytest.mark.long
@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(served: Serving) -> None:
    url = f"{served.http}/playlist"
    schema = schemathesis.openapi.from_dict(httpx.get(f"{url}/openapi.json", timeout=60).json())
    sessions = tokens(served)
    count, statuses = 0, set[int]()
    api = schema.include(path_regex="^/api/").exclude(path_regex="/(events|logout)$")
    for found in api.get_all_operations():
        operation: Any = found  # a Result: `ok` raises what is wrong with the document
        statuses |= ask(operation.ok(), url, sessions)
        count += 1
    assert count == OPERATIONS
    check_reached(statuses, {200, 400, 401, 403, 404, 422})


def ask(operation: Any, url: str, sessions: list[str]) -> set[int]:
    """Ask one operation in many ways; the statuses of its answers."""
    statuses: set[int] = set()

    @hypothesis.given(
        case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
        | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
        session=hypothesis.strategies.sampled_from(sessions),
    )
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def answered(case: Any, session: str) -> None:
        case.cookies = {}
        case.headers = {**(case.headers or {})}
        case.headers.pop("Authorization", None)
        if session:
            case.headers["Authorization"] = f"Bearer {session}"
        response = case.call(base_url=url, timeout=60)
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)

    answered()
    return statuses
