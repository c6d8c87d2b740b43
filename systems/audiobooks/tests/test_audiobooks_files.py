"""Cover files of purged books, and operations that are cancelled or interrupted, over HTTP."""

import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse_audiobooks.files import file_reader, reader_process
from keyhouse_audiobooks.files.generated_audio import png
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_auth import is_error
from systems.audiobooks.tests.test_audiobooks_scan import album, books, finished, scan
from tests.support import engine_openers


def covers(service: LibraryService) -> list[Path]:
    return sorted((service.folder / "audiobooks" / "covers").iterdir())


def test_a_cover_file_is_removed_with_its_last_book(
    service: LibraryService, admin: httpx.Client
) -> None:
    folder = album(service.roots[0], 1)
    (folder / "cover.png").write_bytes(png(8, 8, 8))
    shutil.copytree(folder, service.roots[0] / "copy")
    scan(admin)
    one, two = (f"/books/{book['id']}" for book in books(admin))
    assert len(covers(service)) == 1  # both have the same picture
    for path, left in ((one, 1), (two, 0)):
        assert admin.get(f"{path}/cover").content == png(8, 8, 8)
        admin.delete(path)
        assert admin.delete(path, params={"purge": True}).status_code == 204
        assert len(covers(service)) == left
        assert is_error(admin.get(f"{path}/cover"), 404, "NOT_FOUND")


def test_cover_files_without_a_book_are_removed_at_start(tmp_path: Path) -> None:
    root = tmp_path / "books"
    folder = album(root, 1)
    (folder / "cover.png").write_bytes(png(8, 8, 8))
    opener = engine_openers.ALL["sqlite"](tmp_path)
    with (
        LibraryService(opener, tmp_path / "data", roots=[root]) as service,
        service.admin() as admin,
    ):
        scan(admin)
        [cover] = covers(service)
        cover.with_name(f"{'0' * 64}.png").write_bytes(b"left by a process that was killed")
    with LibraryService(opener, tmp_path / "data", roots=[root]) as service:
        for _ in range(3_000):
            if covers(service) == [cover]:
                break
            threading.Event().wait(0.01)
        assert covers(service) == [cover]


def test_covers_of_services_with_their_own_data_folders_are_in_one_folder(tmp_path: Path) -> None:
    """Only the service that had run the scan had them: behind a proxy, covers flickered."""
    root = tmp_path / "books"
    folder = album(root, 1)
    (folder / "cover.png").write_bytes(png(8, 8, 8))
    opener = engine_openers.ALL["sqlite"](tmp_path)
    shared: dict[str, Any] = {"roots": [root], "covers": str(tmp_path / "covers")}
    with (
        LibraryService(opener, tmp_path / "one", **shared) as one,
        LibraryService(opener, tmp_path / "other", **shared) as other,
        one.admin() as admin,
        other.signed_in("admin") as elsewhere,
    ):
        scan(admin)
        [book] = books(elsewhere)
        path = f"/books/{book['id']}"
        for client in (admin, elsewhere):
            assert client.get(f"{path}/cover").content == png(8, 8, 8)
        elsewhere.delete(path)
        assert elsewhere.delete(path, params={"purge": True}).status_code == 204
        assert list((tmp_path / "covers" / "covers").iterdir()) == []


class SlowReader:
    """A process that reads files, which waits until it is allowed to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._has_started, self._may_read = folder / "started", folder / "may read"
        patch.setattr(file_reader, "command", self._command)

    def _command(self, roots: Sequence[Path]) -> list[str]:
        wait = f"""
import os, time
open({str(self._has_started)!r}, "w").close()
while not os.path.exists({str(self._may_read)!r}):
    time.sleep(0.01)
