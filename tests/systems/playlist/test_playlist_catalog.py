"""The catalog: its tables and their migrations, sources, search against a naive oracle, refreshes."""

import asyncio
import json
import random
import time
from pathlib import Path

import apsw
import httpx
import pytest

from keyhouse.search import fold, words
from keyhouse.systems.playlist.catalog import (
    CATALOG_VERSION,
    CatalogItem,
    CatalogReader,
    MediaCatalog,
    SnapshotInfo,
    build_catalog,
    downgrade,
    publish_catalog,
    read_source_file,
    upgrade,
)
from keyhouse.systems.playlist.errors import CatalogSourceError
from keyhouse.systems.playlist.mediacms import MediaCms
from keyhouse.systems.playlist.refresh import Refresh
from keyhouse.systems.playlist.schema import CURRENT, SNAPSHOT
from tests.systems.playlist.support.service import PlaylistService, fill, item, playlist_service

INFO = SnapshotInfo(snapshot_id="s:1", source="test", created_at="2026-01-01T00:00:00Z")
DOCUMENT_TABLES = {
    "catalog_item": [
        ("video_id", "TEXT", 0, 1),
        ("title", "TEXT", 1, 0),
        ("categories_json", "TEXT", 1, 0),
        ("manifest_url", "TEXT", 1, 0),
        ("duration_seconds", "INTEGER", 0, 0),
        ("thumbnail_url", "TEXT", 0, 0),
        ("snapshot_id", "TEXT", 1, 0),
        ("created_at", "TEXT", 1, 0),
    ],
    "catalog_category": [("category", "TEXT", 0, 1)],
    "catalog_item_category": [("video_id", "TEXT", 0, 1), ("category", "TEXT", 0, 2)],
}


def columns(connection: apsw.Connection, table: str) -> list[tuple[object, ...]]:
    found = connection.execute(f"PRAGMA table_info({table})")
    return [(name, kind, required, key) for _, name, kind, required, _, key in found]


def tables(connection: apsw.Connection) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {str(name) for (name,) in found if not str(name).startswith("sqlite_")}


def test_the_tables_are_those_of_the_document(tmp_path: Path) -> None:
    """REQ-001: three tables, two indexes, foreign keys."""
    path = build_catalog(tmp_path, INFO, [item("a", "A", "X")])
    connection = apsw.Connection(str(path))
    for table, expected in DOCUMENT_TABLES.items():
        assert columns(connection, table) == expected
    indexes = {
        name: column
        for name in ("idx_catalog_title", "idx_catalog_snapshot")
        for _, _, column in connection.execute(f"PRAGMA index_info({name})")
    }
    assert indexes == {"idx_catalog_title": "title", "idx_catalog_snapshot": "snapshot_id"}
    keys = {
        (row[2], row[3], row[4])
        for row in connection.execute("PRAGMA foreign_key_list(catalog_item_category)")
    }
    assert keys == {
        ("catalog_item", "video_id", "video_id"),
        ("catalog_category", "category", "category"),
    }
    connection.pragma("foreign_keys", True)
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO catalog_item_category VALUES ('nobody', 'X')")
    [stored] = connection.execute("SELECT * FROM catalog_item").fetchall()
    assert stored == (
        "a",
        "A",
        '["X"]',
        "https://media.example/a.json",
        60,
        None,
        "s:1",
        "2026-01-01T00:00:00Z",
    )


def test_migrations_create_upgrade_and_downgrade() -> None:
    connection = apsw.Connection(":memory:")
    upgrade(connection, to=1)
    assert tables(connection) == set(DOCUMENT_TABLES)
    connection.execute(
        "INSERT INTO catalog_item VALUES ('a', 'Ärger', '[\"X\"]', 'https://m/a', 1, NULL, 's1', 't')"
    )
    connection.execute("INSERT INTO catalog_category VALUES ('X')")
    connection.execute("INSERT INTO catalog_item_category VALUES ('a', 'X')")
    upgrade(connection)
    assert connection.pragma("user_version") == CATALOG_VERSION
    found = connection.execute("SELECT rowid FROM catalog_words('arger')").fetchall()
    assert found == [(1,)]
    downgrade(connection, to=1)
    assert tables(connection) == set(DOCUMENT_TABLES)
    assert connection.execute("SELECT title FROM catalog_item").fetchall() == [("Ärger",)]
    upgrade(connection)
    downgrade(connection)
    assert tables(connection) == set()


