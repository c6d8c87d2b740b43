"""The format page is true: each example is built, parsed, or found in a real file."""

import asyncio
import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from msgspec import Struct

from keyhouse import (
    MILLISECONDS,
    NATS,
    SECONDS,
    LogState,
    Meta,
    Record,
    Schema,
    Space,
    Store,
    open_engine,
)
from keyhouse.clock import ulid_number
from keyhouse.demo.clips import BOARD, CLIP, ON_SCREEN, fill
from keyhouse.engine import Row
from keyhouse.engines.dynamodb.items import Items
from keyhouse.engines.dynamodb.layout import Layout as DynamoDBLayout
from keyhouse.engines.dynamodb.log import entry_name
from keyhouse.engines.jetstream.feed import ErasedRecord
from keyhouse.engines.jetstream.layout import BucketNames, digest_of
from keyhouse.engines.rocksdb import encoding
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.postgres import create
from keyhouse.engines.sql.version import HEAD
from keyhouse.keys import PLAIN, Template
from keyhouse.schema import BoundSummary, First, Index, RecordCount, Summary, Unique
from keyhouse.schema.space import MARK_SPACE
from keyhouse.store.transfer.jsonl import Trailer, decode, encode_row, encode_trailer
from keyhouse.store.transfer.move import MARK_KEY, MoveMark
from tests.docs.pages import DOCS, blocks, code, table

PAGE = (DOCS / "format.md").read_text()
CODE_SPANS = re.findall(
    "`([^`]+)`", re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
)
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize("row", table(PAGE, "## Fields in keys"), ids=lambda row: row[0])
def test_a_field_is_formatted_and_parsed_as_documented(row: list[str]) -> None:
    _, text, value_text, key = row
    template = Template(code(text))
    value = eval(code(value_text), {"date": date, "datetime": datetime, "UTC": UTC})
    assert template.build({"x": value}) == code(key)
    read = template.parse(code(key))
    assert read is not None
    assert template.build(read) == code(key)
    if ":norm" not in text:
        assert read == {"x": value}


def test_every_short_name_of_a_type_has_an_example() -> None:
    from keyhouse.keys.segments import NAMED

    examples = " ".join(row[1] for row in table(PAGE, "## Fields in keys"))
    assert [
        name for name in NAMED if name not in ("", "text", "hmac") and f":{name}}}" not in examples
    ] == []


@pytest.mark.parametrize("row", table(PAGE, "## Escapes"), ids=lambda row: row[1])
def test_text_is_escaped_as_documented(row: list[str]) -> None:
    alphabet, text, escaped = row
    escape = {"plain": PLAIN.and_also(":"), "NATS": NATS}[alphabet]
    assert escape.escape(code(text)) == code(escaped)
    assert escape.unescape(code(escaped)) == code(text)


class Item(Struct):
    id: str
    group: str
    name: str


def test_derived_rows_are_as_documented() -> None:
    kinds = {row[0]: code(row[1]) for row in table(PAGE, "## Derived rows")}
    among = Index("all:{group}:{id}")
    record = Record(
        Item,
        "item:{id}",
        among,
        Unique("unique:{group}", value="id"),
        First("first:{group}", value="id", among=among),
        Summary("list:{group}", member="id", under="assetIds"),
        Summary(
            "map:{group}",
            member="id",
            under="playlists",
            entry=entry_of,
            version=("schema_version", 1),
        ),
        RecordCount("count:{group}"),
    )
    item = Item(ULID, "g", "Halloween")
    made = {
        derived.template.head: derived.contribution(item, (ULID,))
        for derived in record.unbound.derived
    }
    assert made["all:"] == kinds["index"].encode()
    assert made["unique:"] == kinds["unique"].encode()
    assert made["first:"] == kinds["first"].encode()
    listed, mapped = (row for row in record.unbound.derived if isinstance(row, BoundSummary))
    row = listed.merge("list:g", None, None, ("1981", None))
    assert listed.merge("list:g", row, None, ("1988", None)) == kinds["summary, a list"].encode()
    assert (
        mapped.merge("map:g", None, None, ("p1", entry_of(item)))
        == kinds["summary, a map"].encode()
    )
    assert kinds["count"].isdigit()


def entry_of(item: Item) -> dict[str, str]:
    return {"name": item.name}


def lines(heading: str, language: str) -> list[str]:
    """Return the lines of the first block after a heading."""
    return blocks(PAGE.split(f"{heading}\n", 1)[1], language)[0].splitlines()


@pytest.mark.parametrize("line", lines("## The store's own rows", "text"))
def test_the_stores_own_rows_are_as_documented(line: str) -> None:
    key, value = line.split(maxsplit=1)
    found = Schema("none", space=Space("a place"), meta=Meta()).find(key)
    assert found is not None
    assert found.record.json.encode(found.record.decode(value.encode(), key)) == value.encode()


