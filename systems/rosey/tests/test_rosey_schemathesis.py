"""Random requests by the OpenAPI document of the Studio over plugin storage: no 5xx, and only
documented responses."""

import asyncio
from pathlib import Path

import pytest

from systems.rosey.tests.support.studio_over_rosey import Office, in_office, operator
from tests.sizes import size
from tests.support.openapi_requests import check_reached, documented_statuses


@pytest.mark.soak
def test_every_response_is_in_the_openapi_document(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for number in range(3):
            await office.ask("trivia.set", key=f"k{number}", value={"number": number}, ttl=60)
        await asyncio.to_thread(send, f"{office.url}/studio", operator(office.clock))

    in_office(tmp_path, story, quota_keys=10, rate_per_second=5)


def send(url: str, token: str) -> None:
    count, statuses = documented_statuses(url, [token], examples=size(2, 6, 1_000))
    assert count > 10
    check_reached(statuses, {200, 400, 404})