def test_a_file_with_the_documents_tables_alone_is_upgraded_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite3"
    connection = apsw.Connection(str(path))
    upgrade(connection, to=1)
    connection.pragma("user_version", 0)  # another program sets none
    connection.execute(
        "INSERT INTO catalog_item VALUES ('a', 'Alien', '[]', 'https://m/a', 1, NULL, 's1', 't')"
    )
    connection.close()
    reader = MediaCatalog(path).reader()
    assert reader is not None
    found = reader.search("ali", limit=10)
    assert (found.snapshot_id, found.total) == ("s1", 1)


VOCABULARY = [
    "Alien",
    "Aliens",
    "Blade",
    "Runner",
    "The",
    "Thing",
    "Straße",
    "Café",
    "naïve",
    "100%",
    "_under",
    "score",
    "AC/DC",
    "don't",
    "Ночной",
    "дозор",
    "Αθήνα",
    "東京",
    "物語",
    "テスト",
    "ไทย",
    "हिन्दी",
    "עברית",
    "العربية",
    "Łódź",
    "Ångström",
    "œuvre",
    "İstanbul",
    "S01E01",
    "S01E02",
    "1x04",
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "2001",
    "x",
]
CATEGORIES = ["Horror", "Sci-Fi", "Comedía", "日本", "Film noir", "A AND B"]


def naive(items: list[CatalogItem], query: str, categories: list[str]) -> set[str]:
    """Every word of the query, the last one as a prefix, within the title or one category."""
    terms = [tuple(words(term)) for term in query.split() if words(term)]
    if not terms and query.strip():
        return set()
    found = set()
    for each in items:
        texts = [words(each.title), *(words(category) for category in each.categories)]
        has_all = all(
            any(_has(text, term, is_last=at == len(terms) - 1) for text in texts)
            for at, term in enumerate(terms)
        )
        if has_all and set(categories) <= set(each.categories):
            found.add(each.video_id)
    return found


def _has(text: list[str], term: tuple[str, ...], *, is_last: bool) -> bool:
    size = len(term)
    for at in range(len(text) - size + 1):
        part = text[at : at + size]
        whole = part == list(term)
        prefix = part[:-1] == list(term[:-1]) and part[-1].startswith(term[-1])
        if whole or (is_last and prefix):
            return True
    return False


