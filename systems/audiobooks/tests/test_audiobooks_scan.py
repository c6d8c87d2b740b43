# mypy: disable-error-code="no-untyped-call"
"""Scanning real files over HTTP: new, unchanged, moved, missing, edited and broken ones; covers,
audio, order, organize and the operations themselves."""

import os
import shutil
import struct
from pathlib import Path
from time import process_time
from typing import Any

import httpx
import pytest
from mutagen.id3 import MVIN, MVNM
from mutagen.mp3 import MP3
from mutagen.mp4 import MP4

from keyhouse_audiobooks.files.audio_tags import MEDIA_TYPES, read_tags
from keyhouse_audiobooks.files.generated_audio import FORMATS, png, write_audio
from systems.audiobooks.tests.support.service import LibraryService, on_both_engines
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from tests.support.polling import wait_until

TAGS = {"album": "The Dispossessed", "author": "Ursula K. Le Guin", "narrator": "Don Leslie"}


def finished(client: httpx.Client, reply: httpx.Response) -> dict[str, Any]:
    """Return an operation when it has ended."""
    assert reply.status_code in (200, 202), reply.text
    id = reply.json()["data"]["id"]

    def ended() -> dict[str, Any] | None:
        operation: dict[str, Any] = client.get(f"/operations/{id}").json()["data"]
        return operation if operation["status"] in ("completed", "failed") else None

    operation = wait_until(ended)
    assert operation is not None
    return operation


def scan(client: httpx.Client, **body: Any) -> list[str]:
    """Scan, and return the lines of the log."""
    ended = finished(client, client.post("/operations/scan", json=body))
    assert ended["status"] == "completed", ended
    lines = client.get(f"/operations/{ended['id']}/logs", params={"limit": 500}).json()["data"]
    return [line["message"] for line in lines["items"]]


def books(client: httpx.Client) -> list[dict[str, Any]]:
    return list(client.get("/books").json()["data"]["items"])


def segments(client: httpx.Client, book: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    reply = client.get(f"/books/{book['id']}/segments", params=query)
    return list(reply.json()["data"]["items"])


def album(root: Path, count: int = 3, seconds: float = 10, **tags: str) -> Path:
    folder = root / "dispossessed"
    for track in range(1, count + 1):
        given = {**TAGS, "title": f"Part {track}", "track": str(track), **tags}
        write_audio(folder / f"part {track}.wav", seconds, tags=given)
    return folder


def test_a_folder_becomes_a_book_with_segments_in_order(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0], 11)
    (folder / "notes.txt").write_text("not audio")
    assert "Scanned 11 files: 11 added" in scan(admin)[-1]
    [book] = books(admin)
    assert book["title"] == "The Dispossessed" and book["author_name"] == "Ursula K. Le Guin"
    assert book["narrator"] == "Don Leslie" and book["duration"] == 110 and book["work_id"]
    found = segments(admin, book)
    assert [each["track_number"] for each in found] == list(range(1, 12))
    assert [each["title"] for each in found][9:] == ["Part 10", "Part 11"]
    assert found[2]["offset_start"] == 20


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
@pytest.mark.parametrize("text", ["\u0300\u0316" * 2_500, "\u0f81" * 5_000, "\ufdfa" * 5_000])
def test_tags_that_are_slow_to_normalize_fail_no_scan(
    text: str, service: LibraryService, admin: httpx.Client
) -> None:
    """Ten such files kept the service for six seconds."""
    tags = dict.fromkeys(("album", "author", "series", "genre", "narrator", "title"), f"A{text}")
    album(service.roots[0], 3, 10, **tags)
    start = process_time()
    lines = scan(admin)
    assert "Scanned 3 files: 3 added" in lines[-1], lines
    assert process_time() - start < 2
    [book] = books(admin)
    assert len(book["title"]) <= 200
    assert admin.get("/search", params={"q": "A"}).status_code == 200


