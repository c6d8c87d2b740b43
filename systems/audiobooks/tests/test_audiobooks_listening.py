"""Playback over HTTP: positions, conflicts of devices, statuses, bookmarks, statistics, playlists,
preferences and merging."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from keyhouse_audiobooks.files.generated_audio import write_audio
from systems.audiobooks.tests.support.service import LibraryService, on_both_engines
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import ABSENT, made
from systems.audiobooks.tests.test_audiobooks_scan import (
    TAGS,
    album,
    books,
    finished,
    scan,
    segments,
)
from tests.support.cases import cases


class Shelf:
    """A book of three segments of 100 seconds, and a listener with two devices."""

    def __init__(self, service: LibraryService, admin: httpx.Client) -> None:
        self.service = service
        self.admin = admin
        album(service.roots[0], 3, 100)
        scan(admin)
        [self.book] = books(admin)
        self.ids = [each["id"] for each in segments(admin, self.book)]
        self.path = f"/books/{self.book['id']}"
        self.phone = service.user(admin, "ann", "viewer")
        self.desk = service.signed_in("ann")

    def save(
        self, device: httpx.Client, segment: int, seconds: float, **body: Any
    ) -> httpx.Response:
        given = {"segment_id": self.ids[segment], "position_seconds": seconds, **body}
        return device.post(f"{self.path}/position", json=given)

    def play(self, seconds: float, step: float = 10, speed: float = 1.0) -> None:
        """Play from the start of the first segment on."""
        at = 0.0
        self.save(self.phone, 0, 0, event_type="start", play_speed=speed)
        while at < seconds:
            at = min(seconds, at + step)
            self.service.clock.advance(seconds=step / speed)
            self.save(self.phone, int(at // 100), at % 100, play_speed=speed)

    def statistics(self, path: str) -> tuple[int, int]:
        found = self.phone.get(path).json()["data"]
        return found["plays"], found["listen_seconds"]


@pytest.fixture
def shelf(service: LibraryService, admin: httpx.Client) -> Iterator[Shelf]:
    found = Shelf(service, admin)
    yield found
    found.phone.close()
    found.desk.close()


def test_a_never_opened_book_is_unstarted(shelf: Shelf) -> None:
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    expected = {
        "status": "unstarted",
        "status_manual": False,
        "last_segment_id": None,
        "position_seconds": 0,
        "progress_pct": 0.0,
        "last_activity_at": None,
        "revision": 0,
        "book_id": shelf.book["id"],
    }
    assert expected.items() <= state.items()


@on_both_engines
def test_a_position_moves_state_and_statistics(shelf: Shelf) -> None:
    shelf.play(150)
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    assert (state["status"], state["position_seconds"], state["progress_pct"]) == (
        "in_progress",
        50,
        50.0,
    )
    assert state["last_segment_id"] == shelf.ids[1] and state["revision"] > 0
    assert shelf.desk.get(f"{shelf.path}/position").json()["data"]["segment_id"] == shelf.ids[1]
    work = shelf.book["work_id"]
    for path in (f"/stats/books/{shelf.book['id']}", f"/stats/works/{work}", "/stats/me"):
        assert shelf.statistics(path) == (1, 150)
    events = shelf.phone.get(f"{shelf.path}/events", params={"limit": 5}).json()["data"]
    assert events["count"] == 5 and events["cursor"]
    assert events["items"][0]["position_seconds"] == 50


def test_speed_counts_seconds_of_the_book_and_seeks_count_nothing(shelf: Shelf) -> None:
    shelf.play(90, speed=3.0)
    assert shelf.statistics("/stats/me") == (1, 90)
    shelf.service.clock.advance(seconds=1)
    shelf.save(shelf.phone, 2, 50)  # a seek forward
    shelf.save(shelf.phone, 0, 10)  # and back
    assert shelf.statistics("/stats/me") == (1, 90)
    shelf.save(shelf.phone, 0, 10, event_type="start")
    assert shelf.statistics("/stats/me")[0] == 1  # within half an hour
    shelf.service.clock.advance(seconds=1_800)
    shelf.save(shelf.phone, 0, 10, event_type="start")
    assert shelf.statistics("/stats/me")[0] == 2


def test_invalid_positions_are_rejected_and_change_nothing(shelf: Shelf) -> None:
    assert is_error(shelf.save(shelf.phone, 0, 101), 400, "BAD_REQUEST")
    assert is_error(shelf.save(shelf.phone, 0, -1), 422, "VALIDATION_ERROR")
    assert is_error(shelf.save(shelf.phone, 0, 1, play_speed=0), 422, "VALIDATION_ERROR")
    absent = {"segment_id": ABSENT, "position_seconds": 1}
    assert is_error(shelf.phone.post(f"{shelf.path}/position", json=absent), 404, "NOT_FOUND")
    there = {"segment_id": shelf.ids[0], "position_seconds": 1}
    assert is_error(shelf.phone.post(f"/books/{ABSENT}/position", json=there), 404, "NOT_FOUND")
    other = made(shelf.admin, "books", title="Other")["id"]
    assert is_error(shelf.phone.post(f"/books/{other}/position", json=there), 404, "NOT_FOUND")
    assert shelf.phone.get(f"{shelf.path}/events").json()["data"]["count"] == 0


@on_both_engines
def test_an_older_device_gets_409_with_the_newer_place(shelf: Shelf) -> None:
    first = shelf.save(shelf.phone, 0, 10, event_type="start").json()["data"]["revision"]
    newer = shelf.save(shelf.desk, 1, 20, based_on=first)
    assert newer.status_code == 200
    late = shelf.save(shelf.phone, 0, 12, based_on=first)
    assert is_error(late, 409, "CONFLICT")
    place = late.json()["data"]
    assert (place["last_segment_id"], place["position_seconds"]) == (shelf.ids[1], 20)
    assert place["revision"] == newer.json()["data"]["revision"]
    assert shelf.phone.get(f"{shelf.path}/state").json()["data"] == place
    assert shelf.save(shelf.phone, 0, 13, based_on=place["revision"]).status_code == 200
    own = shelf.save(shelf.phone, 0, 14, based_on=place["revision"])
    assert own.status_code == 200  # its own newer position does not conflict
    shelf.desk.patch(f"{shelf.path}/status", json={"status": "abandoned"})
    revision = own.json()["data"]["revision"]
    assert shelf.save(shelf.phone, 0, 15, based_on=revision).status_code == 200


def test_a_repeated_request_counts_once(shelf: Shelf) -> None:
    for _ in range(3):
        reply = shelf.save(shelf.phone, 0, 0, event_type="start", idempotency_key="a")
        assert reply.status_code == 200
    shelf.service.clock.advance(seconds=10)
    for _ in range(3):
        shelf.save(shelf.phone, 0, 10, idempotency_key="b")
    assert shelf.statistics("/stats/me") == (1, 10)
    assert shelf.phone.get(f"{shelf.path}/events").json()["data"]["count"] == 2


def test_events_that_waited_without_a_network_count_at_the_time_of_listening(
    shelf: Shelf,
) -> None:
    clock = shelf.service.clock
    shelf.save(shelf.phone, 0, 0, event_type="start")
    clock.advance(seconds=7_200)  # an hour after 90 seconds without a network
    waited = 3_690
    for number, seconds in enumerate(range(0, 100, 10)):
        kind = "start" if seconds == 0 else "pause" if seconds == 90 else "progress"
        for _ in range(2):  # each reply is lost once
            reply = shelf.save(
                shelf.phone,
                0,
                seconds,
                event_type=kind,
                seconds_ago=waited - seconds,
                idempotency_key=f"offline-{number}",
            )
            assert reply.status_code == 200
    assert shelf.statistics("/stats/me") == (2, 90)
    [newest, *_] = shelf.phone.get(f"{shelf.path}/events").json()["data"]["items"]
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    assert (
        newest["created_at"]
        == state["last_activity_at"]
        == reply.json()["data"]["last_activity_at"]
    )
    for bad in (-1, 367 * 24 * 3_600, "soon"):
        assert is_error(shelf.save(shelf.phone, 0, 1, seconds_ago=bad), 422, "VALIDATION_ERROR")


def test_a_manual_status_wins_until_it_is_cleared(shelf: Shelf) -> None:
    state = shelf.phone.patch(f"{shelf.path}/status", json={"status": "finished"}).json()["data"]
    assert (state["status"], state["status_manual"], state["progress_pct"]) == ("finished", True, 0)
    shelf.save(shelf.phone, 0, 50)
    assert shelf.phone.get(f"{shelf.path}/state").json()["data"]["status"] == "finished"
    cleared = shelf.phone.delete(f"{shelf.path}/status").json()["data"]
    assert (cleared["status"], cleared["status_manual"]) == ("in_progress", False)
    shelf.save(shelf.phone, 2, 85)
    assert shelf.phone.get(f"{shelf.path}/state").json()["data"]["status"] == "finished"
    bad = shelf.phone.patch(f"{shelf.path}/status", json={"status": "read"})
    assert is_error(bad, 422, "VALIDATION_ERROR")


def test_lists_of_a_listener_follow_the_statuses(shelf: Shelf) -> None:
    series = made(shelf.admin, "series", name="S")["id"]
    numbers = {"series_id": series, "series_position": 1}
    shelf.admin.patch(shelf.path, json=numbers)
    following = made(shelf.admin, "books", title="Next", series_id=series, series_position=1.5)
    made(shelf.admin, "books", title="Last", series_id=series, series_position=2)
    shelf.save(shelf.phone, 0, 50)
    found = shelf.phone.get("/me/continue").json()["data"]
    assert [each["book"]["title"] for each in found["items"]] == ["The Dispossessed"]
    assert shelf.phone.get("/me/in_progress").json()["data"]["count"] == 1
    assert shelf.phone.get("/me/unstarted").json()["data"]["total"] == 2
    shelf.phone.patch(f"{shelf.path}/status", json={"status": "finished"})
    found = shelf.phone.get("/me/continue").json()["data"]
    assert found["items"] == []
    assert [each["id"] for each in found["next_in_series"]] == [following["id"]]
    assert is_error(shelf.phone.get("/me/nonsense"), 404, "NOT_FOUND")
    assert shelf.admin.get("/me/finished").json()["data"]["count"] == 0


def test_bookmarks_are_the_listeners_own(shelf: Shelf) -> None:
    path = f"{shelf.path}/bookmarks"
    body = {"segment_id": shelf.ids[1], "position_seconds": 12.5, "title": "here"}
    mark = shelf.phone.post(path, json=body)
    assert mark.status_code == 201
    id = mark.json()["data"]["id"]
    assert shelf.desk.get(path).json()["data"]["items"][0]["title"] == "here"
    assert shelf.admin.get(path).json()["data"]["count"] == 0
    assert is_error(shelf.admin.get(f"{path}/{id}"), 404, "NOT_FOUND")
    changed = shelf.phone.patch(f"{path}/{id}", json={"title": "there"}).json()["data"]
    assert (changed["title"], changed["position_seconds"]) == ("there", 12.5)
    beyond = shelf.phone.post(path, json={**body, "position_seconds": 200})
    assert is_error(beyond, 400, "BAD_REQUEST")
    assert shelf.phone.delete(f"{path}/{id}").status_code == 204
    assert is_error(shelf.phone.delete(f"{path}/{id}"), 404, "NOT_FOUND")


@cases("value", [1.25, "dark", None, {"a": [1, None]}, [], False])
def test_a_preference_is_any_json(shelf: Shelf, value: Any) -> None:
    path = "/preferences/player:speed"
    assert is_error(shelf.phone.get(path), 404, "NOT_FOUND")
    body: dict[str, Any] = {
        "content": msgspec.json.encode(value),
        "headers": {"Content-Type": "application/json"},
    }
    assert shelf.phone.put(path, **body).json() == {"data": value}
    assert shelf.desk.get(path).json() == {"data": value}
    assert shelf.admin.get(path).status_code == 404
    listed = shelf.phone.get("/preferences").json()["data"]["items"]
    assert listed == [{"key": "player:speed", "value": value}]
    assert shelf.phone.delete(path).status_code == 204
    assert shelf.phone.get(path).status_code == 404


def test_playlists_are_private_or_shared(shelf: Shelf) -> None:
    two = made(shelf.admin, "books", title="Two")["id"]
    one = shelf.book["id"]
    editor = shelf.service.user(shelf.admin, "bob", "editor")
    mine = made(editor, "playlists", name="Mine", book_ids=[one])
    path = f"/playlists/{mine['id']}"
    assert is_error(shelf.phone.get(path), 404, "NOT_FOUND")
    assert is_error(shelf.phone.post("/playlists", json={"name": "x"}), 403, "FORBIDDEN")
    added = editor.post(f"{path}/books", json={"book_ids": [two, one]}).json()["data"]
    assert added["book_ids"] == [one, two]
    moved = editor.post(f"{path}/reorder", json={"book_ids": [two, one]}).json()["data"]
    assert moved["book_ids"] == [two, one]
    partial = editor.post(f"{path}/reorder", json={"book_ids": [two]})
    assert is_error(partial, 422, "VALIDATION_ERROR")
    absent = editor.post(f"{path}/books", json={"book_ids": [ABSENT]})
    assert is_error(absent, 422, "VALIDATION_ERROR")
    shelf.admin.delete(f"/books/{two}")
    assert editor.get(path).json()["data"]["book_ids"] == [one]
    shelf.admin.delete(f"/books/{two}", params={"purge": True})
    assert editor.delete(f"{path}/books/{one}").json()["data"]["book_ids"] == []
    assert is_error(editor.delete(f"{path}/books/{one}"), 404, "NOT_FOUND")
    assert editor.patch(path, json={"name": "New"}).json()["data"]["name"] == "New"
    shared = {"name": "All", "user_id": None}
    assert is_error(editor.post("/playlists", json=shared), 403, "FORBIDDEN")
    all_id = shelf.admin.post("/playlists", json=shared).json()["data"]["id"]
    assert shelf.phone.get(f"/playlists/{all_id}").status_code == 200
    assert is_error(editor.delete(f"/playlists/{all_id}"), 403, "FORBIDDEN")
    assert [each["name"] for each in editor.get("/playlists").json()["data"]["items"]] == [
        "New",
        "All",
    ]
    assert editor.delete(path).status_code == 204
    editor.close()


@on_both_engines
def test_a_merge_moves_every_listener_to_the_same_moment(shelf: Shelf) -> None:
    shelf.save(shelf.phone, 1, 42, event_type="start")
    shelf.save(shelf.admin, 2, 7)
    mark = {"segment_id": shelf.ids[2], "position_seconds": 5}
    shelf.phone.post(f"{shelf.path}/bookmarks", json=mark)
    root = shelf.service.roots[0]
    short = write_audio(root / "merged" / "short.wav", 200, tags=TAGS)
    path = f"{shelf.path}/merge"
    reply = shelf.admin.post(path, json={"file_path": str(short)})
    assert is_error(reply, 409, "CONFLICT")
    merged = write_audio(root / "merged" / "whole.wav", 300, tags=TAGS)
    body = {"file_path": str(merged)}
    for bad in ("/etc/passwd", "../x.wav"):
        reply = shelf.admin.post(path, json={"file_path": bad})
        assert is_error(reply, 422, "VALIDATION_ERROR")
    dry = shelf.admin.post(path, json=body, params={"dry_run": True}).json()["data"]
    assert sorted(each["new_position_seconds"] for each in dry["items"]) == [142, 207]
    assert [each["id"] for each in segments(shelf.admin, shelf.book)] == shelf.ids
    done = finished(shelf.admin, shelf.admin.post(path, json=body))
    assert (done["status"], done["type"]) == ("completed", "merge")
    [segment] = segments(shelf.admin, shelf.book)
    assert segment["file_path"] == str(merged)
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    assert (state["last_segment_id"], state["position_seconds"]) == (segment["id"], 142)
    assert shelf.admin.get(f"{shelf.path}/state").json()["data"]["position_seconds"] == 207
    [moved] = shelf.phone.get(f"{shelf.path}/bookmarks").json()["data"]["items"]
    assert (moved["segment_id"], moved["position_seconds"]) == (segment["id"], 205)
    late = shelf.save(shelf.phone, 1, 43)  # of the old file: a player that was offline
    assert late.json()["data"]["position_seconds"] == 143
    inactive = segments(shelf.admin, shelf.book, inactive=True)[1:]
    assert [each["superseded_by"] for each in inactive] == [segment["id"]] * 3
    scan(shelf.admin)
    assert [each["id"] for each in segments(shelf.admin, shelf.book)] == [segment["id"]]


@on_both_engines
def test_pruning_changes_no_figure(shelf: Shelf) -> None:
    shelf.play(150)
    before = shelf.statistics("/stats/me")
    shelf.service.clock.advance(seconds=400 * 24 * 3_600)
    with shelf.service.signed_in("admin") as admin:
        ended = finished(admin, admin.post("/operations/prune"))
        assert ended["status"] == "completed"
    shelf.phone.close()
    with shelf.service.signed_in("ann") as phone:
        shelf.phone = phone
        assert shelf.statistics("/stats/me") == before
        state = phone.get(f"{shelf.path}/state").json()["data"]
        assert state["position_seconds"] == 50


def test_a_purged_book_leaves_nothing_behind(shelf: Shelf) -> None:
    shelf.play(50)
    shelf.phone.post(
        f"{shelf.path}/bookmarks", json={"segment_id": shelf.ids[0], "position_seconds": 5}
    )
    shelf.admin.delete(shelf.path)
    assert is_error(shelf.save(shelf.phone, 0, 60), 404, "NOT_FOUND")
    assert shelf.phone.get("/me/in_progress").json()["data"]["count"] == 0
    assert shelf.admin.delete(shelf.path, params={"purge": True}).status_code == 204
    assert shelf.statistics("/stats/me") == (1, 50)
    assert shelf.statistics(f"/stats/works/{shelf.book['work_id']}") == (0, 0)


def test_a_position_in_a_purged_book_is_not_found_however_often_it_is_sent(shelf: Shelf) -> None:
    """The service had the book of an earlier position in its cache; the answer was 409, with
    internal keys, until the book was evicted."""
    assert shelf.save(shelf.phone, 0, 1).is_success
    assert shelf.admin.delete(shelf.path).is_success
    assert shelf.admin.delete(shelf.path, params={"purge": True}).status_code == 204
    for _ in range(2):
        assert is_error(shelf.save(shelf.phone, 0, 2), 404, "NOT_FOUND")
