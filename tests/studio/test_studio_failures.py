"""Failures on our side: logged with the request, and shown without what they are about."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from keyhouse import open_engine
from keyhouse.errors import UnavailableError
from keyhouse.testing.faults import Fault, FaultyEngine
from tests.studio.support.library import fill, library, token

MAIN = "/studio/library/main"


class LostFileError(UnavailableError):
    """An engine that names its file."""

    def __init__(self, sentence: str = "", /, **fields: object) -> None:
        super().__init__("The engine does not answer.", path="/srv/private/books.db")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_whose_engine_fails_is_logged_and_shows_no_fields(
    tmp_path: Path, method: str
) -> None:
    async def main() -> None:
        engine = FaultyEngine(await open_engine("memory:"))
        async with library(tmp_path, engine) as served, served.signed_in(unlocked=True) as client:
            await fill(served.store)
            engine.faults = [Fault(None, "read", LostFileError)]
            form = {"revision": "1", "action": "preview", "text": "{}"}
            with capture_logs() as logs:
                answer = await client.request(
                    method, f"{MAIN}/edit?k=book:b000", data=form if method == "POST" else None
                )
            assert answer.status_code == 503
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["retry-after"] == "1"
            assert "The engine does not answer." in answer.text
            assert "/srv/private" not in answer.text
            [line] = [each for each in logs if each["event"] == "request failed"]
            assert line["id"] == answer.headers["x-request-id"]
            assert "/srv/private/books.db" in line["error"]
        await engine.close()

    asyncio.run(main())


def test_a_sign_in_whose_engine_fails_is_logged_and_is_a_page(tmp_path: Path) -> None:
    async def main() -> None:
        own = FaultyEngine(await open_engine("memory:"))
        async with library(tmp_path, own=own) as served, served.client() as client:
            own.faults = [Fault(None, "commit", LostFileError)]
            with capture_logs() as logs:
                answer = await client.post("/studio/login", data={"token": token()})
            assert answer.status_code == 503
            assert "The engine does not answer." in answer.text
            assert "/srv/private" not in answer.text
            assert [each for each in logs if each["event"] == "request failed"]
            own.faults = []
            invalid = await client.post("/studio/login", data={"password": "x"})
            assert invalid.status_code == 400
            assert invalid.headers["content-type"].startswith("text/html")

    asyncio.run(main())