def test_every_format_is_read_with_chapters_and_cover(
    service: LibraryService, admin: httpx.Client
) -> None:
    root, cover = service.roots[0], png(200, 30, 30)
    for format in FORMATS:
        tags = {**TAGS, "album": format, "series": "Hainish", "series_part": "1.5"}
        marks = [(0, "One"), (10, "Two: more")]
        write_audio(root / format / f"a.{format}", 20, tags=tags, chapters=marks, cover=cover)
    scan(admin)
    found = {book["title"]: book for book in books(admin)}
    assert set(found) == set(FORMATS)
    for format, book in found.items():
        assert book["series_name"] == "Hainish" and book["series_position"] == 1.5
        [segment] = segments(admin, book)
        assert [each["title"] for each in segment["chapters"]] == ["One", "Two: more"]
        assert segment["format"] == format and abs(segment["duration_seconds"] - 20) < 0.1
        picture = admin.get(book["cover_url"].removeprefix("/audiobooks/api/v1"))
        assert picture.content == cover and picture.headers["content-type"] == "image/png"


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_the_movement_is_the_series(service: LibraryService, admin: httpx.Client) -> None:
    mp3: Any = MP3(write_audio(service.roots[0] / "a" / "a.mp3", 5, tags={**TAGS, "album": "A"}))
    mp3.tags.add(MVNM(encoding=3, text=["Hainish"]))
    mp3.tags.add(MVIN(encoding=3, text=["1.5"]))
    mp3.save()
    m4b = MP4(write_audio(service.roots[0] / "b" / "b.m4b", 5, tags={**TAGS, "album": "B"}))
    m4b["\xa9mvn"] = ["Hainish"]
    m4b["\xa9mvi"] = [2]
    m4b.save()
    scan(admin)
    found = [(each["title"], each["series_name"], each["series_position"]) for each in books(admin)]
    assert found == [("A", "Hainish", 1.5), ("B", "Hainish", 2)]


def test_a_second_scan_reads_and_changes_nothing(
    service: LibraryService, admin: httpx.Client
) -> None:
    album(service.roots[0])
    scan(admin)
    [book] = books(admin)
    before = segments(admin, book)
    assert "3 unchanged" in scan(admin)[-1] and books(admin) == [book]
    assert segments(admin, book) == before


def test_a_wav_file_is_as_long_as_its_bytes_whatever_its_header_says(tmp_path: Path) -> None:
    whole = write_audio(tmp_path / "whole.wav", 10, tags=TAGS).read_bytes()
    at = whole.index(b"data") + 4
    for number, (content, seconds) in enumerate(
        (
            (whole, 10),
            (whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :], 10),  # written as a stream
            (whole[: at + 4 + (len(whole) - at - 4) // 2], 5),  # a download that broke off
        )
    ):
        file = tmp_path / f"{number}.wav"
        file.write_bytes(content)
        assert read_tags(file).duration_seconds == pytest.approx(seconds, rel=0.05), number


def test_broken_and_empty_files_are_lines_of_the_log(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0])
    (folder / "broken.mp3").write_bytes(b"this is not audio")
    (folder / "empty.flac").write_bytes(b"")
    lines = scan(admin)
    assert sum("broken.mp3" in line or "empty.flac" in line for line in lines) == 2
    assert "3 added" in lines[-1] and "2 broken" in lines[-1]


@on_both_engines
def test_a_moved_file_keeps_its_segment_and_a_missing_one_becomes_inactive(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    folder = album(root)
    scan(admin)
    [book] = books(admin)
    ids = [each["id"] for each in segments(admin, book)]
    (folder / "part 2.wav").rename(folder / "part 2 again.wav")
    lines = scan(admin)
    assert "1 moved, 0 missing" in lines[-1]
    assert [each["id"] for each in segments(admin, book)] == ids
    (folder / "part 2 again.wav").rename(service.folder / "away.wav")
    assert "1 missing" in scan(admin)[-1]
    assert [each["id"] for each in segments(admin, book)] == [ids[0], ids[2]]
    assert len(segments(admin, book, inactive=True)) == 3
    shutil.move(service.folder / "away.wav", folder / "part 2 again.wav")
    scan(admin)
    assert [each["id"] for each in segments(admin, book)] == ids  # active again


def test_a_renamed_folder_stays_the_same_book(service: LibraryService, admin: httpx.Client) -> None:
    folder = album(service.roots[0])
    scan(admin)
    [book] = books(admin)
    folder.rename(folder.with_name("renamed"))
    assert "3 moved" in scan(admin)[-1]
    assert [each["id"] for each in books(admin)] == [book["id"]]
    assert "3 unchanged" in scan(admin)[-1]


def test_a_changed_file_is_read_again(service: LibraryService, admin: httpx.Client) -> None:
    folder = album(service.roots[0])
    scan(admin)
    write_audio(folder / "part 1.wav", 30, tags={**TAGS, "title": "New", "track": "1"})
    assert "1 changed" in scan(admin)[-1]
    [book] = books(admin)
    assert book["duration"] == 50 and segments(admin, book)[0]["title"] == "New"


def test_fields_edited_by_hand_survive_a_scan(service: LibraryService, admin: httpx.Client) -> None:
    album(service.roots[0])
    scan(admin)
    [book] = books(admin)
    admin.patch(f"/books/{book['id']}", json={"title": "Mine", "narrator": "Me"})
    ids = [each["id"] for each in segments(admin, book)][::-1]
    path = f"/books/{book['id']}/segments/order"
    assert admin.put(path, json={"segment_ids": ids}).status_code == 200
    scan(admin, force_update=True)
    [after] = books(admin)
    assert (after["title"], after["narrator"]) == ("Mine", "Me")
    assert [each["id"] for each in segments(admin, after)] == ids
    assert is_error(admin.put(path, json={"segment_ids": ids[:2]}), 422, "VALIDATION_ERROR")


def test_the_same_album_in_two_folders_is_two_books_of_one_work(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0])
    for file in folder.iterdir():
        other = service.roots[0] / "copy" / file.name
        write_audio(other, 12, tags={**TAGS, "title": file.stem})
    scan(admin)
    one, two = books(admin)
    assert one["work_id"] == two["work_id"] and one["author_id"] == two["author_id"]


