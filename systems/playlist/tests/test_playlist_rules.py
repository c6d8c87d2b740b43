"""The rules of the index, of titles and of roles; limits and error codes."""

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

from keyhouse import errors as core_errors
from keyhouse.errors import (
    ConflictError,
    CounterError,
    KeyhouseError,
    LeaseError,
    LinkError,
    PreparingError,
    QuotaError,
    UniqueError,
    WatchExpiredError,
)
from keyhouse_playlist import errors
from keyhouse_playlist.limits import PLAYLISTS_MAX
from keyhouse_playlist.schema import (
    SESSION,
    Session,
)
from systems.playlist.tests.support.service import (
    PlaylistService,
    document,
    playlist_service,
    run,
    write,
)

DOCUMENT = Path(__file__).parents[1] / "README.md"
HTTP = DOCUMENT.parents[2] / "docs" / "http.md"
NOT_HERE = {
    ConflictError,
    CounterError,
    LeaseError,
    LinkError,
    PreparingError,
    QuotaError,
    UniqueError,
    WatchExpiredError,
}
"""Errors of the store that this service translates, or has no use for."""

INDEX = "ns/default/playlists/index"


def test_a_newer_index_is_not_set_back(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        store = service.stores.playlists
        newer = {"playlists": {}, "schema_version": 2}
        await write(store, INDEX, newer)
        await service.prepare()
        bob = await service.member("Bob")
        response = await bob("POST", "/playlists", {"name": "Ours"})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "newer_version")
        row = await store.row(INDEX)
        assert row is not None and json.loads(row.value) == newer

    run(tmp_path, work)


