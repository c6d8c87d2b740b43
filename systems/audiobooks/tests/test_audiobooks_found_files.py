"""Files that scans find: all that organizing, converting and merging leave in a root."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyhouse.errors import KeyhouseError
from keyhouse_audiobooks.files.audio_files import FoundFile, FoundFiles, is_scanned, read_file, walk
from keyhouse_audiobooks.files.generated_audio import write_audio
from keyhouse_audiobooks.files.maintenance import FIELDS, check_pattern, organized_path, safe_name
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_scan import album, books, finished, scan, segments

MEGABYTE = 1_024 * 1_024

NAMES = st.text(st.sampled_from(". ab/\u00a0\u2028\u3000\x01\\é\u200b漢"), max_size=6) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=200
)
PARTS = st.lists(
    st.sampled_from([f"{{{field}}}" for field in sorted(FIELDS)]) | st.sampled_from(". -x\t"),
    max_size=4,
).map("".join)
PATTERNS = st.tuples(st.lists(PARTS, max_size=3), PARTS).map(
    lambda parts: "/".join([*parts[0], f"{parts[1]}{{track}}.{{ext}}"])
)


@given(pattern=PATTERNS, author=NAMES, series=NAMES, title=NAMES)
@example(pattern="{series}.{title}/{track}.{ext}", author="", series="", title="Emma")
@example(pattern="{series} .{title}/{track}.{ext}", author="", series="", title="Emma")
def test_whatever_organize_produces_a_scan_finds(
    pattern: str, author: str, series: str, title: str
) -> None:
    """`{series}.{title}` of a book without a series is `.Emma`, which scans leave out: the next one
    took the book for one that has lost its files."""
    try:
        check_pattern(pattern)
    except KeyhouseError:
        return
    values = {"author": author, "series": series, "title": title, "track": "001", "ext": "mp3"}
    path = organized_path(pattern, values)
    _check_found(path, is_scanned(path))


@given(title=NAMES)
@example(title="...")
def test_whatever_a_conversion_is_named_a_scan_finds(title: str) -> None:
    """A book of the title `...` became `.m4b`."""
    _check_found(f"{safe_name(title) or 'id'}.m4b", True)


def _check_found(path: str, is_expected: bool) -> None:
    with TemporaryDirectory() as root:
        if is_expected or not {"", ".", ".."} & set(path.split("/")):
            file = Path(root, path)
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            except (OSError, ValueError):
                assert not is_expected or len(file.name.encode()) > 255
                return
        found = FoundFiles()
        walk(root, found)
        assert [each.path for each in found.files] == [f"{root}/{path}"] * is_expected


@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_no_operation_takes_a_file_that_scans_leave_out(
    service: LibraryService, admin: httpx.Client
) -> None:
    root = service.roots[0]
    folder = album(root, 2)
    for path in (".hidden/x.wav", "a/.y.wav", "z.bin"):
        (root / path).parent.mkdir(exist_ok=True)
        write_audio(folder / "one.wav", 20, tags={}).rename(root / path)
    scan(admin)
    [book] = books(admin)
    before = segments(admin, book)
    for path in (".hidden/x.wav", "a/.y.wav", "z.bin"):
        reply = admin.post(f"/books/{book['id']}/merge", json={"file_path": path})
        assert is_error(reply, 422, "VALIDATION_ERROR"), reply.text
    reply = admin.post("/operations/scan", json={"folder_path": ".hidden"})
    assert is_error(reply, 422, "VALIDATION_ERROR"), reply.text
    for pattern in (".x/{track}.{ext}", "a/ .{title}/{track}.{ext}", ".{track}.{ext}"):
        body = {"pattern": pattern, "dry_run": False}
        assert is_error(admin.post("/operations/organize", json=body), 400, "BAD_REQUEST")
    body = {"pattern": "{series}.{title}/{track}.{ext}", "dry_run": False}
    assert finished(admin, admin.post("/operations/organize", json=body))["status"] == "completed"
    assert segments(admin, book) == before
    assert "2 unchanged" in scan(admin)[-1] and "0 missing" in scan(admin)[-1]


def test_a_file_that_is_mostly_a_hole_is_broken(tmp_path: Path) -> None:
    """Sparse files, which take no disk, slowed scans down: each gigabyte was hashed."""
    audio, data = b"\xff\xfb\x90\x00", bytes([1]) * MEGABYTE
    for name, parts, is_broken in (
        ("whole", [data, data, data], False),
        ("hole", [data, None, data], False),
        ("holes", [data, None, None, None], True),
        ("pieces", [data, None, None] * 8, True),
        ("nothing", [None] * 4, True),
    ):
        path = tmp_path / f"{name}.mp3"
        with path.open("wb") as file:
            file.write(audio)
            for part in parts:
                file.seek(MEGABYTE, os.SEEK_CUR) if part is None else file.write(part)
            file.truncate()
        status = path.stat()
        found = FoundFile(str(path), status.st_size, status.st_mtime_ns)
        assert ("never written" in read_file(found, [tmp_path]).error) == is_broken, name
