"""The pages at `/playlist/` as plain HTML over HTTP: forms and links suffice, without scripts."""

import asyncio
import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import ConflictError, UsageError
from keyhouse.service.pages.text import clock_time
from keyhouse_playlist.playlists.messages import ItemBody
from keyhouse_playlist.web import text
from keyhouse_playlist.web.working_list import apply_step
from systems.playlist.tests.support.pages import HOSTILE, Browser, member, open_id, run
from systems.playlist.tests.support.service import PlaylistService

# The catalog and the list


def test_the_catalog_is_searched_and_narrowed_by_links(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        assert "4 titles" in bob.text and HOSTILE in bob.text
        assert "2 titles" in await bob.get("/playlist/?q=alien")
        link = re.search(r'id="facet-SciFi"', bob.source)
        assert link is not None
        href = re.search(r'href="([^"]+)" [^>]*id="facet-SciFi"', bob.source)
        assert href is not None
        narrowed = await bob.get(html.unescape(href[1]))
        assert "1 title" in narrowed and "Chosen: SciFi" in re.sub(r"\s+", " ", narrowed)
        assert "No title has all these words" in await bob.get("/playlist/?q=zzz")
        await bob.get("/playlist/?offset=x")
        assert bob.status == 400 and "This did not work" in bob.text

    run(tmp_path, work)


def test_a_path_without_a_page_is_a_page_for_browsers_and_json_for_programs(
    tmp_path: Path,
) -> None:
    async def work(service: PlaylistService) -> None:
        http = Browser(service).http
        accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        for method, path in (
            ("GET", "/playlist/nowhere"),
            ("HEAD", "/playlist/nowhere"),
            ("GET", "/playlist/playlists/x/y/z"),
            ("POST", "/playlist/nowhere"),
        ):
            page = await http.request(method, path, headers={"Accept": accept})
            assert page.status_code == 404
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert method == "HEAD" or "To the catalog" in page.text
        page = await http.get("/playlist/items", headers={"Accept": accept})  # reloaded after POST
        assert page.status_code == 405 and page.headers["allow"] == "POST, OPTIONS"
        assert "To the catalog" in page.text
        for path, accepted in (
            ("/playlist/nowhere", "*/*"),
            ("/playlist/nowhere", "application/json, text/html;q=0.5"),
            ("/playlist/api/v1/nowhere", accept),
        ):
            reply = await http.get(path, headers={"Accept": accepted})
            assert reply.status_code == 404 and reply.json()["error"]["code"] == "not_found"

    run(tmp_path, work)


NO_NAMES = ["a\nb", "a\u202eb", "x\u2028x", "a\x85a", "\u2067a\u2069", "\t\x07x"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_with_control_characters_is_rejected_everywhere(tmp_path: Path, name: str) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        api = service.visitor()
        api.http.cookies = bob.http.cookies
        made = await api("POST", "/playlists", {"name": "Fine \u05d0\u200f", "items": []})
        assert made.status_code == 201
        id = made.json()["playlist_id"]
        marathon = {"method": "concatenate", "sources": [{"playlist_id": id}]}
        for method, path, body in (
            ("POST", "/playlists", {"items": []}),
            ("PUT", f"/playlists/{id}", {"items": []}),
            ("POST", f"/playlists/{id}/fork", {}),
            ("POST", "/marathons", marathon),
        ):
            reply = await api(method, path, {"name": name, **body})
            assert reply.status_code == 422, reply.text
            assert "no control characters" in reply.json()["error"]["message"]
        await bob.post(f"/playlist/playlists/{id}/rename", name=name)
        assert bob.status == 422 and "no control characters" in bob.text
        asked = await api("POST", "/auth/otp/request", {"username": f"x{name}x"})
        assert asked.status_code == 422
        listed = await api.get("/playlists")
        assert [each["name"] for each in listed["playlists"]] == ["Fine \u05d0\u200f"]

    run(tmp_path, work)


def test_a_list_is_built_by_forms_alone(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        await bob.post("/playlist/items", step="add a1", next="/playlist/?q=alien")
        assert bob.path == "/playlist/" and "New playlist" in bob.text
        list = open_id(bob)
        for step in ("add a2", "add h 1", "add a1", "add unknown", "up 1 a2", "remove 2 h 1"):
            await bob.post("/playlist/items", list=list, step=step)
            assert bob.status == 200, step
        shown = await bob.get(f"/playlist/playlists/{list}")
        assert "4 items, 7 min" in shown
        assert "duplicate of 2" in shown and "not in the catalog" in shown
        api = service.visitor()
        api.http.cookies = bob.http.cookies
        saved = await api.get(f"/playlists/{list}")
        assert [each["video_id"] for each in saved["items"]] == ["a2", "a1", "a1", "unknown"]
        await bob.post("/playlist/items", list=list, step="unique")
        assert "3 items" in await bob.get(f"/playlist/playlists/{list}")

    run(tmp_path, work)


def test_htmx_gets_the_list_alone_with_undo_and_errors(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        part = await bob.part("/playlist/items", step="add h 1")
        assert f"Added {HOSTILE}." in part and "<html" not in bob.source
        list = open_id(bob)
        await bob.part("/playlist/items", list=list, step="remove 0 h 1")
        assert 'value="insert 0 h 1"' in bob.source and "No items yet" in bob.text
        await bob.part("/playlist/items", list=list, step="insert 0 h 1")
        assert "1 item" in bob.text
        gone = await bob.part("/playlist/items", list=list, step="up 0 a1")
        assert bob.status == 409 and "no longer in the list" in gone and HOSTILE in gone
        for step in ("up", "up x a1", "move 1 a1", "paint 0 a1", "add ", f"add {'x' * 201}"):
            await bob.part("/playlist/items", list=list, step=step)
            assert bob.status == 400, step

    run(tmp_path, work)


def test_all_titles_of_a_search_are_added_at_once(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        assert "Add all" not in bob.text, "not the whole catalog"
        assert "Add all 2" in await bob.get("/playlist/?q=alien")
        button = re.search(r'value="(all [^"]+)"', bob.source)
        assert button is not None
        await bob.post("/playlist/items", step=html.unescape(button[1]))
        assert "2 items, 5 min" in bob.text
        list = open_id(bob)
        for step in ("all x", 'all {"a": 1}', 'all [""]', "all [1]"):
            await bob.post("/playlist/items", list=list, step=step)
            assert bob.status == 400, step
        eve = await member(service, "Eve")
        assert "Copy it to change it" in await eve.get(f"/playlist/?list={list}")

    run(tmp_path, work)


def test_two_members_add_at_the_same_time_and_nothing_is_lost(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        ada, again = await member(service, "Ada"), await member(service, "Ada")
        await ada.post("/playlist/items", step="add a1")
        list = open_id(ada)
        await asyncio.gather(
            *(who.part("/playlist/items", list=list, step="add b1") for who in (ada, again) * 3)
        )
        assert "7 items" in await ada.get(f"/playlist/playlists/{list}")

    run(tmp_path, work)


def test_a_long_list_is_shown_in_parts(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        api = service.visitor()
        api.http.cookies = bob.http.cookies
        items = [{"video_id": f"v{number}"} for number in range(450)]
        made = await api.post("/playlists", {"name": "Long", "items": items}, 201)
        list = made["playlist_id"]
        assert "1 to 200 of 450" in await bob.get(f"/playlist/?list={list}")
        assert "450 items" in bob.text and "v200" not in bob.text
        assert f'href="/playlist/?list={list}&amp;from=200"' in bob.source
        assert "401 to 450 of 450" in await bob.get(f"/playlist/playlists/{list}?from=400")
        part = {"list": list, "from": "200"}
        await bob.part("/playlist/items", step="up 200 v200", **part)
        assert "v200 is now 200 of 450." in bob.text and "201 to 400 of 450" in bob.text
        await bob.part("/playlist/items", step="add a1", **part)
        assert "401 to 451 of 451" in bob.text and "Alien S01E01" in bob.text

    run(tmp_path, work)


# Playlists


def test_a_playlist_is_created_renamed_copied_and_deleted(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        await bob.post("/playlist/playlists", name="<b>&amp; films")
        assert bob.path == "/playlist/" and "<b>&amp; films" in bob.text
        list = open_id(bob)
        await bob.post("/playlist/playlists", name="<B>&amp; FILMS")
        assert bob.status == 409 and "Another playlist has this name" in bob.text
        await bob.post(f"/playlist/playlists/{list}/rename", name="Two")
        assert bob.path == f"/playlist/playlists/{list}" and "Two" in bob.text
        await bob.post(f"/playlist/playlists/{list}/rename", name=" ")
        assert bob.status == 400 and "needs a name" in bob.text
        await bob.post(f"/playlist/playlists/{list}/copy", name="")
        assert "Two (copy)" in bob.text
        await bob.post(f"/playlist/playlists/{list}/delete")
        assert bob.path == "/playlist/playlists" and "1 playlist" in bob.text
        assert "no such playlist" in await bob.get(f"/playlist/playlists/{list}")
        assert bob.status == 404
        assert "No playlist matches" in await bob.get("/playlist/playlists?search=nothing")

    run(tmp_path, work)


def test_pages_offer_only_what_a_member_may_do(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob, eve, vic = [await member(service, name) for name in ("Bob", "Eve", "Vic")]
        await bob.post("/playlist/items", step="add a1")
        list = open_id(bob)
        page = f"/playlist/playlists/{list}"
        assert "Rename" in await bob.get(page) and "at once" not in bob.text
        assert "Rename" not in await eve.get(page) and "Copy" in eve.text
        assert "Copy" not in await vic.get(page) and "Push" not in vic.text.split("Alien")[1]
        assert "signed in as a viewer" in await vic.get("/playlist/") and "Add" not in vic.source
        ada = await member(service, "Ada")
        assert "Rename" in await ada.get(page) and "at once" in ada.text
        for who, status in ((eve, 403), (vic, 403)):
            await who.post(f"{page}/rename", name="X")
            assert who.status == status
            await who.post(f"{page}/delete")
            assert who.status == status
        await vic.post("/playlist/items", step="add a1")
        assert vic.status == 403 and "Viewers cannot" in vic.text
        await bob.post("/playlist/push", playlist_id=list, mode="hard_replace")
        assert bob.status == 403

    run(tmp_path, work)


def test_signed_out_visitors_read_where_it_is_public(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        visitor = Browser(service)
        assert "4 titles" in await visitor.get("/playlist/")
        assert "Sign in to build playlists" in visitor.text
        for path in ("playlists", "marathon", "channel", "statistics"):
            await visitor.get(f"/playlist/{path}")
            assert visitor.status == 200, path
        for form, page in (("playlists", "playlists"), ("like", "channel"), ("logout", "")):
            await visitor.post(f"/playlist/{form}", name="x")
            assert visitor.path == "/playlist/login", form
            assert f'name="next" value="/playlist/{page}"' in visitor.source

    run(tmp_path, work, public_read=True)


def test_the_first_page_is_small(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        files = re.findall(r'(?:href|src)="(/[^"]*assets/[^"]*)"', bob.source)
        assert len(files) == 6
        loaded = [await bob.http.get(path) for path in ("/playlist/", *files)]
        assert sum(int(each.headers["content-length"]) for each in loaded) <= 40_000

    run(tmp_path, work)


def test_the_pages_work_below_a_path_of_another_server(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob", root="/lounge")
        await bob.post("/playlist/items", step="add a1")
        assert bob.path == "/lounge/playlist/" and "New playlist" in bob.text
        links = re.findall(r'(?:href|action|src|hx-get|hx-post)="(/[^"]*)"', bob.source)
        assert links and all(each.startswith("/lounge/") for each in links), links

    run(tmp_path, work)


# Marathons and the channel


def test_a_marathon_is_previewed_corrected_and_saved(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        ids = []
        for name, items in (("One", ("a1", "a2")), ("Two", ("b1", "h 1"))):
            await bob.post("/playlist/playlists", name=name)
            ids.append(open_id(bob))
            for each in items:
                await bob.post("/playlist/items", list=ids[-1], step=f"add {each}")
        both = f"/playlist/marathon?source={ids[0]}&source={ids[1]}&source="
        assert "4 items" in await bob.get(f"{both}&method=concatenate")
        wrong = await bob.get(f"{both}&method=interleave&pattern=A2%20Z")
        assert "labels without a source" in wrong and 'aria-invalid="true"' in bob.source
        mixed = await bob.get(f"{both}&method=interleave&pattern=B")
        assert "The pattern omits A" in mixed
        shuffled = await bob.get(f"{both}&method=shuffle")
        seed = re.search(r'name="seed" value="([^"]+)"', bob.source)
        assert seed is not None
        assert await bob.get(f"{both}&method=shuffle&seed={seed[1]}") == shuffled
        form = {"source": ids, "method": "shuffle", "seed": seed[1], "pattern": ""}
        taken = await bob.post("/playlist/marathon", name="one", **form)
        assert bob.status == 409 and "Another playlist has this name" in taken
        order = re.findall(r'<span class="title">(.*?)</span>', bob.source)
        await bob.post("/playlist/marathon", name="Both", **form)
        assert bob.path.startswith("/playlist/playlists/")
        assert re.findall(r'<span class="title">(.*?)</span>', bob.source) == order

    run(tmp_path, work)


def test_the_pages_work_while_the_channel_is_away(tmp_path: Path) -> None:
    async def work(service: PlaylistService) -> None:
        bob = await member(service, "Bob")
        await bob.post("/playlist/items", step="add a1")
        list = open_id(bob)
        assert "robot is not there" in await bob.get("/playlist/channel")
        await bob.post("/playlist/push", playlist_id=list, mode="append")
        assert bob.status == 503 and "robot does not run" in bob.text
        part = await bob.part("/playlist/push", playlist_id=list, mode="append")
        assert bob.status == 200 and "robot does not run" in part
        assert "has not shown its queue" in await bob.part("/playlist/like")
        assert "Nothing was played" in await bob.get("/playlist/statistics?window_days=7")
        await bob.get("/playlist/statistics?window_days=0")
        assert bob.status == 400

    run(tmp_path, work)


# Parts


def bodies(ids: list[str]) -> list[ItemBody]:
    return [ItemBody(each) for each in ids]


def ids_of(items: list[ItemBody]) -> list[str]:
    return [each.video_id for each in items]


@given(st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=8), st.data())
def test_undo_takes_every_step_back(ids: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ids) - 1))
    to = data.draw(st.integers(0, len(ids) + 1))
    steps = [f"remove {at} {ids[at]}", f"move {at} {to} {ids[at]}", f"up {at} {ids[at]}"]
    step = data.draw(st.sampled_from([*steps, f"down {at} {ids[at]}", "add new", f"insert {to} x"]))
    done = apply_step(bodies(ids), step, {})
    assert sorted(ids_of(done.items)) == sorted(ids_of(done.items))
    assert ids_of(apply_step(done.items, done.undo, {}).items) == ids


def test_a_step_follows_an_item_that_has_moved() -> None:
    moved = apply_step(bodies(["x", "a", "b", "a"]), "remove 0 a", {"a": "Title"})
    assert ids_of(moved.items) == ["x", "b", "a"] and moved.said == "Removed Title."
    with pytest.raises(ConflictError):
        apply_step(bodies(["x"]), "up 0 a", {})
    with pytest.raises(ConflictError):
        apply_step(bodies(["x"] * 2_000), "add a", {})
    with pytest.raises(UsageError):
        apply_step(bodies(["x"]), "up 9999999 x", {})
    assert ids_of(apply_step(bodies(["a", "b", "a"]), "unique", {}).items) == ["a", "b"]


def test_values_are_written_for_people() -> None:
    assert [clock_time(each) for each in (None, 0, 65, 5_400)] == [
        "",
        "0:00",
        "1:05",
        "1:30:00",
    ]
    assert [text.length(each) for each in (5, 60, 3_600, 5_400)] == [
        "5 s",
        "1 min",
        "1 h",
        "1 h 30 min",
    ]
    assert [text.wait(each) for each in (0, 1, 61, 3_600, 100_000)] == [
        "1 second",
        "1 second",
        "2 minutes",
        "60 minutes",
        "28 hours",
    ]
    now = 1_767_225_600_000
    times = ("2026-01-01T00:00:00Z", "2025-12-31T23:00:00Z", "2025-12-01T00:00:00+00:00", "x")
    assert [text.ago(each, now) for each in times] == ["just now", "1 hour ago", "31 days ago", ""]
