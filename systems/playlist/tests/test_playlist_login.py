"""Signing in on the page, as plain HTML over HTTP."""

from pathlib import Path

import pytest

from systems.playlist.tests.support.pages import Browser, member, run
from systems.playlist.tests.support.service import PlaylistService


def test_a_member_signs_in_by_name_and_code_and_out_again(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = Browser(service)
        await bob.get("/playlist/playlists?mine=true")
        assert bob.path == "/playlist/login"
        assert 'value="/playlist/playlists?mine=true"' in bob.source
        await bob.post("/playlist/login", username=" Bob ", next="/playlist/playlists?mine=true")
        assert bob.path == "/playlist/login/code" and "A code was sent to Bob" in bob.text.replace(
            "  ", " "
        )
        assert 'autocomplete="one-time-code"' in bob.source
        code = service.codes["Bob"].lower()
        await bob.post(
            "/playlist/login/code",
            username="Bob",
            code=f"{code[:4]} {code[4:]}",
            next="/playlist/playlists?mine=true",
        )
        assert bob.path == "/playlist/playlists" and "Sign out" in bob.text
        await bob.post("/playlist/logout")
        assert bob.path == "/playlist/login"
        await bob.get("/playlist/")
        assert bob.path == "/playlist/login"

    run(tmp_path, work)


def test_wrong_codes_show_what_is_left_and_then_lead_to_a_new_one(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = Browser(service)
        await bob.post("/playlist/login", username="Bob")
        wrong = {"username": "Bob", "code": "00000000"}
        assert "You have 2 attempts left" in await bob.post("/playlist/login/code", **wrong)
        assert 'aria-invalid="true"' in bob.source
        assert "You have 1 attempt left" in await bob.post("/playlist/login/code", **wrong)
        page = await bob.post("/playlist/login/code", **wrong)
        assert "Request a new one." in page and "Send another code" in page
        assert "Code" not in bob.source.split("<h1>")[1].split("<button")[0]
        for _ in range(4):
            await bob.post("/playlist/login", username="Bob")
        assert "Try again in" in await bob.post("/playlist/login", username="Bob")
        assert bob.status == 429 and 'role="alert"' in bob.source

    run(tmp_path, work)


def test_names_that_are_invalid_and_codes_that_expired_are_explained(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = Browser(service)
        assert "Enter your name" in await bob.post("/playlist/login", username="  ")
        assert "Enter your name" in await bob.post("/playlist/login", username="x" * 65)
        expired = await bob.post("/playlist/login/code", username="Bob", code="AAAAAAAA")
        assert "No code is waiting" in expired and "Block this address" in expired
        blocked = await bob.post("/playlist/login/block", hours="2")
        assert "This address is blocked" in blocked
        assert "blocked" in await bob.post("/playlist/login", username="Bob")
        assert bob.status == 403

    run(tmp_path, work)


@pytest.mark.parametrize("next", ["https://evil.example/", "//evil.example", "/studio/", "/\\x"])
def test_the_login_leads_to_pages_of_this_service_only(tmp_path: Path, next: str) -> None:
    async def work(service: PlaylistService) -> None:
        bob = Browser(service)
        await bob.post("/playlist/login", username="Bob", next=next)
        code = service.codes["Bob"]
        await bob.post("/playlist/login/code", username="Bob", code=code, next=next)
        assert bob.path == "/playlist/"

    run(tmp_path, work)


def test_a_form_of_another_site_changes_nothing(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        foreign = {"Sec-Fetch-Site": "cross-site"}
        for path, form in (
            ("/playlist/items", {"step": "add a1"}),
            ("/playlist/playlists", {"name": "X"}),
            ("/playlist/logout", {}),
            ("/playlist/like", {}),
        ):
            await bob.post(path, foreign, **form)
            assert bob.status == 403, path
        assert "There are no playlists yet" in await bob.get("/playlist/playlists")

    run(tmp_path, work)


def test_a_form_of_another_site_does_not_sign_out(tmp_path: Path) -> None:
    """Browsers do not send the cookie with it, but would take a deletion from the response."""

    async def work(service: PlaylistService) -> None:
        foreign = {"Sec-Fetch-Site": "cross-site"}
        for path in ("/playlist/logout", "/playlist/api/v1/auth/logout"):
            answer = await Browser(service).http.post(path, headers=foreign, follow_redirects=False)
            assert answer.status_code in (200, 303) and "set-cookie" not in answer.headers, path

    run(tmp_path, work)
