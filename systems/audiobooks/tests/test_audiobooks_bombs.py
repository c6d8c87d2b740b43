"""Hostile files and names, through every operation that reads files: one file is a line of the
log, and neither memory nor event loop of the service notice it."""

import os
import struct
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse_audiobooks.files import file_reader, reader_process
from keyhouse_audiobooks.files.audio_files import DEPTH_MAX
from keyhouse_audiobooks.files.generated_audio import png, write_audio
from systems.audiobooks.tests.support.ffmpeg import ffmpeg_folder
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_scan import TAGS, books, finished, scan, segments
from tests.sizes import SOAK, size

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

MEGABYTE = 1_024 * 1_024
GROWTH_BYTES_MAX = 256 * MEGABYTE
LOOP_SECONDS_MAX = 2.0
"""Longest reply of the service meanwhile, in a soak: on a machine that does other things too, a
reply takes any time."""


def _synchsafe(number: int) -> bytes:
    return bytes((number >> shift) & 0x7F for shift in (21, 14, 7, 0))


def _id3(frames: bytes) -> bytes:
    return b"ID3\x04\0\0" + _synchsafe(len(frames)) + frames


def _mp3() -> bytes:
    return (b"\xff\xfb\x90\x00" + bytes(413)) * 400


TOO_MANY_MEGABYTES = reader_process.MEMORY_BYTES_MAX // MEGABYTE + 20
"""More than the process that reads files may hold."""


@cache
def _packed(megabytes: int) -> bytes:
    """Compress one megabyte and repeat it: after a full flush, the next one has the same bytes."""
    packer = zlib.compressobj(1)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"A" * MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 1
    for _ in range(megabytes):
        checksum = zlib.adler32(b"A" * MEGABYTE, checksum)
    return head + block * megabytes + b"\x03\0" + struct.pack(">I", checksum)


def _compressed_frame(name: bytes, megabytes: int) -> bytes:
    """Return a frame that is compressed, with the flags 0x0009 (ID3v2.4)."""
    packed = _packed(megabytes)
    body = _synchsafe((megabytes * MEGABYTE) & 0x0FFFFFFF) + packed
    return name + _synchsafe(len(body)) + b"\x00\x09" + body


def _atom(name: bytes, *content: bytes, size: int | None = None) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body) if size is None else size) + name + body


def compressed_text(path: Path) -> None:
    path.write_bytes(_id3(_compressed_frame(b"TXXX", TOO_MANY_MEGABYTES)) + _mp3())


