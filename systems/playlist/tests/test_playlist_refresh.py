"""Refreshes of the catalog: MediaCMS, kills, several processes, and searches meanwhile."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import process_time

import httpx
import pytest

from keyhouse.file_lock import FileLock
from keyhouse_playlist.catalog.mediacms import MediaCms
from keyhouse_playlist.catalog.refresh import FileSource, Refresh
from keyhouse_playlist.catalog.tables import (
    CatalogItem,
    MediaCatalog,
    SnapshotInfo,
    build_catalog,
    publish_catalog,
)
from keyhouse_playlist.errors import CatalogSourceError, RefreshRunningError
from keyhouse_playlist.schema import CURRENT, SNAPSHOT
from systems.playlist.tests.support.service import PlaylistService, fill, item, playlist_service
from tests.sizes import size
from tests.support.polling import until
from tests.support.program import SOURCE


def medium(number: int) -> dict[str, object]:
    return {
        "friendly_token": f"t{number}",
        "title": f"Title {number}",
        "duration": 60,
        "media_type": "video",
        "thumbnail_url": "/media/t.jpg",
        "categories_info": [{"title": "Horror", "url": "/search?c=Horror"}],
        "views": 3,
    }


class FakeMediaCms:
    """Five pages of two media; the third page fails twice and is cut short once."""

    def __init__(self, *, broken: bool = False) -> None:
        self.requests: list[int] = []
        self.broken = broken

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Token secret"
        page = int(request.url.params["page"])
        self.requests.append(page)
        following = None if page == 5 else f"https://cms/api/v1/media?page={page + 1}"
        first = (page - 1) * 2 - (1 if page == 2 else 0)  # one moved to the next page
        body = json.dumps(
            {"count": 10, "next": following, "results": [medium(first), medium(first + 1)]}
        ).encode()
        if page == 3:
            tries = self.requests.count(3)
            if self.broken or tries == 1:
                return httpx.Response(503)
            if tries == 2:
                return httpx.Response(200, content=body[:40])
        return httpx.Response(200, content=body)


async def no_sleep(_: float) -> None:
    return None


def test_mediacms_is_read_page_by_page_with_retries() -> None:
    async def work() -> None:
        server = FakeMediaCms()
        source = MediaCms(
            "https://cms/", "secret", transport=httpx.MockTransport(server), sleep=no_sleep
        )
        items = [each async for chunk, _ in source.items() for each in chunk]
        assert server.requests == [1, 2, 3, 3, 3, 4, 5]
        assert len({each.video_id for each in items}) == len(items) == 9
        assert items[0] == CatalogItem(
            video_id="t0",
            title="Title 0",
            categories=["Horror"],
            manifest_url="https://cms/api/v1/media/cytube/t0.json?format=json",
            duration_seconds=60,
            thumbnail_url="https://cms/media/t.jpg",
        )

    asyncio.run(work())


def test_a_title_or_category_of_mediacms_has_no_control_characters() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        named = [{"title": "A\nB"}, {"title": "\u202eC"}, {"title": "\r\n"}]
        media = [
            {**medium(0), "title": "A\x1b[2JB\n", "categories_info": named},
            {**medium(1), "title": "\r\n"},
        ]
        return httpx.Response(200, json={"count": 2, "next": None, "results": media})

    async def work() -> None:
        source = MediaCms("https://cms", "secret", transport=httpx.MockTransport(respond))
        items = [each async for chunk, _ in source.items() for each in chunk]
        assert [each.title for each in items] == ["A [2JB", "t1"]
        assert items[0].categories == ["A B", "C"]

    asyncio.run(work())


def test_a_title_of_mediacms_that_is_slow_to_normalize_is_a_title(tmp_path: Path) -> None:
    """A title of 30,000 combining marks stopped the service for six seconds. Titles have at most
    1,000 characters now."""
    marks = "\u0300" * 450 + "\u0316" * 450

    def respond(request: httpx.Request) -> httpx.Response:
        media = [
            {**medium(0), "title": f"Alien{marks}", "categories_info": [{"title": marks[350:550]}]},
            {**medium(1), "title": "\ufdfa" * 400},
        ]
        return httpx.Response(200, json={"count": 2, "next": None, "results": media})

    async def work() -> None:
        async with playlist_service(tmp_path) as service:
            transport = httpx.MockTransport(respond)
            start = process_time()
            await refresh_of(service).refresh(MediaCms("https://cms", "s", transport=transport))
            assert process_time() - start < 1

    asyncio.run(work())


def test_a_refresh_publishes_the_snapshot_or_changes_nothing(tmp_path: Path) -> None:
    """AC-001: `current` has the metadata, and SQLite the items of that snapshot."""

    async def work() -> None:
        async with playlist_service(tmp_path) as service:
            refresh = refresh_of(service)
            good = MediaCms(
                "https://cms",
                "secret",
                transport=httpx.MockTransport(FakeMediaCms()),
                sleep=no_sleep,
            )
            seen: list[int] = []
            snapshot = await refresh.refresh(good, lambda done, total: seen.append(done))
            assert seen == [2, 3, 5, 7, 9] and snapshot.item_count == 9
            stores = service.stores.snapshots
            assert await stores.get(CURRENT) == snapshot
            assert await stores.get(SNAPSHOT, snapshot_id=snapshot.snapshot_id) == snapshot
            reader = MediaCatalog(tmp_path / "catalog.sqlite3").reader()
            assert reader is not None and reader.snapshot_id == snapshot.snapshot_id
            broken = FakeMediaCms(broken=True)
            bad = MediaCms(
                "https://cms", "secret", transport=httpx.MockTransport(broken), sleep=no_sleep
            )
            with pytest.raises(CatalogSourceError):
                await refresh.refresh(bad)
            assert await stores.get(CURRENT) == snapshot
            assert [path.name for path in tmp_path.glob("catalog*")] == ["catalog.sqlite3"]

    asyncio.run(work())


def test_an_empty_source_is_rejected_unless_it_is_allowed(tmp_path: Path) -> None:
    """An empty file was published, and hid the whole catalog."""
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "empty.csv").write_text("video_id,title,manifest_url\n")

    async def work() -> None:
        fill(tmp_path, [item("a", "A")])
        async with playlist_service(tmp_path) as service:
            refresh = refresh_of(service)
            await refresh.prepare()
            before = await service.stores.snapshots.get(CURRENT)
            for name in ("empty.json", "empty.csv"):
                with pytest.raises(CatalogSourceError, match="has no items"):
                    await refresh.refresh(FileSource(tmp_path / name, asyncio.to_thread))
            assert await service.stores.snapshots.get(CURRENT) == before
            assert [path.name for path in tmp_path.glob("catalog*")] == ["catalog.sqlite3"]
            source = FileSource(tmp_path / "empty.json", asyncio.to_thread)
            assert (await refresh.refresh(source, allow_empty=True)).item_count == 0

    asyncio.run(work())


def refresh_of(service: PlaylistService) -> Refresh:
    """Return the part of a service that refreshes its catalog."""
    owners = [getattr(task, "__self__", None) for task in service.spec.tasks]
    return next(owner for owner in owners if isinstance(owner, Refresh))


def test_current_is_corrected_from_the_file_at_the_start(tmp_path: Path) -> None:
    """A refresh that was killed after the rename has published its file, and nothing else."""

    async def work() -> None:
        fill(tmp_path, [item("a", "A")], snapshot="killed")
        async with playlist_service(tmp_path) as service:
            await refresh_of(service).prepare()
            current = await service.stores.snapshots.get(CURRENT)
            assert current is not None
            assert (current.snapshot_id, current.item_count) == ("killed", 1)

    asyncio.run(work())


def test_a_refresh_under_64_searchers_never_shows_a_mix(tmp_path: Path) -> None:
    async def work() -> None:
        fill(tmp_path, [item(f"a{n}", "Word s0") for n in range(200)], snapshot="s0")
        async with playlist_service(tmp_path, public_read=True) as service:
            done = asyncio.Event()
            seen: set[str] = set()

            async def search() -> None:
                visitor = service.visitor()
                while not done.is_set():
                    found = await visitor.get("/catalog/search", q="word", limit=200)
                    titles = {each["title"] for each in found["items"]}
                    assert titles == {f"Word {found['snapshot_id']}"} and found["total"] == 200
                    seen.add(found["snapshot_id"])

            searchers = [asyncio.ensure_future(search()) for _ in range(64)]
            for number in range(1, 6):
                items = [item(f"a{n}", f"Word s{number}") for n in range(200)]
                info = SnapshotInfo(
                    snapshot_id=f"s{number}", source="t", created_at="2026-01-01T00:00:00Z"
                )
                built = await asyncio.to_thread(build_catalog, tmp_path, info, items)
                shown = {f"s{number - 1}"}
                await until(lambda: shown <= seen or any(each.done() for each in searchers))  # noqa: B023
                publish_catalog(built, tmp_path / "catalog.sqlite3")
            await until(lambda: "s5" in seen or any(each.done() for each in searchers))
            done.set()
            await asyncio.gather(*searchers)
            assert seen == {f"s{number}" for number in range(6)}

    asyncio.run(work())


@pytest.mark.soak
def test_a_refresh_killed_at_any_point_leaves_the_old_catalog_or_the_new_one(
    tmp_path: Path,
) -> None:
    paths = os.pathsep.join([str(SOURCE), str(SOURCE.parent)])
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "systems.playlist.tests.support.killed_refresh",
            str(tmp_path),
            str(11 if size(1, 1, 2) == 1 else 1),  # each point in a soak run
        ],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=size(120, 120, 1_200),
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 100, "it was killed at too few points"


def test_a_process_follows_a_refresh_of_another_one(tmp_path: Path) -> None:
    """Each has its own file; the second reads the same source when `current` changes."""

    async def work() -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        one.mkdir()
        other.mkdir()

        def source() -> MediaCms:
            transport = httpx.MockTransport(FakeMediaCms())
            return MediaCms("https://cms", "secret", transport=transport, sleep=no_sleep)

        async with (
            playlist_service(one) as first,
            playlist_service(other, engine=first.engine, clock=first.clock) as second,
        ):
            following = refresh_of(second)
            following.source = source()
            task = asyncio.ensure_future(following.follow())
            snapshot = await refresh_of(first).refresh(source())
            catalog = MediaCatalog(other / "catalog.sqlite3")
            reader = await until(catalog.reader)
            assert reader.snapshot_id == snapshot.snapshot_id
            assert reader.search("", limit=1).total == 9
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())


def test_processes_that_share_a_folder_read_the_source_once(tmp_path: Path) -> None:
    """Each that followed a refresh built the file again, and two could refresh at once."""

    async def work() -> None:
        one, shared = tmp_path / "one", tmp_path / "shared"
        one.mkdir()
        shared.mkdir()
        asked = FakeMediaCms()
        transport = httpx.MockTransport(asked)
        source = MediaCms("https://cms", "secret", transport=transport, sleep=no_sleep)
        async with (
            playlist_service(one) as first,
            playlist_service(shared, engine=first.engine, clock=first.clock) as second,
        ):
            snapshot = await refresh_of(first).refresh(source)
            asked.requests[:] = [3, 3]  # it fails no more
            catalog = MediaCatalog(shared / "catalog.sqlite3")
            workers = [Refresh(catalog, second.stores, asyncio.to_thread, source) for _ in range(3)]
            tasks = [asyncio.ensure_future(each.follow()) for each in workers]
            reader = await until(catalog.reader)
            assert reader.snapshot_id == snapshot.snapshot_id
            await until(lambda: not (shared / "catalog.lock").exists())
            assert asked.requests[2:] == [1, 2, 3, 4, 5]
            asked.requests[:] = [3, 3]
            with ExitStack() as stack:
                lock = FileLock(shared / "catalog.lock")
                assert lock.acquire()
                stack.callback(lock.release, delete=True)
                with pytest.raises(RefreshRunningError):
                    await workers[0].refresh(source)
                assert asked.requests == [3, 3]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(work())