def test_log_states_times_and_ids_are_as_documented() -> None:
    [state] = [line for line in PAGE.splitlines() if line.startswith('`{"through"')]
    assert msgspec.json.decode(code(state.partition(";")[0]), type=LogState).through == ULID
    assert f"`{SECONDS.format(1_768_737_600_000)}`" in PAGE
    assert f"`{MILLISECONDS.format(1_768_737_600_000)}`" in PAGE
    assert ulid_number(ULID) > 0


def test_a_cursor_is_as_documented_and_is_accepted() -> None:
    [[cursor, content]] = table(PAGE, "## Cursors")

    async def main() -> tuple[str | None, list[str]]:
        store = Store(BOARD, await open_engine("memory:"), "channel-7")
        await fill(store)
        first = await store.page(CLIP, limit=1)
        rest = await store.page(CLIP, limit=1, cursor=code(cursor))
        return first.cursor, [entry.key for entry in rest.entries]

    import base64

    assert json.loads(base64.urlsafe_b64decode(code(cursor) + "==")) == json.loads(code(content))
    assert asyncio.run(main()) == (code(cursor), ["clip:kick-off"])


def test_the_sqlite_tables_are_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "test.db"

    async def main() -> None:
        engine = await open_engine(f"sqlite:{path}")
        store = Store(BOARD, engine, "channel-7")
        await fill(store)
        await store.put(ON_SCREEN, "goal")
        await engine.close()

    asyncio.run(main())
    file: Any = apsw.Connection(str(path))
    names = file.execute(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
    ).fetchall()
    real = {
        (name, column)
        for (name,) in names
        for _, column, *_ in file.execute(f"PRAGMA table_xinfo({name})")
    }
    assert real == {(code(row[0]), code(row[1])) for row in table(PAGE, "## The SQLite file")}
    assert f"`0x{file.pragma('application_id'):X}`" in PAGE
    assert f"is the format, `{file.pragma('user_version')}`" in PAGE
    [query] = [
        line.partition("`")[2].partition("`")[0]
        for line in PAGE.splitlines()
        if line.startswith("To read it by hand")
    ]
    assert ("screen", '"goal"') in file.execute(query).fetchall()
    [(keys,)] = file.execute("SELECT keys FROM changes ORDER BY revision DESC LIMIT 1").fetchall()
    assert keys == '[["screen"],[]]'
    file.close()


def test_the_postgresql_tables_are_as_documented() -> None:
    layout = Layout.named("keyhouse")
    real = {
        (name, column)
        for statement in create(layout)
        for name, columns in re.findall(r'^CREATE TABLE "(\w+)" \((.*)PRIMARY KEY', statement, re.S)
        for column in re.findall(r'"?(\w+)"? (?:TEXT|BIGINT)', columns)
    }
    assert real == {(code(row[0]), code(row[1])) for row in table(PAGE, "## The PostgreSQL tables")}
    assert f"`{layout.version}` holds the version of the tables, `{HEAD}`" in PAGE
    assert f"`{layout.rows}_commit`" in PAGE
    assert f"`{layout.rows}_sweep`" in PAGE


def test_the_column_families_are_as_documented() -> None:
    rows = {code(row[0]): row[2] for row in table(PAGE, "## The RocksDB folder")}
    assert set(rows) == set(encoding.FAMILIES)
    assert code(rows["meta"]) == str(encoding.FORMAT)


@pytest.mark.parametrize("row", table(PAGE, "## The JetStream bucket"), ids=lambda row: row[1])
def test_a_row_has_the_documented_subject_in_a_bucket(row: list[str]) -> None:
    space, key, subject = map(code, row)
    names = BucketNames("media")
    assert names.row(space, key) == subject
    assert names.read(subject) == (space, key)
    erased = names.erased("space").replace(digest_of("space"), "DIGEST")
    assert {names.check, names.horizon, names.stream, erased} <= set(CODE_SPANS)
    assert msgspec.json.encode(ErasedRecord(1042)).decode() in CODE_SPANS


def test_a_dynamodb_item_has_the_documented_attributes() -> None:
    item = Items(DynamoDBLayout()).item("s", Row("k", b"1", 1, 5_000))
    named = {(code(row[0]), code(row[1])) for row in table(PAGE, "## The DynamoDB tables")}
    assert named == {(name, kind) for name, value in item.items() for kind in value}
    rows = table(PAGE, "The second table, `TABLE.log`:\n")
    assert code(rows[2][1]) == entry_name(42)


@pytest.mark.parametrize("text", lines("## Exported rows", "text"))
def test_an_exported_line_is_as_documented(text: str) -> None:
    line = text.encode() + b"\n"
    read = decode(line, 1)
    assert (
        encode_trailer(read) if isinstance(read, Trailer) else encode_row(read.space, read.put)
    ) == line


def test_the_marker_row_of_a_move_is_as_documented() -> None:
    [text] = [each for each in CODE_SPANS if each.startswith('{"source"')]
    assert msgspec.json.encode(msgspec.json.decode(text, type=MoveMark)).decode() == text
    assert f"the space `{MARK_SPACE}` holds one row, `{MARK_KEY}`" in PAGE