def test_symbolic_links_are_not_followed(
    service: LibraryService, admin: httpx.Client, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    write_audio(outside / "secret.wav", 5, tags=TAGS)
    os.symlink(outside, service.roots[0] / "link")
    os.symlink(outside / "secret.wav", service.roots[0] / "file.wav")
    assert "Scanned 0 files" in scan(admin)[-1]
    for path in (str(outside), "../outside", "link", "/etc"):
        reply = admin.post("/operations/scan", json={"folder_path": path})
        assert is_error(reply, 422, "VALIDATION_ERROR"), path
    absent = admin.post("/operations/scan", json={"folder_path": "absent"})
    assert is_error(absent, 404, "NOT_FOUND")


def test_files_of_a_root_that_is_away_are_not_missing(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    album(root)
    scan(admin)
    root.rename(root.with_name("unmounted"))
    assert "0 missing" in scan(admin)[-1]
    [book] = books(admin)
    assert len(segments(admin, book)) == 3
    root.with_name("unmounted").rename(root)


def test_files_of_a_folder_that_cannot_be_read_are_not_missing(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = album(service.roots[0])
    scan(admin)
    scandir = os.scandir

    def failing(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing)
        lines = scan(admin)
    assert f"{folder}: Permission denied" in lines and "0 missing" in lines[-1]
    [book] = books(admin)
    assert len(segments(admin, book)) == 3
    shutil.rmtree(folder)
    assert "3 missing" in scan(admin)[-1]


def test_a_file_whose_name_is_not_utf_8_is_a_line_of_the_log(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0], count=1)
    shutil.copy(folder / "part 1.wav", os.fsdecode(os.fsencode(folder) + b"/part \xff.wav"))
    lines = scan(admin)
    assert any("part \ufffd.wav: the name is not UTF-8" in line for line in lines)
    assert "Added The Dispossessed (1 file)." in lines


def test_audio_is_sent_by_ranges(service: LibraryService, admin: httpx.Client) -> None:
    folder = album(service.roots[0], 1)
    scan(admin)
    [book] = books(admin)
    [segment] = segments(admin, book)
    path = segment["audio_url"].removeprefix("/audiobooks/api/v1")
    content = (folder / "part 1.wav").read_bytes()
    whole = admin.get(path)
    assert whole.content == content and whole.headers["content-type"] == "audio/wav"
    part = admin.get(path, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, content[100:200])
    tag = {"Range": "bytes=0-9", "If-Range": whole.headers["etag"]}
    assert admin.get(path, headers=tag).status_code == 206
    assert admin.get(path, headers={**tag, "If-Range": '"other"'}).status_code == 200
    assert admin.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    beyond = admin.get(path, headers={"Range": f"bytes={len(content)}-"})
    assert is_error(beyond, 416, "BAD_REQUEST")
    (folder / "part 1.wav").unlink()
    os.symlink("/etc/passwd", folder / "part 1.wav")
    assert is_error(admin.get(path), 404, "NOT_FOUND")


def test_organize_shows_the_moves_first_and_never_overwrites(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    album(root, 2)
    scan(admin)
    dry = finished(admin, admin.post("/operations/organize", json={}))
    lines = admin.get(f"/operations/{dry['id']}/logs").json()["data"]["items"]
    target = root / "Ursula K. Le Guin/The Dispossessed/001 The Dispossessed.wav"
    assert str(target) in lines[0]["message"] and not target.exists()
    target.parent.mkdir(parents=True)
    target.write_bytes(b"mine")
    finished(admin, admin.post("/operations/organize", json={"dry_run": False}))
    assert target.read_bytes() == b"mine"
    assert target.with_name("002 The Dispossessed.wav").exists()
    target.unlink()
    finished(admin, admin.post("/operations/organize", json={"dry_run": False}))
    assert target.exists() and "2 unchanged" in scan(admin)[-1]
    for pattern in ("{nonsense}{track}{ext}", "{title}", "/x/{track}.{ext}", "../{track}.{ext}"):
        reply = admin.post("/operations/organize", json={"pattern": pattern})
        assert is_error(reply, 400, "BAD_REQUEST")


def test_operations_are_listed_and_deleted(service: LibraryService, admin: httpx.Client) -> None:
    assert finished(admin, admin.post("/operations/scan"))["status"] == "completed"
    wrong = admin.post("/operations/scan", json={"force_update": "x"})
    assert is_error(wrong, 422, "VALIDATION_ERROR")
    [operation] = admin.get("/operations").json()["data"]["items"]
    assert operation["type"] == "scan" and operation["status"] == "completed"
    assert operation["completed_at"] and operation["progress"] == {"current": 0, "total": 0}
    assert admin.delete(f"/operations/{operation['id']}").status_code == 204
    assert is_error(admin.get(f"/operations/{operation['id']}"), 404, "NOT_FOUND")
    if shutil.which("ffmpeg") is None:
        made = admin.post("/books", json={"title": "x"}).json()["data"]["id"]
        for path, body in (
            ("/operations/transcode", {"book_id": made}),
            (f"/books/{made}/merge", {}),
        ):
            assert is_error(admin.post(path, json=body), 501, "SERVICE_UNAVAILABLE")


def test_changes_are_streamed(service: LibraryService, admin: httpx.Client) -> None:
    with admin.stream("GET", "/events", params={"since": 0}) as events:
        assert events.headers["content-type"] == "text/event-stream"
        made = admin.post("/books", json={"title": "Dune"}).json()["data"]
        for line in events.iter_lines():
            if line.startswith("data:") and made["id"] in line:
                assert '"title":"Dune"' in line
                break


def read_events(client: httpx.Client, count: int, **options: Any) -> list[tuple[str, str]]:
    """Return events of the library: their names and the ids of streams."""
    found: list[tuple[str, str]] = []
    id = ""
    with client.stream("GET", "/events", timeout=10, **options) as events:
        for line in events.iter_lines():
            if line.startswith("id:"):
                id = line[3:].strip()
            elif line.startswith("event:"):
                found.append((line[6:].strip(), id))
            if len(found) == count:
                return found
    raise AssertionError("the stream ended")


def test_one_stream_has_all_records_of_the_library_in_order(
    service: LibraryService, admin: httpx.Client
) -> None:
    author = admin.post("/authors", json={"name": "A"}).json()["data"]["id"]
    series = admin.post("/series", json={"name": "S"}).json()["data"]["id"]
    book = admin.post("/books", json={"title": "B", "author_id": author}).json()["data"]["id"]
    admin.put("/preferences/x", json=1)
    admin.post("/works", json={"title": "W"})
    admin.patch(f"/books/{book}", json={"series_id": series})
    admin.delete(f"/series/{series}", params={"detach": True})
    names = ["author.updated", "work.updated", "book.updated", "series.deleted"]  # newest states
    events = read_events(admin, 4, params={"since": 0})
    assert [name for name, _ in events] == names
    for at in range(3):
        rest = read_events(admin, 3 - at, headers={"Last-Event-ID": events[at][1]})
        assert rest == events[at + 1 :], "nothing is missed or repeated after a reconnect"
    only = read_events(admin, 1, params={"since": 0, "type": "book"})
    assert only == events[2:3]


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_a_file_is_read_whatever_its_name_says(
    service: LibraryService, admin: httpx.Client
) -> None:
    """An mp3 that was named .flac was called broken, and an m4b that was named .mp3 was sent as
    audio/mpeg."""
    root = service.roots[0]
    names = {f"{format} in {other}": (format, other) for format in FORMATS for other in FORMATS}
    for name, (format, other) in names.items():
        written = write_audio(root / "x" / f"a.{format}", 20, tags={**TAGS, "album": name})
        written.rename(root / f"{name}.{other}")
    (root / "damaged.opus").write_bytes(b"OggS" + bytes(30) + b"OpusHead" + bytes(100))
    lines = scan(admin)
    assert f"{len(names)} added" in lines[-1] and "1 broken" in lines[-1]
    for book in books(admin):
        [segment] = segments(admin, book)
        path = segment["audio_url"].removeprefix("/audiobooks/api/v1")
        sent = admin.get(path, headers={"Range": "bytes=0-0"}).headers["content-type"]
        assert sent == MEDIA_TYPES[names[book["title"]][0]], book["title"]


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_many_files_are_read_in_processes_and_one_folder_may_have_all(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    one = write_audio(root / "0.ogg", 5, tags={})
    for number in range(1, 700):
        (root / f"{number}.ogg").write_bytes(one.read_bytes())
    assert "700 added" in scan(admin)[-1]
    [book] = books(admin)
    found = segments(admin, book)
    assert [Path(each["file_path"]).stem for each in found] == [str(n) for n in range(700)]
    assert {each["total_tracks"] for each in found} == {700}


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_files_are_never_read_in_the_service_even_if_no_process_starts(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read in a thread then, where one file could take all memory."""
    write_audio(service.roots[0] / "0.ogg", 5, tags={})
    for program in ("/nonexistent", shutil.which("false") or "false"):
        monkeypatch.setattr("sys.executable", program)
        ended = finished(admin, admin.post("/operations/scan"))
        assert ended["status"] == "failed" and "does not start" in ended["error"]
    assert books(admin) == []


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_segments_come_in_pages_and_have_chapters_or_null(
    service: LibraryService, admin: httpx.Client
) -> None:
    album(service.roots[0], 5)
    scan(admin)
    [book] = books(admin)
    whole = segments(admin, book)
    assert len(whole) == 5 and all(each["chapters"] is None for each in whole)
    found, cursor = [], None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = admin.get(f"/books/{book['id']}/segments", params=query).json()["data"]
        found += page["items"]
        assert page["total"] == 5
        cursor = page.get("cursor")
        if cursor is None:
            break
    assert found == whole
    for limit in (0, 501):
        reply = admin.get(f"/books/{book['id']}/segments", params={"limit": limit})
        assert is_error(reply, 400, "BAD_REQUEST")


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_line_breaks_and_control_characters_of_tags_are_spaces(
    service: LibraryService, admin: httpx.Client
) -> None:
    tags = {name: "a\r\nb\x0b\x1b[31m\u2028c" for name in ("title", "album", "author", "series")}
    write_audio(service.roots[0] / "a.flac", 5, tags=tags, chapters=[(0, "x\ny")])
    lines = scan(admin)
    [book] = books(admin)
    assert book["title"] == book["author_name"] == book["series_name"] == "a b [31m c"
    [segment] = segments(admin, book)
    assert (segment["title"], segment["chapters"][0]["title"]) == ("a b [31m c", "x y")
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_formats_that_are_not_read_are_named(service: LibraryService, admin: httpx.Client) -> None:
    for name in ("a.mka", "b.MKA", "c.webm", "d.txt"):
        (service.roots[0] / name).write_bytes(b"x")
    lines = scan(admin)
    assert any("2 files are not read, being .mka:" in line for line in lines)
    assert any("1 file is not read, being .webm:" in line for line in lines)
    assert not any(".txt" in line for line in lines)


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_aiff_is_read(service: LibraryService, admin: httpx.Client) -> None:
    comm = struct.pack(">hIh", 1, 8_000 * 5, 8) + bytes.fromhex("400bfa00000000000000")
    sound = struct.pack(">II", 0, 0) + bytes(8_000 * 5)
    chunks = [(b"COMM", comm), (b"SSND", sound)]
    body = b"AIFF" + b"".join(name + struct.pack(">I", len(part)) + part for name, part in chunks)
    (service.roots[0] / "a.aiff").write_bytes(b"FORM" + struct.pack(">I", len(body)) + body)
    assert "1 added" in scan(admin)[-1]
    [book] = books(admin)
    assert book["duration"] == 5