"""
        program, option, code, *rest = reader_process.command(roots)
        return [program, option, wait + code, *rest]

    def wait_for_start(self) -> None:
        for _ in range(3_000):
            if self._has_started.exists():
                return
            threading.Event().wait(0.01)
        raise AssertionError("the process did not start")

    def resume(self) -> None:
        self._may_read.touch()


def test_a_running_scan_and_a_waiting_one_are_cancelled(
    service: LibraryService,
    admin: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    album(service.roots[0], 2)
    reader = SlowReader(tmp_path, monkeypatch)
    running, waiting = (admin.post("/operations/scan") for _ in range(2))
    assert running.status_code == 202
    reader.wait_for_start()
    for reply in (waiting, running):
        id = reply.json()["data"]["id"]
        assert admin.delete(f"/operations/{id}").status_code == 200
    reader.resume()
    for reply in (running, waiting):
        ended = finished(admin, reply)
        assert (ended["status"], ended["error"]) == ("failed", "cancelled")
        assert ended["completed_at"]
    assert books(admin) == []
    assert "2 added" in scan(admin)[-1]  # nothing of the cancelled one is in the way


def test_an_operation_of_a_stopped_service_continues_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "books"
    album(root, 2)
    opener = engine_openers.ALL["sqlite"](tmp_path)
    reader = SlowReader(tmp_path, monkeypatch)
    with (
        LibraryService(opener, tmp_path / "data", roots=[root]) as service,
        service.admin() as admin,
    ):
        reply = admin.post("/operations/scan")
        reader.wait_for_start()
    reader.resume()
    with (
        LibraryService(opener, tmp_path / "data", roots=[root]) as service,
        service.signed_in("admin") as admin,
    ):
        assert finished(admin, reply)["status"] == "completed"
        assert len(books(admin)) == 1
        service.check()


def test_urls_of_the_api_lead_below_the_path_of_a_proxy(tmp_path: Path) -> None:
    opener, root = engine_openers.ALL["sqlite"](tmp_path), tmp_path / "books"
    (album(root, 1) / "cover.png").write_bytes(png(8, 8, 8))
    options: dict[str, Any] = {"roots": [root], "root_path": "/family"}
    with LibraryService(opener, tmp_path / "data", **options) as service, service.admin() as admin:
        scan(admin)
        [book] = books(admin)
        id = book["id"]
        segments = admin.get(f"/books/{id}/segments").json()["data"]["items"]
        saved = {"segment_id": segments[0]["id"], "position_seconds": 1}
        admin.post(f"/books/{id}/position", json=saved)
        replies: list[Any] = [
            book,
            *segments,
            admin.get(f"/books/{id}").json()["data"],
            admin.patch(f"/books/{id}", json={"edition": "2"}).json()["data"],
            *admin.get(f"/authors/{book['author_id']}/books").json()["data"]["items"],
            admin.get("/me/continue").json()["data"]["items"][0]["book"],
            admin.get("/me/in_progress").json()["data"]["items"][0]["book"],
            admin.delete(f"/books/{id}").json()["data"],
            *admin.get("/books/soft-deleted").json()["data"]["items"],
            admin.post(f"/books/{id}/restore").json()["data"],
        ]
        urls = [each.get("audio_url") or each["cover_url"] for each in replies]
        assert len(urls) == 10
        host = httpx.URL(service.url).copy_with(path="/")
        for url in urls:
            assert url.startswith("/family/audiobooks/api/v1/")
            assert admin.get(host.join(url)).status_code == 200


def test_the_process_that_reads_files_imports_no_service() -> None:
    """It took half a second of CPU time to start, of which a scan of few files took most."""
    *start, code, root, folder = reader_process.command([])
    shown = code.replace("main(sys.argv[3:])", "print(*sys.modules)")
    ran = subprocess.run([*start, shown, root, folder], capture_output=True, text=True, check=True)
    assert {name for name in ran.stdout.split() if name.startswith("keyhouse")} == {
        "keyhouse",
        "keyhouse.errors",
        "keyhouse.limits",
        "keyhouse.normalization",
        "keyhouse.private_types",
        "keyhouse.rooted_path",
        "keyhouse_audiobooks",
        *(
            f"keyhouse_audiobooks.{name}"
            for name in (
                "files",
                "files.audio_files",
                "files.audio_tags",
                "files.reader_process",
                "records",
            )
        ),
    }
