"""The catalog: its tables and their migrations, files, and search against a naive oracle."""

import json
import os
import random
import time
from functools import cache
from pathlib import Path

import apsw
import pytest

from keyhouse.search import fold, words
from keyhouse_playlist.catalog.tables import (
    CATALOG_VERSION,
    CatalogItem,
    CatalogReader,
    MediaCatalog,
    SnapshotInfo,
    build_catalog,
    downgrade,
    read_source_file,
    upgrade,
)
from keyhouse_playlist.errors import CatalogSourceError
from systems.playlist.tests.support.service import item
from tests.sizes import size

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
        "INSERT INTO catalog_item"
        " VALUES ('a', 'Ärger', '[\"X\"]', 'https://m/a', 1, NULL, 's1', 't')"
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


@cache
def words_of(text: str) -> list[str]:
    return words(text)


def naive(items: list[CatalogItem], query: str, categories: list[str]) -> set[str]:
    """Every word of the query, the last one as a prefix, within the title or one category."""
    terms = [tuple(words(term)) for term in query.split() if words(term)]
    if not terms and query.strip():
        return set()
    found = set()
    for each in items:
        texts = [words_of(each.title), *map(words_of, each.categories)]
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


@pytest.mark.soak
def test_search_finds_what_a_naive_oracle_finds_on_many_items(tmp_path: Path) -> None:
    """CON-001, in many scripts. Ranking: no item twice, pages make the whole, facets count it."""
    numbers = random.Random(7)
    items = [
        item(
            f"v{number}",
            " ".join(numbers.choices(VOCABULARY, k=numbers.randint(1, 6))),
            *numbers.sample(CATEGORIES, k=numbers.randint(0, 3)),
        )
        for number in range(size(1_000, 5_000, 5_000))
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
    for _ in range(50):
        chosen = " ".join(numbers.choices(VOCABULARY, k=numbers.randint(1, 3)))
        queries.append(chosen[: numbers.randint(1, len(chosen))])
    slow = []
    for query in queries:
        categories = numbers.sample(CATEGORIES, k=numbers.choice((0, 0, 1, 2)))
        start = time.thread_time()
        found = reader.search(query, categories, limit=200)
        slow.append(time.thread_time() - start)
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
    assert sorted(slow)[len(slow) // 2] < 0.1  # of CPU time: the machine is shared


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
        (json.dumps([{**JSON_ITEM, "title": "A\nB"}]), 1),
        (json.dumps([{**JSON_ITEM, "title": "A\x9b1mB"}]), 1),
        (json.dumps([{**JSON_ITEM, "categories": ["X", "A\nB"]}]), 1),
        (json.dumps([{**JSON_ITEM, "categories": ["\x1b[2J"]}]), 1),
        (json.dumps([{**JSON_ITEM, "categories": ["A\u202eB"]}]), 1),
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


def test_a_source_that_is_not_a_regular_file_is_rejected_and_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero"), tmp_path / "a\0b.json"):
        with pytest.raises(CatalogSourceError, match="cannot be read"):
            read_source_file(path)