def test_search_finds_what_a_naive_oracle_finds_on_5000_items(tmp_path: Path) -> None:
    """CON-001, in many scripts. Ranking: no item twice, pages make the whole, facets count it."""
    numbers = random.Random(7)
    items = [
        item(
            f"v{number}",
            " ".join(numbers.choices(VOCABULARY, k=numbers.randint(1, 6))),
            *numbers.sample(CATEGORIES, k=numbers.randint(0, 3)),
        )
        for number in range(5_000)
    ]
    reader = CatalogReader(build_catalog(tmp_path, INFO, items))
    queries = ["", " ", "%", "_", '"', "*", "AND", "a", "a*", '"alien"', "-x", "(", "title:alien"]
    queries += [
        "ночной",
        "strasse",
        "CAFE",
        "ac/dc",
        "東",
        "東京物",
        "noir film",
        "film noir",
        "100%",
    ]
    for _ in range(120):
        chosen = " ".join(numbers.choices(VOCABULARY, k=numbers.randint(1, 3)))
        queries.append(chosen[: numbers.randint(1, len(chosen))])
    slow = []
    for query in queries:
        categories = numbers.sample(CATEGORIES, k=numbers.choice((0, 0, 1, 2)))
        start = time.perf_counter()
        found = reader.search(query, categories, limit=200)
        slow.append(time.perf_counter() - start)
        expected = naive(items, query, categories)
        assert found.total == len(expected), query
        ids = {each.video_id for each in found.items}
        assert len(ids) == min(200, len(expected)) and ids <= expected, query
    some = reader.search("alien", limit=200)
    pages = [reader.search("alien", limit=70, offset=offset).items for offset in (0, 70, 140)]
    assert [each for page in pages for each in page][:200] == some.items
    facets = reader.search("alien", limit=1, facets=True).facets
    matching = naive(items, "alien", [])
    assert facets == {
        category: count
        for category in sorted(CATEGORIES)
        if (count := sum(e.video_id in matching and category in e.categories for e in items))
    }
    everything = reader.search("", limit=200).items
    assert [fold(each.title) for each in everything][:3] == sorted(
        (fold(each.title) for each in items), key=lambda title: " ".join(words(title)) or title
    )[:3]
    assert sorted(slow)[len(slow) // 2] < 0.1  # generous: the machine is shared


JSON_ITEM = {"video_id": "a", "title": "A", "manifest_url": "https://m/a", "categories": ["X"]}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{}", 1),
        ("[", 1),
        ('[\n{"video_id": "a"}]', 2),
        (json.dumps([JSON_ITEM, {**JSON_ITEM, "video_id": ""}], indent=0), 10),
        (json.dumps([JSON_ITEM, JSON_ITEM], indent=0), 10),
        (json.dumps([{**JSON_ITEM, "manifest_url": "javascript:alert(1)"}]), 1),
        (json.dumps([{**JSON_ITEM, "duration_seconds": -1}]), 1),
        (json.dumps([{**JSON_ITEM, "colour": "red"}]), 1),
        (json.dumps([JSON_ITEM]) + " x", 1),
        (json.dumps([JSON_ITEM])[:-1] + ",]", 1),
        ('[\n\n{"video_id": "\\ud800", "title": "A", "manifest_url": "https://m/a"}]', 3),
    ],
)
def test_one_bad_item_rejects_the_whole_file_by_its_line(
    tmp_path: Path, content: str, line: int
) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(content)
    with pytest.raises(CatalogSourceError) as caught:
        read_source_file(path)
    assert caught.value.fields["line"] == line


def test_csv_has_the_same_members(tmp_path: Path) -> None:
    path = tmp_path / "catalog.csv"
    path.write_text(
        "video_id,title,categories,manifest_url,duration_seconds,thumbnail_url\n"
        'a,"A, first",X|Y ,https://m/a,12,\n'
        "b,B,,https://m/b,,https://m/b.jpg\n"
    )
    assert read_source_file(path) == [
        CatalogItem(
            video_id="a",
            title="A, first",
            categories=["X", "Y"],
            manifest_url="https://m/a",
            duration_seconds=12,
        ),
        CatalogItem(
            video_id="b",
            title="B",
            manifest_url="https://m/b",
            thumbnail_url="https://m/b.jpg",
        ),
    ]
    for bad, line in (("a,A", 2), ("a,A,https://m/a\nb,B,nowhere", 3)):
        path.write_text(f"video_id,title,manifest_url\n{bad}\n")
        with pytest.raises(CatalogSourceError) as caught:
            read_source_file(path)
        assert caught.value.fields["line"] == line


def medium(number: int) -> dict[str, object]:
    return {
        "friendly_token": f"t{number}",
        "title": f"Title {number}",
        "duration": 60,
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
                await asyncio.sleep(0.3)
                publish_catalog(built, tmp_path / "catalog.sqlite3")
            await asyncio.sleep(0.5)
            done.set()
            await asyncio.gather(*searchers)
            assert "s5" in seen and len(seen) > 1

    asyncio.run(work())