def compressed_texts(path: Path) -> None:
    frame = _compressed_frame(b"TXXX", TOO_MANY_MEGABYTES // 12 + 1)
    path.write_bytes(_id3(frame * 12) + _mp3())


def compressed_picture(path: Path) -> None:
    path.write_bytes(_id3(_compressed_frame(b"APIC", TOO_MANY_MEGABYTES)) + _mp3())


def sparse_cover(path: Path) -> None:
    """A cover of 3 GB in a file of 4 kB."""
    size = 3 * 1_024 * MEGABYTE
    data = struct.pack(">I4sII", size, b"data", 13, 0)
    head = b"".join(
        struct.pack(">I4s", size + extra, name) + bytes(4 if name == b"meta" else 0)
        for name, extra in (
            (b"moov", 44),
            (b"udta", 36),
            (b"meta", 28),
            (b"ilst", 16),
            (b"covr", 8),
        )
    )
    path.write_bytes(_atom(b"ftyp", b"M4B ", bytes(4)) + head + data)
    os.truncate(path, size + 200)


def nested_atoms(path: Path) -> None:
    depth = 20_000
    heads = b"".join(struct.pack(">I4s", 8 * (depth - level), b"udta") for level in range(depth))
    path.write_bytes(_atom(b"ftyp", b"M4B ", bytes(4)) + _atom(b"moov", heads))


def many_atoms(path: Path) -> None:
    path.write_bytes(
        _atom(b"ftyp", b"M4B ", bytes(4))
        + _atom(b"moov", _atom(b"free") * size(100_000, 500_000, 500_000))
    )


def huge_flac_picture(path: Path) -> None:
    """A picture block that says 4 GB, and one that is 16 MB of nothing."""
    write_audio(path, 5, tags={})
    content = path.read_bytes()
    body = struct.pack(">II", 3, 0xFFFFFFF0) + bytes(40)
    block = bytes([0x06]) + len(body).to_bytes(3, "big") + body
    large = bytes([0x06]) + (0xFFFFFF).to_bytes(3, "big") + bytes(0xFFFFFF)
    path.write_bytes(content[:42] + block + large * 8 + content[42:])


def endless_comments(path: Path) -> None:
    """Vorbis comments whose number and lengths are those of the largest numbers."""
    write_audio(path, 5, tags={})
    content = path.read_bytes()
    at = content.index(b"\x03vorbis") + 7
    changed = content[:at] + struct.pack("<II", 0, 0xFFFFFFFF) + content[at + 8 :]
    path.write_bytes(changed)


def many_comments(path: Path) -> None:
    write_audio(path, 5, tags={f"x{number}": "A" * 50 for number in range(3_000)})


def sparse_wave(path: Path) -> None:
    """Chunks of the ID3 tag of a WAV file, more zeros than fit into memory."""
    write_audio(path, 5, tags={})
    content = path.read_bytes()
    size = TOO_MANY_MEGABYTES * MEGABYTE
    path.write_bytes(content + b"id3 " + struct.pack("<I", size) + b"ID3\x04\0\0\x7f\x7f\x7f\x7f")
    os.truncate(path, len(content) + size)


def endless_size(path: Path) -> None:
    path.write_bytes(_mp3())
    os.truncate(path, 1 << 42)


def large_hole(path: Path) -> None:
    """Audio, and 12 GB that were never written, which took 20 seconds to hash."""
    path.write_bytes(_mp3())
    os.truncate(path, 12 * 1_024 * MEGABYTE)


def zip_of_zeros(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.mp3", bytes(20 * MEGABYTE))


def many_chapters(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    titles = [(number / 100, "C" * 2_000) for number in range(300)]
    write_audio(path, 60, tags={}, chapters=titles)


BOMBS: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "compressed text": ("mp3", compressed_text),
    "compressed texts": ("mp3", compressed_texts),
    "compressed picture": ("mp3", compressed_picture),
    "sparse cover": ("m4b", sparse_cover),
    "nested atoms": ("m4b", nested_atoms),
    "many atoms": ("m4b", many_atoms),
    "huge flac picture": ("flac", huge_flac_picture),
    "endless comments": ("ogg", endless_comments),
    "many comments": ("ogg", many_comments),
    "sparse wave": ("wav", sparse_wave),
    "endless size": ("mp3", endless_size),
    "large hole": ("mp3", large_hole),
    "zip": ("mp3", zip_of_zeros),
    "many chapters": ("mp3", many_chapters),
}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Neighbour:
    """Another client, which asks for something small all the time, and watches the memory of the
    service, whose process is this one."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._ends = threading.Event()
        self.slowest = 0.0
        self.calm_bytes = self.most_bytes = _resident_bytes()

    def run(self) -> None:
        while not self._ends.wait(0.05):
            started = time.perf_counter()
            assert self._client.get("/auth/me").status_code == 200
            self.slowest = max(self.slowest, time.perf_counter() - started)
            self.most_bytes = max(self.most_bytes, _resident_bytes())

    def end(self) -> None:
        self._ends.set()


@contextmanager
def undisturbed(service: LibraryService) -> Iterator[None]:
    """Assert that the service neither grows nor waits."""
    with service.signed_in("admin") as client:
        client.get("/auth/me")
        neighbour = Neighbour(client)
        thread = threading.Thread(target=neighbour.run)
        thread.start()
        try:
            yield
        finally:
            neighbour.end()
            thread.join()
    assert neighbour.most_bytes - neighbour.calm_bytes < GROWTH_BYTES_MAX
    assert not SOAK or neighbour.slowest < LOOP_SECONDS_MAX


@pytest.mark.soak
def test_a_bomb_is_one_broken_file_for_every_reader(
    service: LibraryService, admin: httpx.Client
) -> None:
    """An mp3 of 1.6 MB took 4.5 GB in the service, and ended it in a container."""
    root = service.roots[0]
    write_audio(root / "good" / "01.wav", 5, tags=TAGS)
    paths: dict[str, Path] = {}
    for name, (extension, write) in BOMBS.items():
        paths[name] = path = root / f"bad {name}" / f"02.{extension}"
        path.parent.mkdir()
        write(path)
    write_audio(root / "good" / "03.wav", 5, tags=TAGS)
    with undisturbed(service):
        lines = scan(admin)
        [good] = [each for each in books(admin) if each["title"] == TAGS["album"]]
        assert len(segments(admin, good)) == 2, lines
        for name, path in paths.items():
            reply = admin.post(f"/books/{good['id']}/merge", json={"file_path": str(path)})
            assert reply.status_code in (409, 422), (name, reply.text)  # broken, or too short


def test_covers_of_many_files_are_not_held_at_once(
    service: LibraryService, admin: httpx.Client
) -> None:
    """A chunk of 128 files was held with the pictures of all of them: 20 MB each."""
    root = service.roots[0]
    picture = png(1, 2, 3)
    for number in range(20):  # 300 MB, more than may be held
        path = root / f"{number}" / "a.flac"
        write_audio(path, 5, tags={"album": f"Book {number}"}, cover=picture + bytes(15 * MEGABYTE))
    with undisturbed(service):
        assert "20 added" in scan(admin)[-1]
    assert all(book["cover_url"] for book in books(admin))


def test_a_hostile_picture_of_a_folder_is_left_out(
    service: LibraryService, admin: httpx.Client, tmp_path: Path
) -> None:
    root = service.roots[0]
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(1, 2, 3))
    names = ("cover.jpg", "cover.png", "folder.png")
    for kind, name in product(("fifo", "sparse", "link", "folder"), names):
        album = f"{kind} {name}"
        path = write_audio(root / album / "a.wav", 5, tags={"album": album}).with_name(name)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "sparse":
            path.write_bytes(png(1, 2, 3))
            os.truncate(path, 1 << 40)
        elif kind == "link":
            path.symlink_to(secret)
        else:
            path.mkdir()
    with undisturbed(service):
        assert "12 added" in scan(admin)[-1]
    assert [book["cover_url"] for book in books(admin)] == [None] * 12


def test_a_file_that_takes_too_long_is_broken_and_the_next_is_read(
    service: LibraryService, admin: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU time of the process is limited for each file, and so is the time of waiting."""
    root = service.roots[0]
    for number in (1, 2, 3):
        write_audio(root / f"{number}.wav", 5, tags={**TAGS, "track": str(number)})
    stall = """
import keyhouse_audiobooks.files.reader_process as process
process.CPU_SECONDS_MAX = 0
read = process.read_file
def stall(found, roots):
    while found.path.endswith("2.wav"):
        HOW
    return read(found, roots)
process.read_file = stall
"""
    for how, seconds in (("pass", 60.0), ("__import__('time').sleep(60)", 1.0)):

        def command(roots: Any, how: str = how) -> list[str]:
            program, option, code, *rest = reader_process.command(roots)
            code = code.replace("main(sys", stall.replace("HOW", how) + "main(sys")
            return [program, option, code, *rest]

        monkeypatch.setattr(file_reader, "command", command)
        monkeypatch.setattr(file_reader, "FILE_SECONDS_MAX", seconds)
        lines = scan(admin, force_update=True)
        assert f"{root}/2.wav: takes too long to read" in lines
        assert "1 broken" in lines[-1], lines


def test_a_folder_of_any_depth_does_not_end_a_scan(
    service: LibraryService, admin: httpx.Client
) -> None:
    """1,100 folders within each other were a RecursionError, and no file was added."""
    root = service.roots[0]
    write_audio(root / "good" / "a.wav", 5, tags=TAGS)
    before = os.getcwd()
    os.chdir(root)
    for _ in range(1_100):
        os.mkdir("d")
        os.chdir("d")
    try:
        lines = scan(admin)
    finally:
        for _ in range(1_100):  # pytest cannot remove it, and would fail in every later run
            os.chdir("..")
            os.rmdir("d")
        os.chdir(before)
    assert "1 added" in lines[-1]
    assert any(f"more than {DEPTH_MAX} folders deep" in line for line in lines)


NAMES = {
    **{f"control {code:02x}": f"a{chr(code)}b" for code in [*range(1, 32), 127, 0x85, 0x9B]},
    "line separator": "a\u2028b",
    "list": "x\nfile ",
    "quote": "it's",
    "double quote": 'a"b',
    "backslash": "a\\b",
    "dash": "-i",
    "percent": "%03d",
    "protocol": "concat:a|b",
    "variable": "$HOME `id`",
}


CONTROLS = {name: text for name, text in NAMES.items() if not text.isprintable()}


def test_a_name_with_control_characters_is_rejected_by_every_operation(
    service: LibraryService, admin: httpx.Client
) -> None:
    """A folder named `x⏎file ` made ffmpeg read a file outside of the roots."""
    root = service.roots[0]
    for text in CONTROLS.values():
        write_audio(root / text / f"{text} 1.mp3", 5, tags=TAGS)
        write_audio(root / f"{text}.mp3", 5, tags={**TAGS, "album": "Other"})
    lines = scan(admin)
    assert books(admin) == []
    assert sum("control characters" in line for line in lines) == 2 * len(CONTROLS)
    assert all(line.isprintable() for line in lines)
    made = admin.post("/books", json={"title": "x"}).json()["data"]["id"]
    for text in CONTROLS.values():
        for path in (text, f"{text}.mp3"):
            reply = admin.post("/operations/scan", json={"folder_path": path})
            assert is_error(reply, 422, "VALIDATION_ERROR"), path
        reply = admin.post(f"/books/{made}/merge", json={"file_path": f"{text}.mp3"})
        assert is_error(reply, 422, "VALIDATION_ERROR"), text


def test_a_name_is_only_a_name_for_every_operation(
    service: LibraryService,
    admin: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    root, names = service.roots[0], NAMES.keys() - CONTROLS.keys()
    for name in names:
        text, tags = NAMES[name], {**TAGS, "album": name}
        for number in (1, 2):
            path = root / text / f"{text} {number}.mp3"
            write_audio(path, 5, tags={**tags, "track": str(number)})
        write_audio(root / f"{text}.mp3", 5, tags={**TAGS, "album": f"Other {name}"})
    scan(admin)
    found = {book["title"]: book for book in books(admin)}
    assert found.keys() == {*names, *(f"Other {name}" for name in names)}
    for name in names:
        assert "0 added" in scan(admin, folder_path=NAMES[name])[-1]
        body = {"book_id": found[name]["id"], "format": "mp3"}
        ended = finished(admin, admin.post("/operations/transcode", json=body))
        assert (ended["status"], ended["error"]) == ("completed", None), name
        [segment] = segments(admin, found[name])
        assert segment["duration_seconds"] == pytest.approx(10, abs=0.2)
        part = admin.get(f"/segments/{segment['id']}/audio", headers={"Range": "bytes=0-2"})
        assert part.status_code == 206
    ended = finished(admin, admin.post("/operations/organize", json={"dry_run": False}))
    assert ended["status"] == "completed"
    assert "0 missing" in scan(admin)[-1]


PLAYLISTS = {
    "list": "ffconcat version 1.0\nfile '{secret}'\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{secret}\n#EXT-X-ENDLIST\n",
    "hls by url": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile://{secret}\n#EXT-X-ENDLIST\n",
    "remote": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nhttp://127.0.0.1:9/a.mp3\n",
    "dash": "<?xml version='1.0'?><MPD><Period><AdaptationSet><Representation><BaseURL>"
    "{secret}</BaseURL></Representation></AdaptationSet></Period></MPD>",
}


def test_a_playlist_that_is_named_mp3_leads_nowhere(
    service: LibraryService, admin: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    secret = write_audio(tmp_path / "secret" / "secret.mp3", 5, tags={})
    root = service.roots[0]
    for number in (1, 2):
        write_audio(root / "a" / f"{number}.mp3", 5, tags={**TAGS, "track": str(number)})
    scan(admin)
    [book] = books(admin)
    for kind, text in PLAYLISTS.items():
        (root / "a" / "2.mp3").write_text(text.format(secret=secret))
        body = {"book_id": book["id"], "format": "mp3"}
        ended = finished(admin, admin.post("/operations/transcode", json=body))
        assert ended["status"] == "failed" and "ffmpeg" in ended["error"], kind
        assert len(segments(admin, book)) == 2, kind


def test_ffmpeg_reads_no_file_through_a_link(
    service: LibraryService, admin: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    secret = write_audio(tmp_path / "secret" / "secret.mp3", 5, tags={})
    path = write_audio(service.roots[0] / "a" / "1.mp3", 5, tags=TAGS)
    scan(admin)
    path.unlink()
    path.symlink_to(secret)
    [book] = books(admin)
    ended = finished(admin, admin.post("/operations/transcode", json={"book_id": book["id"]}))
    assert ended["status"] == "failed" and "cannot be read" in ended["error"]


def _shelved(service: LibraryService, admin: httpx.Client, count: int = 2) -> dict[str, Any]:
    """Return a book of some files in the folder `a`."""
    for number in range(1, count + 1):
        path = service.roots[0] / "a" / f"{number}.mp3"
        write_audio(path, 5, tags={**TAGS, "track": str(number)})
    scan(admin)
    [book] = books(admin)
    return book


SWAPS = {
    "file": "mv a/2.mp3 moved.mp3; ln -s SECRET a/2.mp3",
    "folder": "mv a moved; ln -s SECRET_FOLDER a",
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_link_put_in_place_of_an_input_just_before_ffmpeg_starts_is_not_followed(
    service: LibraryService,
    admin: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    swap: str,
) -> None:
    """Files were checked, and then opened by name: a link put there in between was followed."""
    real = ffmpeg_folder(tmp_path / "real")
    secret = write_audio(tmp_path / "secret" / "2.mp3", 90, tags={})
    write_audio(tmp_path / "secret" / "1.mp3", 90, tags={})
    book, root = _shelved(service, admin), service.roots[0]
    programs = tmp_path / "programs"
    programs.mkdir()
    command = SWAPS[swap].replace("SECRET_FOLDER", str(secret.parent))
    command = command.replace("SECRET", str(secret))
    program = programs / "ffmpeg"
    program.write_text(f'#!/bin/sh\n(cd {root}; {command})\nexec {real}/ffmpeg "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    before = {path: path.read_bytes() for path in secret.parent.iterdir()}
    body = {"book_id": book["id"], "format": "mp3"}
    ended = finished(admin, admin.post("/operations/transcode", json=body))
    assert {path: path.read_bytes() for path in secret.parent.iterdir()} == before
    if swap == "file":
        assert (ended["status"], ended["error"]) == ("completed", None)
        [segment] = segments(admin, book)
        assert segment["duration_seconds"] == pytest.approx(10, abs=0.2), "not the secret's"
    else:
        assert ended["status"] == "failed"


@pytest.mark.parametrize("name", [".{}.part.mp3", "{}.mp3"])
def test_a_link_in_place_of_the_output_is_not_written_through(
    service: LibraryService,
    admin: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """ffmpeg wrote to a draft of a known name beside the files: a link that waited there made it
    overwrite any file of the service's user."""
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    book = _shelved(service, admin)
    title = f"{book['title']}.mp3" if "part" in name else book["title"]
    (service.roots[0] / "a" / name.format(title)).symlink_to(victim)
    body = {"book_id": book["id"], "format": "mp3"}
    ended = finished(admin, admin.post("/operations/transcode", json=body))
    assert victim.read_bytes() == b"precious"
    assert ended["status"] == ("completed" if "part" in name else "failed")


def test_organizing_moves_no_file_through_a_linked_folder(
    service: LibraryService, admin: httpx.Client, tmp_path: Path
) -> None:
    """A folder of the pattern that was a link led the moved files out of the root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    book, root = _shelved(service, admin), service.roots[0]
    (root / TAGS["album"]).symlink_to(outside)
    body = {"dry_run": False, "pattern": "{title}/{track}.{ext}"}
    ended = finished(admin, admin.post("/operations/organize", json=body))
    assert ended["status"] == "completed" and list(outside.iterdir()) == []
    assert sorted(path.name for path in (root / "a").iterdir()) == ["1.mp3", "2.mp3"]
    assert len(segments(admin, book)) == 2


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


CHANGES: Mapping[str, Callable[[Path], object]] = {
    "endless": lambda path: os.truncate(path, 1 << 42),
    "longer": lambda path: write_audio(path, 50, tags={}),
    "fifo": _replaced(os.mkfifo),
    "device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "empty": lambda path: path.write_bytes(b""),
    "folder": _replaced(Path.mkdir),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_after_its_scan_is_not_given_to_ffmpeg(
    service: LibraryService,
    admin: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    folder = ffmpeg_folder(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    book = _shelved(service, admin)
    CHANGES[change](service.roots[0] / "a" / "2.mp3")
    with undisturbed(service):
        body = {"book_id": book["id"], "format": "mp3"}
        ended = finished(admin, admin.post("/operations/transcode", json=body))
    assert ended["status"] == "failed" and "scan the library" in ended["error"], ended
    names = sorted(path.name for path in (service.roots[0] / "a").iterdir())
    assert names == ["1.mp3", "2.mp3"]
