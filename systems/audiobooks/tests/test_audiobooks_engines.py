"""One scenario on each engine: the same requests get the same answers. And the service at start:
migrations, a newer store, a search index that is missing."""

import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse.engine import Batch, Put
from keyhouse.errors import NewerError
from keyhouse_audiobooks.files.generated_audio import write_audio
from systems.audiobooks.tests.support.service import PASSWORD, LibraryService
from systems.audiobooks.tests.test_audiobooks_books import ABSENT, made
from systems.audiobooks.tests.test_audiobooks_scan import TAGS, album, finished, scan
from tests.support import engine_openers
from tests.support.polling import wait_until

ULID = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
VARYING = re.compile(r'"(revision|mtime_ns|token|key|cursor)":("[^"]*"|\d+)')


class Transcript:
    """Requests and their answers, with ids by the order in which they first appeared."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self._folder = str(folder)
        self._names: dict[str, str] = {}

    def ask(self, client: httpx.Client, method: str, path: str, **given: Any) -> Any:
        reply = client.request(method, path, **given)
        text = VARYING.sub(r'"\1":…', reply.text).replace(self._folder, "…")
        line = f"{method} {path} {reply.status_code} {text}"
        self.lines.append(ULID.sub(self._name, line))
        return reply.json().get("data") if reply.content else None

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"<{len(self._names)}>")


def scenario(folder: Path, engine: str) -> list[str]:
    """Use the library as an admin and a listener would; return what was answered."""
    root = folder / "books"
    album(root, 3, 100, series="Hainish", series_part="1.5")
    opener = engine_openers.ALL[engine](folder)
    transcript = Transcript(folder)
    with (
        LibraryService(opener, folder / "data", roots=[root]) as service,
        service.admin() as admin,
        service.user(admin, "ann", "viewer") as ann,
    ):
        _fill(transcript, admin)
        _listen(transcript, service, admin, ann)
        _remove(transcript, admin, ann)
        service.check()
    return transcript.lines


def _fill(transcript: Transcript, admin: httpx.Client) -> None:
    scan(admin)
    author = made(admin, "authors", name="N. K. Jemisin")["id"]
    for number, title in ((2, "The Obelisk Gate"), (1, "The Fifth Season"), (None, "A: story")):
        body = {
            "title": title,
            "author_id": author,
            "series_position": number,
            "tags": ["Earth", "50 % off"],
            "isbn13": "978-0-306-40615-7",
        }
        transcript.ask(admin, "POST", "/books", json=body)
    for path in (
        "/books",
        "/books?limit=2",
        "/books?sort_by=created_at&sort_order=desc",
        f"/books?author_id={author}&tag=earth",
        "/books?isbn=9780306406157&title_prefix=the",
        "/books?limit=501",
        f"/books/{ABSENT}",
        "/authors",
        "/series",
        "/works",
        f"/authors/{author}/books",
        "/operations",
    ):
        transcript.ask(admin, "GET", path)


def _listen(
    transcript: Transcript, service: LibraryService, admin: httpx.Client, ann: httpx.Client
) -> None:
    found = admin.get("/books", params={"title_prefix": "the dispossessed"}).json()["data"]
    book = f"/books/{found['items'][0]['id']}"
    ids = [each["id"] for each in transcript.ask(ann, "GET", f"{book}/segments")["items"]]
    for kind, segment, position in (
        ("start", 0, 0),
        ("progress", 0, 10),
        ("pause", 0, 20),
        ("start", 2, 50),
        ("progress", 2, 200),
        ("complete", 2, 100),
    ):
        given = {"segment_id": ids[segment], "position_seconds": position, "event_type": kind}
        transcript.ask(ann, "POST", f"{book}/position", json=given)
        service.clock.advance(seconds=10)
    mark = {"segment_id": ids[1], "position_seconds": 5, "title": "here"}
    transcript.ask(ann, "POST", f"{book}/bookmarks", json=mark)
    whole = write_audio(service.roots[0] / "merged" / "whole.wav", 300, tags=TAGS)
    transcript.ask(admin, "POST", f"{book}/merge?dry_run=true", json={"file_path": str(whole)})
    finished(admin, admin.post(f"{book}/merge", json={"file_path": str(whole)}))
    for path in (
        *(f"{book}/{each}" for each in ("state", "events", "bookmarks", "segments")),
        *("/me/finished", "/me/unstarted", "/me/continue", "/stats/me"),
        f"/stats{book}",
    ):
        transcript.ask(ann, "GET", path)


def _remove(transcript: Transcript, admin: httpx.Client, ann: httpx.Client) -> None:
    transcript.ask(ann, "POST", "/books", json={"title": "x"})
    for book in admin.get("/books").json()["data"]["items"]:
        transcript.ask(admin, "DELETE", f"/books/{book['id']}")
        transcript.ask(admin, "GET", "/books/soft-deleted")
        transcript.ask(admin, "DELETE", f"/books/{book['id']}?purge=true")
    for author in admin.get("/authors").json()["data"]["items"]:
        transcript.ask(admin, "DELETE", f"/authors/{author['id']}")
        transcript.ask(admin, "DELETE", f"/authors/{author['id']}?detach=true")
    transcript.ask(ann, "GET", "/stats/me")


def test_sqlite_and_rocksdb_answer_alike(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    for engine in ("sqlite", "rocksdb"):
        folder = tmp_path / engine
        folder.mkdir()
        lines[engine] = scenario(folder, engine)
    for one, other in zip(*lines.values(), strict=True):
        assert one == other
    assert len(lines["sqlite"]) > 45


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_a_newer_store_is_not_opened_and_stays_as_it_is(tmp_path: Path, engine: str) -> None:
    opener = engine_openers.ALL[engine](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service:

        async def from_the_future(engine: Any) -> None:
            await engine.commit("main", Batch(puts=(Put("meta:version", b"999", None),)))

        service.on_engine(from_the_future)
    with (
        pytest.raises(NewerError),
        LibraryService(opener, tmp_path / "data", cost=None),
    ):
        pass


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_the_search_index_is_built_again_when_it_is_missing(tmp_path: Path, engine: str) -> None:
    opener = engine_openers.ALL[engine](tmp_path)
    with LibraryService(opener, tmp_path / "data") as service, service.admin() as admin:
        author = made(admin, "authors", name="Ursula K. Le Guin")["id"]
        made(admin, "works", title="Original", alt_titles=["Die Enteigneten"])
        made(admin, "books", title="The Dispossessed", author_id=author, tags=["utopia"])
    shutil.rmtree(tmp_path / "data" / "audiobooks" / "search")
    with LibraryService(opener, tmp_path / "data") as service:
        login = {"username": "admin", "password": PASSWORD}
        with service.client() as guest:
            token = guest.post("/auth/login", json=login).json()["data"]["token"]
        with service.client(token) as admin:
            for words in ("dispos", "utopia", "guin", "le guin dispossessed"):

                def found(words: str = words) -> list[Any]:
                    reply = admin.get("/search", params={"q": words})
                    return list(reply.json()["data"]["items"]) if reply.status_code == 200 else []

                assert [each["title"] for each in wait_until(found)] == ["The Dispossessed"], words
