"""Names of users and playlists: unique beside other programs, trimmed, visible, and one person
whatever the spelling. Bodies say what they do not know."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from keyhouse.engine import Batch, Put
from keyhouse.keys import normal
from keyhouse.schema import SECONDS
from keyhouse.store import Store
from keyhouse_playlist.accounts.roles import Roles
from keyhouse_playlist.names import comparable_name
from keyhouse_playlist.schema import ADMINS, BLESSED, OTP_REQUEST, ROLE, RoleOf
from systems.playlist.tests.support.service import PlaylistService, document, run


async def put(store: Store, *documents: dict[str, object]) -> None:
    """Write documents as another program does: without index and names."""
    puts = tuple(
        Put(f"ns/default/playlists/{each['playlist_id']}", json.dumps(each).encode())
        for each in documents
    )
    await store.engine.commit(store.space, Batch(puts=puts))


# Unique names


@pytest.mark.parametrize("version", [1, 2])
def test_a_name_is_unique_beside_documents_of_other_programs(tmp_path: Path, version: int) -> None:
    """`POST {"name": "foreign night"}` was 201 beside the "Foreign Night" of another program."""

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        made = (await bob.post("/playlists", {"name": "Ours"}, 201))["playlist_id"]
        await put(
            service.stores.playlists, document("theirs", "Foreign Night", schema_version=version)
        )
        for name in ("Foreign Night", " foreign  NIGHT\t", "Ｆoreign Night"):
            sources = [{"playlist_id": made}]
            mixed = {"sources": sources, "method": "concatenate"}
            for method, path, body in (
                ("POST", "/playlists", {"name": name}),
                ("PUT", f"/playlists/{made}", {"name": name}),
                ("POST", f"/playlists/{made}/fork", {"name": name}),
                ("POST", "/marathons", {"name": name, **mixed}),
                ("POST", "/marathon/save", {"name": name}),
            ):
                response = await bob(method, path, body)
                assert response.status_code == 409, (path, name)
                assert response.json()["error"]["code"] == "name_taken"
        await put(service.stores.playlists, document("copy", "Ours (copy)", schema_version=version))
        forked = await bob.post(f"/playlists/{made}/fork", None, 201)
        assert forked["name"] == "Ours (copy 2)"
        same = await bob("PUT", f"/playlists/{made}", {"name": "OURS"})
        assert same.status_code == 200

    run(tmp_path, work)


def test_no_name_is_taken_twice_while_names_are_being_built_after_a_start(tmp_path: Path) -> None:
    """With 1,500 documents of another program, creating was 201 for half a minute."""

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        await put(
            service.stores.playlists,
            *(document(f"p{number}", f"Night {number}") for number in range(300)),
        )
        building = asyncio.ensure_future(service.prepare())
        statuses = set()
        for number in range(299, 0, -30):
            response = await bob("POST", "/playlists", {"name": f"night {number}"})
            statuses.add(response.status_code)
        await building
        assert statuses == {409}

    run(tmp_path, work)


def test_of_parallel_creations_of_one_name_one_succeeds(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        bodies = [{"name": name} for name in ("One", " one", "ONE\n", "Ｏne") for _ in range(5)]
        answers = await asyncio.gather(*(bob("POST", "/playlists", body) for body in bodies))
        assert sorted(each.status_code for each in answers) == [201] + [409] * 19

    run(tmp_path, work)


# Trimmed

ENDS = ["\t", "\n", "\r\n", " ", "\u00a0", "\u3000", "\u2028", "\x85", "\x1f"]


def test_white_space_around_any_name_is_trimmed(tmp_path: Path) -> None:
    """A name that was copied with its line's end was 422: the check came before the trimming."""

    async def work(service: PlaylistService) -> None:
        for number, end in enumerate(ENDS):
            visitor = service.visitor(f"192.0.2.{number}")
            await visitor.post("/auth/otp/request", {"username": f"{end}Bob{end}"})
            answer = await visitor.post(
                "/auth/otp/verify", {"username": f"Bob{end}", "otp": service.codes["Bob"]}
            )
            assert answer["status"] == "ok"
            given = {"video_id": "v", "title": f"{end}T{end}", "categories": [f"{end}C{end}", end]}
            body = {"name": f"{end}Name {number}{end}", "items": [given]}
            made = await visitor.post("/playlists", body, 201)
            assert made["name"] == f"Name {number}"
            stored = await visitor.get(f"/playlists/{made['playlist_id']}")
            assert stored["items"] == [{"video_id": "v", "title": "T", "categories": ["C"]}]
            renamed = {"name": f"{end}Again {number}{end}"}
            answer = await visitor("PUT", f"/playlists/{made['playlist_id']}", renamed)
            assert answer.json()["name"] == f"Again {number}"
            service.clock.advance(seconds=1_000)  # type: ignore[attr-defined]

    run(tmp_path, work)


# Visible

INVISIBLE = [
    "\u200b",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u3164",
    "\u2800",
    "\u034f",
    "\u0301",
    "\u115f",
]


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda each: f"U+{ord(each):04X}")
def test_a_name_needs_a_visible_character(tmp_path: Path, character: str) -> None:
    """Names of zero-width characters alone could request codes."""

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        made = (await bob.post("/playlists", {"name": "Seen"}, 201))["playlist_id"]
        name = f" {character}{character} "
        for method, path, body in (
            ("POST", "/auth/otp/request", {"username": name}),
            ("POST", "/auth/otp/verify", {"username": name, "otp": "AAAAAAAA"}),
            ("POST", "/playlists", {"name": name}),
            ("PUT", f"/playlists/{made}", {"name": name}),
            ("POST", f"/playlists/{made}/fork", {"name": name}),
        ):
            response = await bob(method, path, body)
            assert response.status_code == 422, (path, response.text)
            assert "visible" in response.text
        assert await service.stores.auth.count(OTP_REQUEST) == 0

    run(tmp_path, work)


