"""Playlists over HTTP: who may do what, and every status."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keyhouse_playlist.playlists import summaries
from systems.playlist.tests.support.service import PlaylistService, Visitor, fill, item
from systems.playlist.tests.support.service import run as run_service

ITEMS = [
    item("a1", "Alien S01E01", "Horror", "SciFi", seconds=100),
    item("a2", "Alien S01E02", "Horror", seconds=200),
    item("b1", "Blade Runner", "SciFi", seconds=300),
]


run = partial(run_service, items=ITEMS, blessed=("Bob", "Eve"))


def error(response: Any) -> tuple[int, str]:
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "details"}
    return response.status_code, body["error"]["code"]


def test_a_member_creates_reads_changes_and_deletes_a_playlist(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        made = await bob.post("/playlists", {"name": " One ", "items": [{"video_id": "a1"}]}, 201)
        assert made["name"] == "One"
        path = f"/playlists/{made['playlist_id']}"
        read = await bob("GET", path)
        assert read.json()["items"][0]["title"] == "Alien S01E01"
        assert read.json()["items"][0]["duration_seconds"] == 100
        listed = await bob.get("/playlists")
        assert listed["total"] == 1
        assert listed["playlists"][0] == {
            "playlist_id": made["playlist_id"],
            "name": "One",
            "created_by": "Bob",
            "item_count": 1,
            "total_duration_seconds": 100,
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
        }
        stale = await bob("PUT", path, {"name": "Two"}, headers={"If-Match": '"999"'})
        assert error(stale) == (412, "conflict")
        tag = {"If-Match": read.headers["etag"]}
        changed = await bob("PUT", path, {"items": [{"video_id": "nobody"}]}, headers=tag)
        assert changed.status_code == 200 and changed.json()["name"] == "One"
        assert changed.json()["items"] == [{"video_id": "nobody"}]
        assert (await bob("DELETE", path)).json() == {"status": "ok"}
        assert error(await bob("GET", path)) == (404, "not_found")

    run(tmp_path, work)


def test_names_are_unique_after_trimming_and_folding(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        await bob.post("/playlists", {"name": "Straße"}, 201)
        other = await bob.post("/playlists", {"name": "Other"}, 201)
        assert error(await bob("POST", "/playlists", {"name": " STRASSE "})) == (409, "name_taken")
        renamed = await bob("PUT", f"/playlists/{other['playlist_id']}", {"name": "strasse"})
        assert error(renamed) == (409, "name_taken")

    run(tmp_path, work)


def test_a_taken_name_hides_no_other_error(tmp_path: Path) -> None:
    """A change to a name that another playlist has was 409 for every caller, whether or not the
    playlist existed: names were compared first."""

    async def work(service: PlaylistService) -> None:
        bob, eve = await service.member("Bob"), await service.member("Eve")
        await bob.post("/playlists", {"name": "Taken"}, 201)
        made = await bob.post("/playlists", {"name": "One"}, 201)
        path, body = f"/playlists/{made['playlist_id']}", {"name": "Taken"}
        assert error(await eve("PUT", path, body)) == (403, "forbidden")
        assert error(await bob("PUT", "/playlists/nothing", body)) == (404, "not_found")
        stale = await bob("PUT", path, body, headers={"If-Match": '"999"'})
        assert error(stale) == (412, "conflict")
        assert error(await bob("PUT", path, body)) == (409, "name_taken")

    run(tmp_path, work)


def test_viewers_do_not_write_and_others_playlists_are_for_admins(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob, eve = await service.member("Bob"), await service.member("Eve")
        ada, vic = await service.member("Ada"), await service.member("Vic")
        made = await bob.post("/playlists", {"name": "One"}, 201)
        path = f"/playlists/{made['playlist_id']}"
        for who in (vic, eve):
            assert error(await who("PUT", path, {"name": "X"})) == (403, "forbidden")
            assert error(await who("DELETE", path)) == (403, "forbidden")
        assert error(await vic("POST", "/playlists", {"name": "V"})) == (403, "forbidden")
        assert error(await vic("POST", f"{path}/fork")) == (403, "forbidden")
        fork = await eve.post(f"{path}/fork", status=201)
        assert fork["name"] == "One (copy)"
        copy = await eve.get(f"/playlists/{fork['playlist_id']}")
        assert copy["forked_from"] == made["playlist_id"] and copy["created_by"] == "Eve"
        named = await eve.post(f"{path}/fork", {"name": "Mine"}, 201)
        assert named["name"] == "Mine"
        assert (await ada("PUT", path, {"name": "Ada's"})).status_code == 200
        assert (await bob.get("/playlists", mine=True))["total"] == 1
        assert (await bob.get("/playlists", search="MÍNE"))["total"] == 1

    run(tmp_path, work)


def test_signed_out_callers_read_only_where_it_is_public(tmp_path: Path) -> None:
    async def closed(service: PlaylistService) -> None:
        visitor = service.visitor()
        for path in ("/playlists", "/catalog/search", "/catalog/categories", "/auth/session"):
            assert error(await visitor("GET", path)) == (401, "unauthorized")
        assert error(await visitor("POST", "/playlists", {"name": "X"})) == (401, "unauthorized")

    async def public(service: PlaylistService) -> None:
        visitor = service.visitor()
        assert (await visitor.get("/playlists"))["total"] == 0
        assert (await visitor.get("/catalog/search"))["total"] == 3
        assert error(await visitor("GET", "/auth/session")) == (401, "unauthorized")
        assert error(await visitor("POST", "/playlists", {"name": "X"})) == (401, "unauthorized")

    run(tmp_path, closed)
    run(tmp_path, public, public_read=True)


def test_the_catalog_is_searched_with_facets(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        found = await bob.get("/catalog/search", q="alien", facets="true")
        assert found["snapshot_id"] == "s1" and found["total"] == 2
        assert found["facets"] == {"category": {"Horror": 2, "SciFi": 1}}
        assert set(found["items"][0]) == {
            "video_id",
            "title",
            "categories",
            "manifest_url",
            "duration_seconds",
            "thumbnail_url",
        }
        both = await bob.get("/catalog/search?category=Horror&category=SciFi")
        assert [each["video_id"] for each in both["items"]] == ["a1"]
        assert (await bob.get("/catalog/categories")) == {"categories": ["Horror", "SciFi"]}
        for path in ("/catalog/items/b1", "/catalog/b1"):
            assert (await bob.get(path))["title"] == "Blade Runner"
        assert error(await bob("GET", "/catalog/none")) == (404, "not_found")
        for query in ("limit=0", "limit=201", "offset=-1", "limit=x"):
            assert error(await bob("GET", f"/catalog/search?{query}")) == (400, "validation_error")

    run(tmp_path, work)


def test_errors_of_the_http_layer_have_the_same_form(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        assert error(await bob("GET", "/nothing")) == (404, "not_found")
        assert error(await bob("PATCH", "/playlists")) == (405, "method_not_allowed")
        junk = await bob.http.post(
            "/playlists", content=b"{", headers={"content-type": "application/json"}
        )
        assert error(junk) == (400, "validation_error")
        assert error(await bob("POST", "/playlists", {"name": 1})) == (422, "validation_error")
        text = await bob.http.post(
            "/playlists", content=b"{}", headers={"content-type": "text/plain"}
        )
        assert error(text)[0] in (403, 415)

    run(tmp_path, work)


@pytest.mark.parametrize("name", ["", "   ", "x" * 201])
def test_a_playlist_needs_a_name(tmp_path: Path, name: str) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        assert error(await bob("POST", "/playlists", {"name": name})) == (422, "validation_error")

    run(tmp_path, work)


def test_a_list_decodes_only_documents_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    original = summaries.PlaylistSummaries.summary

    def recorded(self: Any, row: Any, durations: Any) -> Any:
        decoded.append(row.key.rpartition("/")[2])
        return original(self, row, durations)

    monkeypatch.setattr(summaries.PlaylistSummaries, "summary", recorded)

    async def work(service: PlaylistService) -> None:
        bob = await service.member("Bob")
        ids = [await saved(bob, f"List {number}") for number in range(5)]
        assert (await bob.get("/playlists"))["total"] == 5
        assert sorted(decoded) == sorted(ids)
        decoded.clear()
        assert (await bob.get("/playlists", search="list"))["total"] == 5
        assert decoded == []
        await bob("PUT", f"/playlists/{ids[2]}", {"items": [{"video_id": "a"}] * 2})
        await bob("DELETE", f"/playlists/{ids[0]}")
        listed = await bob.get("/playlists")
        assert decoded == [ids[2]]
        counts = {each["playlist_id"]: each["item_count"] for each in listed["playlists"]}
        assert counts == {ids[1]: 0, ids[2]: 2, ids[3]: 0, ids[4]: 0}
        fill(tmp_path, [item("a", "A", seconds=70)], "s2")
        shown = {each["playlist_id"]: each for each in (await bob.get("/playlists"))["playlists"]}
        assert shown[ids[2]]["total_duration_seconds"] == 140

    run(tmp_path, work)


async def saved(member: Visitor, name: str) -> str:
    return str((await member.post("/playlists", {"name": name}, 201))["playlist_id"])