def test_unknown_members_of_the_index_are_kept(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        store = service.stores.playlists
        entry = {"name": "Theirs", "created_by": "X", "created_at": "", "updated_at": "", "n": 3}
        await write(store, "ns/default/playlists/p1", document("p1", "Theirs", created_by="Bob"))
        given = {"playlists": {"p1": entry}, "schema_version": 1, "made_by": "another program"}
        await write(store, INDEX, given)
        bob = await service.member("Bob")
        made = (await bob.post("/playlists", {"name": "Ours"}, 201))["playlist_id"]
        row = await store.row(INDEX)
        assert row is not None
        index = json.loads(row.value)
        assert index["made_by"] == "another program"
        assert index["playlists"]["p1"] == entry and made in index["playlists"]

    run(tmp_path, work)


@pytest.mark.parametrize("title", ["a\nb", "a\x00", "\x1b[2J", "x\x85x"])
def test_a_title_with_control_characters_is_rejected(tmp_path: Path, title: str) -> None:
    """Such a title was stored and shown as it is, although a name was not."""

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        items = [{"video_id": "unknown", "title": "Fine \u05d0\u202b"}]
        made = await bob.post("/playlists", {"name": "Fine", "items": items}, 201)
        id = made["playlist_id"]
        bad = [{"video_id": "unknown", "title": title}]
        for method, path in (
            ("POST", "/playlists"),
            ("PUT", f"/playlists/{id}"),
            ("POST", "/marathon/save"),
        ):
            response = await bob(method, path, {"name": "Other", "items": bad})
            error = response.json()["error"]
            assert response.status_code == 422, response.text
            assert "no control characters" in error["message"]
        assert (await bob.get(f"/playlists/{id}"))["items"] == items
        assert len((await bob.get("/playlists"))["playlists"]) == 1

    run(tmp_path, work)


@pytest.mark.parametrize("category", ["a\nb", "\x1b[2J", "a\u202eb", "a\u2028b"])
def test_a_category_with_control_characters_is_rejected(tmp_path: Path, category: str) -> None:
    """Such a category was stored and shown as it is, although a name was not."""

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        items = [{"video_id": "unknown", "categories": ["Fine", category]}]
        response = await bob("POST", "/playlists", {"name": "Other", "items": items})
        assert response.status_code == 422, response.text
        assert "A category has no line breaks" in response.json()["error"]["message"]
        assert (await bob.get("/playlists"))["playlists"] == []

    run(tmp_path, work)


def test_a_title_that_another_program_wrote_is_shown_without_control_characters(
    tmp_path: Path,
) -> None:
    async def work(service: PlaylistService) -> None:
        theirs = document("p1", "Theirs", created_by="Bob")
        theirs["items"] = [{"video_id": "unknown", "title": "a\nb", "categories": ["c\nd"]}]
        await write(service.stores.playlists, "ns/default/playlists/p1", theirs)
        bob = await service.member("Bob")
        shown = (await bob.get("/playlists/p1"))["items"]
        assert shown == [{"video_id": "unknown", "title": "a b", "categories": ["c d"]}]
        assert (await bob("PUT", "/playlists/p1", {"items": shown})).status_code == 200
        await bob.post("/playlists/p1/fork", {}, 201)

    run(tmp_path, work)


def test_the_role_is_that_of_the_newest_spelling_among_many_roles(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        acl = service.stores.acl
        for number in range(1_200):  # more than a page of keys
            value = {"role": "admin", "updated_at": "2026-01-01T00:00:00Z"}
            await write(acl, f"ns/default/roles/user{number}", value)
        for name, role, at in (
            ("VIC", "admin", "2025-01-01T00:00:00Z"),
            ("vic", "blessed", "2026-01-01T00:00:00+00:00"),
            ("Vic", "viewer", "not a time"),
        ):
            await write(acl, f"ns/default/roles/{name}", {"role": role, "updated_at": at})
        vic = await service.member("vIc")
        assert (await vic.get("/auth/session"))["role"] == "blessed"

    run(tmp_path, work)


def test_the_2001st_playlist_is_507(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        store = service.stores.playlists
        entry = {"name": "x", "created_by": "Bob", "created_at": "", "updated_at": ""}
        listed = {f"p{number}": entry for number in range(PLAYLISTS_MAX)}
        await write(store, INDEX, {"playlists": listed, "schema_version": 1})
        bob = await service.member("Bob")
        response = await bob("POST", "/playlists", {"name": "One more"})
        assert (response.status_code, response.json()["error"]["code"]) == (507, "playlists_full")
        assert "2,000" in response.json()["error"]["message"]

    run(tmp_path, work)


def test_a_session_of_another_program_that_has_expired_is_absent(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        from keyhouse.auth import new_token

        token = new_token()
        session = Session(
            username="Ada",
            role="admin",
            created_at="2020-01-01T00:00:00Z",
            expires_at="2020-01-02T00:00:00+00:00",
            ip="192.0.2.1",
        )
        store = service.stores.auth
        await write(store, f"ns/default/session/{token.id}", msgspec.to_builtins(session))
        visitor = service.visitor()
        visitor.http.cookies.set("kryten_playlist_session", token.token)
        assert (await visitor("GET", "/auth/session")).status_code == 401
        assert await store.get(SESSION, session_id=token.id) is None

    run(tmp_path, work)


def test_rows_of_other_programs_never_break_a_request(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        acl, store = service.stores.acl, service.stores.playlists
        bob = await service.member("Bob")
        await write(acl, "ns/default/admins", {"not": "a list"})
        await write(acl, "ns/default/roles/bob", b"junk")
        await write(store, "ns/default/playlists/junk", b"junk")
        await write(store, "ns/default/playlists/odd", [1, 2])
        assert (await bob.get("/auth/session"))["role"] == "blessed"
        assert (await bob.get("/playlists"))["total"] == 0
        for id in ("junk", "odd", "index", "a b/c"):
            assert (await bob("GET", f"/playlists/{id}")).status_code == 404

    run(tmp_path, work)


def test_likes_are_exact_under_64_clients_of_two_services(tmp_path: Path) -> None:
    async def main() -> None:
        from keyhouse_playlist.channel.likes import Likes
        from keyhouse_playlist.schema import ITEM_LIKES

        async with playlist_service(tmp_path) as one:
            engine, clock = one.engine, one.clock
            async with playlist_service(tmp_path, engine=engine, clock=clock) as other:
                likes_of = [Likes(each.stores, None, None) for each in (one, other)]  # type: ignore[arg-type]
                answers = await asyncio.gather(
                    *(likes_of[at % 2].like("v", f"user{at % 64}") for at in range(256))
                )
                likes = await one.stores.likes.get(ITEM_LIKES, video_id="v")
        assert sum(each.status == "ok" for each in answers) == 64
        assert likes is not None and likes.like_count == 64

    asyncio.run(main())


def test_every_error_code_is_documented_with_its_statuses(tmp_path: Path) -> None:
    documented = {
        code: set(map(int, re.findall(r"\d+", statuses)))
        for codes, statuses in re.findall(
            r"^\| (`[\w`, ]+`) \| ([\d, ]+) \|", DOCUMENT.read_text(), re.MULTILINE
        )
        for code in re.findall(r"\w+", codes)
    }
    raised = {
        each
        for module in (errors, core_errors)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, KeyhouseError)
    } - NOT_HERE
    missing = {
        (each.code.lower(), each.status)
        for each in raised
        if each.status not in documented.get(each.code.lower(), ())
    }
    assert not missing
    http = re.findall(r"^\| \d+ \| (`[A-Z_`, ]+`) \|", HTTP.read_text(), re.MULTILINE)
    layer = {code.lower() for codes in http for code in re.findall(r"[A-Z_]+", codes)}
    assert layer - documented.keys() == {"quota_exceeded", "range_not_satisfiable"}

    async def work(service: PlaylistService) -> None:
        for route in service.spec.routes:
            for problem in route.problems:
                assert problem.status in documented[problem.code.lower()], (route.path, problem)

    run(tmp_path, work)
