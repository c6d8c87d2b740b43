"""Joining the files of a book with ffmpeg: transcode, and merge without a file."""

import os
from pathlib import Path

import httpx
import pytest

from systems.audiobooks.tests.support.ffmpeg import ffmpeg_folder
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_books import ABSENT
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf
from systems.audiobooks.tests.test_audiobooks_scan import finished, scan, segments
from tests.support.polling import wait_until

__all__ = ["shelf"]


@pytest.fixture
def ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize(
    "format",
    ["mp3", "m4b", *(pytest.param(name, marks=pytest.mark.extra) for name in ("ogg", "flac"))],
)
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_transcode_joins_the_files_and_moves_the_listeners(shelf: Shelf, format: str) -> None:
    shelf.save(shelf.phone, 1, 42, event_type="start")
    body = {"book_id": shelf.book["id"], "format": format}
    ended = finished(shelf.admin, shelf.admin.post("/operations/transcode", json=body))
    assert (ended["status"], ended["error"]) == ("completed", None)
    [segment] = segments(shelf.admin, shelf.book)
    path = Path(segment["file_path"])
    assert path.name == f"The Dispossessed.{format}" and segment["format"] == format
    assert segment["duration_seconds"] == pytest.approx(300, abs=1)
    state = shelf.phone.get(f"{shelf.path}/state").json()["data"]
    assert (state["last_segment_id"], state["position_seconds"]) == (segment["id"], 142)
    part = shelf.phone.get(f"/segments/{segment['id']}/audio", headers={"Range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, path.read_bytes()[:10])
    lines = scan(shelf.admin)
    assert "0 added" in lines[-1] and [each.name for each in path.parent.glob(".*")] == []
    assert [each["id"] for each in segments(shelf.admin, shelf.book)] == [segment["id"]]


@pytest.mark.usefixtures("ffmpeg")
def test_a_merge_without_a_file_is_made_by_the_service(shelf: Shelf) -> None:
    ended = finished(shelf.admin, shelf.admin.post(f"{shelf.path}/merge", json={}))
    assert (ended["status"], ended["error"]) == ("completed", None)
    [segment] = segments(shelf.admin, shelf.book)
    assert segment["format"] == "m4b"


@pytest.mark.usefixtures("ffmpeg")
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_a_failed_transcode_changes_nothing(shelf: Shelf) -> None:
    path = Path(segments(shelf.admin, shelf.book)[1]["file_path"])
    path.write_bytes(b"no audio")
    before = sorted(path.parent.iterdir())
    body = {"book_id": shelf.book["id"]}
    ended = finished(shelf.admin, shelf.admin.post("/operations/transcode", json=body))
    assert ended["status"] == "failed" and "ffmpeg" in ended["error"]
    assert sorted(path.parent.iterdir()) == before
    assert [each["id"] for each in segments(shelf.admin, shelf.book)] == shelf.ids


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_a_running_transcode_is_cancelled(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "slow programs"
    programs.mkdir()
    (programs / "ffmpeg").write_text('#!/bin/sh\necho $$ > "$0.pid"\nexec sleep 600\n')
    (programs / "ffmpeg").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    reply = shelf.admin.post("/operations/transcode", json={"book_id": shelf.book["id"]})
    started = programs / "ffmpeg.pid"
    wait_until(lambda: started.exists() and started.read_text())
    id = reply.json()["data"]["id"]
    assert shelf.admin.delete(f"/operations/{id}").status_code == 200
    ended = finished(shelf.admin, reply)
    assert (ended["status"], ended["error"]) == ("failed", "cancelled")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert [each["id"] for each in segments(shelf.admin, shelf.book)] == shelf.ids


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_without_ffmpeg_the_reply_is_501(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = admin.post("/books", json={"title": "x"}).json()["data"]["id"]
    monkeypatch.setenv("PATH", str(service.folder))
    for path, body in (("/operations/transcode", {"book_id": book}), (f"/books/{book}/merge", {})):
        assert is_error(admin.post(path, json=body), 501, "SERVICE_UNAVAILABLE")
    absent = admin.post("/operations/transcode", json={"book_id": ABSENT})
    assert is_error(absent, 404, "NOT_FOUND")