# One person

LOOK_ALIKE = {
    "Ada": ["ada", "ADA", "Ａda", " Ada ", "\u1d2cda", "\U0001d400da"],
    "office": ["OFFICE", "o\ufb03ce", "ｏｆｆｉｃｅ"],
    "Zoë": ["Zoe\u0308", "ZOË"],
    "Straße": ["strasse", "STRASSE"],
    "Kim": ["\u212aim", "kim"],
}


@pytest.mark.parametrize("name", LOOK_ALIKE)
def test_look_alike_forms_of_a_name_are_one_person_everywhere(tmp_path: Path, name: str) -> None:
    """A name of full width had the code row of the plain one, but another role: it replaced the
    code of an admin, unseen. Now it is the same person, and the code goes to the plain name."""

    async def work(service: PlaylistService) -> None:
        acl = service.stores.acl
        for form in [name, *LOOK_ALIKE[name]]:
            for stored in [name, *LOOK_ALIKE[name]]:
                assert comparable_name(form) == comparable_name(stored) == normal(form)
                assert await Roles(service.stores, [stored]).of(form) == "admin"
                await acl.put(ADMINS, [stored])
                assert await Roles(service.stores).of(form) == "admin"
                await acl.delete(ADMINS)
                await acl.put(BLESSED, [stored])
                assert await Roles(service.stores).of(form) == "blessed"
                assert await Roles(service.stores).add(BLESSED, form) == [stored]
                assert await Roles(service.stores).remove(BLESSED, form) == []
                role = RoleOf(role="blessed", updated_at=SECONDS.format(service.clock.now()))
                await acl.put(ROLE, role, username=stored)
                assert await Roles(service.stores).of(form) == "blessed"
                await acl.delete(ROLE, username=stored)
            service.codes.clear()
            visitor = service.visitor()
            await visitor.post("/auth/otp/request", {"username": form})
            [(sent_to, code)] = service.codes.items()
            assert sent_to.isascii() or name in ("Zoë", "Straße")
            assert comparable_name(sent_to) == comparable_name(name)
            answer = await visitor.post("/auth/otp/verify", {"username": name, "otp": code})
            assert answer["status"] == "ok"
            assert (await visitor.get("/auth/session"))["username"] == name
            service.clock.advance(seconds=1_000)  # type: ignore[attr-defined]

    run(tmp_path, work)


# Strict bodies


def test_every_body_names_the_member_that_it_does_not_know(tmp_path: Path) -> None:
    """`"visibility": "private"` was accepted and ignored: a viewer listed the playlist."""

    async def work(service: PlaylistService) -> None:
        ada = await service.member("Ada")
        made = (await ada.post("/playlists", {"name": "Ours"}, 201))["playlist_id"]
        before = await ada.get("/playlists")
        checked = 0
        for route in service.spec.routes:
            body = route.body_type or route.handler.__annotations__.get("body")
            if body is None or not route.path.startswith("/api/"):
                continue
            assert body.__struct_config__.forbid_unknown_fields, body
            for part in msgspec.inspect.type_info(body).fields:  # type: ignore[attr-defined]
                inner = getattr(getattr(part.type, "item_type", None), "cls", None)
                assert inner is None or inner.__struct_config__.forbid_unknown_fields, inner
            example = route.example if isinstance(route.example, dict) else {}
            path = route.path.removeprefix("/api/v1").replace("{id}", made)
            sent = {**example, "visibility": "private"}
            response = await ada(route.method, path, sent)
            assert response.status_code == 422, (route.path, response.text)
            assert "visibility" in response.text
            checked += 1
        assert checked >= 10
        bad = {"name": "x", "items": [{"video_id": "v", "nonsense": 1}]}
        response = await ada("POST", "/playlists", bad)
        assert response.status_code == 422 and "nonsense" in response.text
        assert await ada.get("/playlists") == before

    run(tmp_path, work)


def test_items_of_a_response_can_be_sent_back(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        body = {"name": "Ours", "items": [{"video_id": "v", "title": "T"}]}
        made = (await bob.post("/playlists", body, 201))["playlist_id"]
        stored = await bob.get(f"/playlists/{made}")
        shown = [{**each, "thumbnail_url": None} for each in stored["items"]]
        response = await bob("PUT", f"/playlists/{made}", {"items": shown})
        assert response.status_code == 200
        assert response.json()["items"] == stored["items"]

    run(tmp_path, work)


def test_the_body_of_a_fork_is_described_as_optional_json(tmp_path: Path) -> None:
    """It was described as required bytes."""

    async def work(service: PlaylistService) -> None:
        reply = await service.visitor().http.get("http://localhost/playlist/openapi.json")
        [path] = [each for each in reply.json()["paths"] if each.endswith("/fork")]
        body = reply.json()["paths"][path]["post"]["requestBody"]
        assert body["required"] is False
        [(media_type, content)] = body["content"].items()
        assert media_type == "application/json"
        assert content["schema"]["$ref"].endswith("/ForkBody")

    run(tmp_path, work)
