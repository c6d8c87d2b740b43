"""Errors on pages: failures of the service are logged and say nothing of its inside; those of a
form are shown with what its user can correct."""

from contextlib import closing
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import UnavailableError
from keyhouse.limits import CHANGES_KEPT
from keyhouse.testing.faults import FaultyEngine, meanwhile
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_books import made
from systems.audiobooks.tests.test_audiobooks_editing import fields
from systems.audiobooks.tests.test_audiobooks_pages import browser


async def locked() -> NoReturn:
    raise UnavailableError("Another process holds the database.", path="/secret/library.db")


def test_a_failure_of_the_engine_is_logged_and_shows_no_fields(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engines: list[FaultyEngine] = []

    async def opener(clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Engine:
        engines.append(FaultyEngine(MemoryEngine(clock=clock)))
        return engines[0]

    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        book = made(admin, "books", title="A")["id"]
        with closing(browser(service, "admin")) as pages:
            form = fields(pages, f"books/{book}/edit") | {"title": "B"}
            fault = meanwhile(None, locked, call="commit")
            capfd.readouterr()
            for path, sent in (
                (f"books/{book}/edit", form),
                (f"books/{book}/status", {"status": "finished"}),
                ("playlists", {"name": "P"}),
                ("login", {"username": "admin", "password": PASSWORD}),
            ):
                engines[0].faults.append(fault)
                reply = pages.post(path, data=sent)
                engines[0].faults.clear()
                assert reply.status_code == 503, path
                assert "Another process holds the database." in reply.text
                assert "secret" not in reply.text
            logged = "".join(capfd.readouterr())
            assert "request failed" in logged and "/secret/library.db" in logged
        assert admin.get(f"/books/{book}").json()["data"]["title"] == "A"


def test_an_error_page_names_no_key_of_the_store(
    service: LibraryService, admin: httpx.Client
) -> None:
    made(admin, "authors", name="Ursula")
    other = made(admin, "authors", name="Stanislaw")["id"]
    with closing(browser(service, "admin")) as pages:
        reply = pages.post(f"authors/{other}/name", data={"name": "Ursula"})
        assert reply.status_code == 409 and "This did not work" in reply.text
        assert "idx:" not in reply.text


@pytest.mark.parametrize("member", ["author", "series"])
def test_the_form_of_a_book_rejects_names_that_the_api_rejects(
    service: LibraryService, admin: httpx.Client, member: str
) -> None:
    book = made(admin, "books", title="A")["id"]
    path = f"books/{book}/edit"
    with closing(browser(service, "admin")) as pages:
        form = fields(pages, path)
        reply = pages.post(path, data=form | {member: "C" * 5_001})
        assert reply.status_code == 422 and f"$.{member}" in reply.text
        assert admin.get("/authors").json()["data"]["count"] == 0
        assert admin.get("/series").json()["data"]["count"] == 0
        assert pages.post(path, data=form | {member: "C" * 5_000}).status_code == 303
