"""Browsing a keyspace: tree, tables, keys. Each page is asked for its twin."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from keyhouse import Store
from keyhouse.clock import SystemClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.schema.index_names import derived_names
from keyhouse.studio.space_size import count_by_record
from tests.studio.support.library import (
    BOOK,
    SCHEMA,
    SHELF,
    Book,
    Library,
    Shelf,
    fill,
    library,
    run,
)
from tests.support.engine_openers import OPENERS

MAIN = "/studio/library/main"


class _Closing:
    def __init__(self, engine: Engine) -> None:
        self.aclose = engine.close


@pytest.mark.parametrize("name", OPENERS)
def test_the_tree_is_exact_on_every_engine(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine = await OPENERS[name](tmp_path)(SystemClock())
        async with aclosing(_Closing(engine)), library(tmp_path, engine) as served:
            await fill(served.store, 12)
            async with served.signed_in("studio:read") as client:
                page = (await client.get(f"{MAIN}/tree.json")).json()
                assert [each["text"] for each in page["nodes"]] == [
                    "book:",
                    "by-author:",
                    "by-tag:",
                    "shelf:",
                    "shelves:",
                    "title:",
                ]
                page = (await client.get(f"{MAIN}/tree.json", params={"at": "by-author:"})).json()
                assert [each["label"] for each in page["nodes"]] == ["le-guin:", "lem:"]
                assert [each["text"] for each in page["parents"]] == []
                page = (await client.get(f"{MAIN}/tree.json", params={"at": "book:"})).json()
                assert len(page["nodes"]) == 12
                assert all(each["is_row"] for each in page["nodes"])

    asyncio.run(main())


def test_a_large_child_costs_a_few_reads(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        reads = 0
        scan = served.engine.scan

        async def counted(*arguments: object, **options: object) -> object:
            nonlocal reads
            reads += 1
            return await scan(*arguments, **options)  # type: ignore[arg-type]

        served.engine.scan = counted  # type: ignore[method-assign,assignment]
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/tree.json")).json()
        assert page["nodes"][0]["text"] == "book:"
        assert reads <= 12

    run(tmp_path, scenario, books=600)


def test_pages_of_the_tree_have_every_key_once(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        found: list[str] = []
        after = ""
        async with served.signed_in("studio:read") as client:
            while True:
                params = {"at": "book:", "after": after}
                page = (await client.get(f"{MAIN}/tree.json", params=params)).json()
                found += [each["text"] for each in page["nodes"]]
                after = page["next"]
                if not after:
                    break
        assert found == [f"book:b{number:03d}" for number in range(450)]

    run(tmp_path, scenario, books=450)


def test_keys_of_no_template_are_in_the_tree(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        batch = Batch(puts=(Put("odd/one", b"1"), Put("odd/two", b"not json")))
        await served.engine.commit("main", batch)
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/tree.json", params={"at": "odd/"})).json()
            assert [each["text"] for each in page["nodes"]] == ["odd/one", "odd/two"]
            page = (await client.get(f"{MAIN}/key.json", params={"k": "odd/two"})).json()
            assert (page["value"], page["is_json"], page["kind"]) == ("not json", False, "")
            assert page["nearest"]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("filter", "keys"),
    [
        ("", ["book:b000", "book:b001", "book:b002"]),
        ("id:b00*", ["book:b000", "book:b001", "book:b002"]),
        ("id>=b001 id<b002", ["book:b001"]),
        ("author=lem", ["book:b000", "book:b002"]),
        ("author:le-*", ["book:b001"]),
        ("author=lem id>=b001", ["book:b002"]),
        ("tag=sf id=b001", ["book:b001"]),
        ("'title=Title 2'", ["book:b002"]),
    ],
)
def test_records_are_filtered_by_their_keys_and_indexes(
    filter: str, keys: list[str], tmp_path: Path
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/book.json", params={"q": filter})).json()
            assert page["error"] == ""
            assert [row["key"] for row in page["rows"]] == keys

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("filter", "sentence"),
    [
        ("pages=100", "No key begins with these fields."),
        ("hello", "A filter is field=value"),
        ("author:a* id:b*", "Only one field"),
        ("'open", "A quote of the filter"),
    ],
)
def test_a_filter_that_no_key_serves_says_what_can_be_asked(
    filter: str, sentence: str, tmp_path: Path
) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/book.json", params={"q": filter})).json()
            assert page["error"].startswith(sentence)
            assert page["rows"] == []

    run(tmp_path, scenario)


def test_a_filter_may_begin_with_the_name_of_a_record(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = await client.get(f"{MAIN}/book.json", params={"q": "book author=lem"})
            assert [row["key"] for row in page.json()["rows"]] == ["book:b000", "book:b002"]
            other = await client.get(f"{MAIN}/book", params={"q": "shelf place=hall"})
            assert other.headers["location"] == f"{MAIN}/shelf?q=place%3Dhall"
            page = await client.get(other.headers["location"])
            assert "shelf:hall" in page.text

    run(tmp_path, scenario)


def test_fields_of_the_filter_may_be_parameters_of_the_address(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            for params, keys in (
                ({"author": "lem"}, ["book:b000", "book:b002"]),
                ({"author": "lem", "id": "b002"}, ["book:b002"]),
                ({"author": "lem", "q": "id>=b001"}, ["book:b002"]),
                ({"title": "Title 2", "by": "title"}, ["book:b002"]),
                ({"title": 'it\'s "quoted"'}, []),
            ):
                page = (await client.get(f"{MAIN}/book.json", params=params)).json()
                assert page["error"] == ""
                assert [row["key"] for row in page["rows"]] == keys
            page = await client.get(f"{MAIN}/book", params={"author": "lem"})
            assert 'value="author=lem"' in page.text, "the filter bar has it"
            other = await client.get(f"{MAIN}/book", params={"q": "shelf", "author": "lem"})
            assert other.headers["location"] == f"{MAIN}/shelf?q=author%3Dlem"
            for query in ("pages=100", "fields=x", "author=lem&author=x"):
                answer = await client.get(f"{MAIN}/book.json?{query}")
                assert answer.status_code == 400, query
        async with served.client() as stranger:
            answer = await stranger.get(f"{MAIN}/book?author=lem&reverse=true")
            back = "next=%2Fstudio%2Flibrary%2Fmain%2Fbook%3Freverse%3Dtrue%26author%3Dlem"
            assert answer.headers["location"] == f"/studio/login?{back}"

    run(tmp_path, scenario)


def test_numbers_are_shown_as_they_are_stored(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        value = b'{"id":"b9","title":"T","author":"a","pages":12345678901234567890,"price":1.10}'
        await served.engine.commit("main", Batch(puts=(Put("book:b9", value),)))
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/key.json", params={"k": "book:b9"})).json()
            assert "12345678901234567890" in page["value"]
            assert "1.10" in page["value"]
            table = (await client.get(f"{MAIN}/book.json", params={"q": "id=b9"})).json()
            assert "1.10" in table["rows"][0]["cells"]

    run(tmp_path, scenario)


def test_a_record_leads_to_its_rows_and_back(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/key.json", params={"k": "book:b000"})).json()
            assert [(row["kind"], row["key"], row["state"]) for row in page["related"]] == [
                ("index", "by-author:lem:b000", "present"),
                ("index", "by-tag:sf:b000", "present"),
                ("unique", "title:Title 0", "present"),
            ]
            params = {"k": "by-author:lem:b000"}
            page = (await client.get(f"{MAIN}/key.json", params=params)).json()
            assert [row["key"] for row in page["related"]] == ["book:b000"]
            assert page["fields"][0]["value"] == "lem"

    run(tmp_path, scenario)


def test_private_members_are_masked_until_revealed_and_that_is_in_the_journal(
    tmp_path: Path,
) -> None:
    async def scenario(served: Library) -> None:
        params = {"k": "book:b000"}
        async with served.signed_in("studio:write") as client:
            for path in ("key", "key.json", "edit", "edit.json", "book", "book.json"):
                page = await client.get(f"{MAIN}/{path}", params=params if "k" in path[:4] else {})
                assert "secret friend" not in page.text
            page = await client.get(f"{MAIN}/edit.json", params=params)
            assert "secret friend" not in page.text
            form = {"action": "reveal"}
            denied = await client.post(f"{MAIN}/key", params=params, data=form)
            assert denied.status_code == 403
        async with served.signed_in() as admin:
            page = await admin.post(f"{MAIN}/key", params=params, data=form)
            assert page.status_code == 200
            assert "secret friend" in page.text
            assert "Revealed, on this page only: lender" in page.text
            for path in ("key", "key.json"):
                again = await admin.get(f"{MAIN}/{path}", params=params)
                assert "secret friend" not in again.text, "revealed only in that response"
                linked = await admin.get(f"{MAIN}/{path}", params=params | {"reveal": "true"})
                assert linked.status_code == 400, "no address reveals"
            lines = (await admin.get("/studio/journal.json")).json()["lines"]
            assert (lines[0]["action"], lines[0]["key"]) == ("reveal", "book:b000")

    run(tmp_path, scenario)


def test_the_time_to_live_is_shown(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        await served.store.put(BOOK, Book("brief", "Brief", "lem"), ttl=3_600)
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/key.json", params={"k": "book:brief"})).json()
            assert 3_500_000 < page["expires"] - page["now"] <= 3_600_000

    run(tmp_path, scenario)


def test_changes_of_a_derived_row_are_rejected_with_a_sentence(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            answer = await client.get(f"{MAIN}/live", params={"k": "by-author:lem:b000"})
            assert answer.status_code == 400
            assert "Only the changes of a record can be followed" in answer.text

    run(tmp_path, scenario)


def test_rows_and_bytes_are_counted_by_record(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        await served.engine.commit("main", Batch(puts=(Put("odd", b"123"),)))
        rows = {row.key: len(row.key) + len(row.value) async for row in served.store.row_scan()}
        async with served.signed_in("studio:read") as client:
            page = (await client.get(f"{MAIN}/index.json")).json()
            parts = {
                each["name"]: (each["size"]["rows"], each["derived_size"]["rows"])
                for each in page["records"]
            }
            assert parts == {"book": (3, 9), "shelf": (1, 1)}
            assert page["size"] == {
                "rows": len(rows),
                "bytes": sum(rows.values()),
                "is_exact": True,
            }
            books = sum(size for key, size in rows.items() if key.startswith("book:"))
            assert page["records"][0]["size"]["bytes"] == books
            assert page["other"] == {"rows": 1, "bytes": 6, "is_exact": True}
            assert "other rows" in (await client.get(f"{MAIN}/")).text
        batch = Batch(puts=tuple(Put(f"book:x{number:03d}", b"{}") for number in range(300)))
        await served.engine.commit("main", batch)
        sizes = await count_by_record([served.store], deadline=0)
        assert not sizes.total.is_exact
        assert sizes.total.rows == 256
        assert sizes.of("shelf").rows == 0
        assert not sizes.of("shelf").is_exact, "shown as not counted"

    run(tmp_path, scenario)


def test_a_space_shows_its_own_newest_revision_and_one_that_is_not_there_is_404(
    tmp_path: Path,
) -> None:
    """Every space showed the newest revision of the engine, also one that does not exist."""

    async def scenario(served: Library) -> None:
        other = Store(SCHEMA, served.engine, "other")
        entry = await other.put(SHELF, Shelf("hall", 3))
        await fill(served.store, 5)
        async with served.signed_in("studio:read") as client:
            page = (await client.get("/studio/library/other/index.json")).json()
            assert page["newest"] == {"revision": entry.revision, "is_exact": True}
            [main, line] = (await client.get("/studio/library/index.json")).json()["spaces"]
            assert line["newest"]["revision"] == entry.revision
            assert main["newest"]["revision"] == await served.store.revision()
            for path in ("", "tree", "book"):
                for end in ("", ".json"):
                    name = f"{path}{end}" if path else end and "index.json"
                    answer = await client.get(f"/studio/library/nothing/{name}")
                    assert answer.status_code == 404, (path, end)

    run(tmp_path, scenario)


def test_a_table_is_filtered_by_the_names_that_requests_of_a_service_use(tmp_path: Path) -> None:
    """`by=author`, copied from HTTP, was "There is no such index": only `by-author` was known."""

    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            for by in [*[*derived_names(BOOK)][:2], "by-author", "by-tag"]:
                params = {"by": by, "author": "lem"} if "author" in by else {"by": by}
                page = (await client.get(f"{MAIN}/book.json", params=params)).json()
                assert not page["error"] and page["rows"], (by, page["error"])

    run(tmp_path, scenario)


def test_the_schema_page_has_no_markdown_marks(tmp_path: Path) -> None:
    async def scenario(served: Library) -> None:
        async with served.signed_in("studio:read") as client:
            page = (await client.get("/studio/library/schema")).text
            assert "`" not in page
            assert "<code>lender</code>: never visible outside the store" in page

    run(tmp_path, scenario)


def test_pages_of_the_tree_do_not_repeat_a_prefix(tmp_path: Path) -> None:
    """The next page began with the last prefix of the page before."""

    async def scenario(served: Library) -> None:
        for number in range(250):
            await served.store.put(BOOK, Book(f"c{number}", f"T {number}", f"author-{number:03d}"))
        async with served.signed_in("studio:read") as client:
            nodes = (await client.get(f"{MAIN}/tree.json")).json()["nodes"]
            below = {node["text"]: node["templates"] for node in nodes}
            assert below["by-author:"] == ["by-author:{author}:{id}"]
            assert below["book:"] == ["book:{id}"]
            seen: list[str] = []
            params = {"at": "by-author:"}
            while True:
                page = (await client.get(f"{MAIN}/tree.json", params=params)).json()
                seen += [node["text"] for node in page["nodes"]]
                if not page["next"]:
                    break
                params["after"] = page["next"]
            assert len(seen) == len(set(seen)) == 252

    run(tmp_path, scenario)
