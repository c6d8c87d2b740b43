"""Items that another program writes into the tables: they never break a call of the engine."""

import asyncio
import json
from typing import Any

import pytest

from keyhouse import Store
from keyhouse.engine import FOREIGN_REVISION, Add, Batch, Check, Put, Row, Span
from keyhouse.engines.dynamodb import DynamoDBEngine, Layout, layout_of
from keyhouse.store import CachedReads, Transaction, verify
from keyhouse_history.schema import (
    BY_HIERARCHY,
    ENTRY,
    SCHEMAS,
    Attributes,
    HistoryEntry,
)
from tests.support.dynamodb_tables import ALL, plain_client, settings

FLAT_ITEM = {
    "a.assetId": {"S": "7"},
    "a.assetType": {"S": "tv-episode"},
    "a.totalTime": {"N": "100"},
    "a.state": {"S": "IN_PROGRESS"},
    "a.progress": {"N": "50"},
    "a.progressPercentage": {"N": "50"},
    "a.updateTime": {"S": "2021-01-27T23:37:42.155Z"},
    "e.showCategoryId": {"S": "1446"},
    "path.hierarchy": {"S": "/1446"},
}
"""An entry as another program writes it: the document's attributes, and none of the engine's."""


async def put_item(table: str, key: str, item: dict[str, Any]) -> None:
    names = {"profileId": {"S": "p"}, "sortKey": {"S": key}}
    async with plain_client() as client:
        await client.put_item(TableName=table, Item=names | item)


def entry(asset: str) -> HistoryEntry:
    return HistoryEntry(
        attr=Attributes(
            asset_id=asset,
            asset_type="tv-episode",
            total_time=100,
            state="IN_PROGRESS",
            progress=50,
            update_time="2021-01-27T23:37:42.155Z",
        ),
        ext={"showCategoryId": "1446"},
    )


EVERY_TYPE = {
    "s": {"S": "x"},
    "n": {"N": "1.5"},
    "b": {"B": b"\xff"},
    "ss": {"SS": ["b", "a"]},
    "ns": {"NS": ["1"]},
    "bs": {"BS": [b"\x00"]},
    "m": {"M": {"in": {"L": [{"NULL": True}, {"BOOL": True}]}}},
}


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({}, b"{}"),
        ({"value": {"S": "text"}}, b"text"),
        ({"value": {"B": b"\xff"}}, b"\xff"),
        ({"value": {"N": "1"}, "revision": {"S": "r"}}, b"{}"),
        ({"shape": {"S": "["}, "x": {"S": "y"}}, b'{"x":"y"}'),
        ({"shape": {"S": '[["attr",["gone"]]]'}, "a.x": {"S": "y"}}, b'{"attr":{"x":"y"}}'),
        ({"assetIds": {"SS": ["2", "1"]}}, b'{"assetIds":["1","2"]}'),
        (
            EVERY_TYPE,
            b'{"b":"/w==","bs":["AA=="],"m":{"in":[null,true]},"n":1.5,"ns":[1],"s":"x","ss":["a","b"]}',
        ),
    ],
)
def test_an_item_without_our_attributes_is_a_row(item: dict[str, Any], value: bytes) -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        await put_item(where.table, "k", item)
        foreign = Row("k", value, FOREIGN_REVISION)
        assert await engine.read("p", ["k", "other"]) == [foreign, None]
        page = await engine.scan("p", Span(), limit=5)
        assert (page.rows, page.revision) == ([foreign], 0)
        assert (await engine.scan("p", Span(), limit=5, keys_only=True)).rows == [
            Row("k", b"", FOREIGN_REVISION)
        ]
        await engine.commit("p", Batch(puts=(Put("other", b"1"),)))
        assert await engine.commit("p", Batch(checks=(Check("k", None),))) is None
        created = Batch(checks=(Check("k", None),), puts=(Put("k", b"2"),))
        assert await engine.commit("p", created) is None
        replaced = Batch(checks=(Check("k", FOREIGN_REVISION),), puts=(Put("k", b"2"),))
        assert await engine.commit("p", replaced) == 2
        assert await engine.commit("p", replaced) is None
        assert await engine.read("p", ["k"]) == [Row("k", b"2", 2)]
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("expires", ["0", "-1", "-1.5", "99.5"])
def test_a_foreign_item_that_has_expired_is_absent(expires: str) -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        await put_item(where.table, "k", {"expires": {"N": expires}})
        assert await engine.read("p", ["k"]) == [None]
        assert (await engine.scan("p", Span(), limit=5)).rows == []
        created = Batch(checks=(Check("k", None),), puts=(Put("k", b"2"),))
        assert await engine.commit("p", created) == 1
        await engine.close()

    asyncio.run(scenario())


def test_a_counter_that_another_program_wrote_is_added_to() -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        await put_item(where.table, "n", {"value": {"S": "41"}})
        assert await engine.commit("p", Batch(adds=(Add("n", 1),))) == 1
        assert await engine.read("p", ["n"]) == [Row("n", b"42", 1)]
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("deleted", [True, False])
def test_a_row_that_another_program_replaces_or_deletes_does_not_stop_a_scan(deleted: bool) -> None:
    """A second engine compares its pages with the log, where the key still is at revision 1."""

    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        writer = await DynamoDBEngine.open(where)
        await writer.commit("p", Batch(puts=(Put("k", b"1"),)))
        if deleted:
            async with plain_client() as client:
                await client.delete_item(
                    TableName=where.table, Key={"profileId": {"S": "p"}, "sortKey": {"S": "k"}}
                )
        else:
            await put_item(where.table, "k", {"value": {"S": "2"}})
        reader = await DynamoDBEngine.open(where)
        rows = [] if deleted else [Row("k", b"2", FOREIGN_REVISION)]
        for engine in (writer, reader):
            assert (await engine.scan("p", Span(), limit=5)).rows == rows
        if not deleted:
            watch = reader.watch("p", ALL, since=0)
            assert (await anext(watch)).value == b"2"
            await watch.aclose()
        await writer.close()
        await reader.close()

    asyncio.run(scenario())


def test_the_default_layout_reads_foreign_items() -> None:
    async def scenario() -> None:
        where = settings(layout=Layout())
        engine = await DynamoDBEngine.open(where)
        async with plain_client() as client:
            item = {"space": {"S": "p"}, "key": {"S": "k"}, "name": {"S": "x"}}
            await client.put_item(TableName=where.table, Item=item)
        assert (await engine.scan("p", Span(), limit=5)).rows == [Row("k", b'{"name":"x"}', 0)]
        await engine.close()

    asyncio.run(scenario())


def test_verify_reports_a_foreign_entry_and_adopts_it() -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        store = Store(SCHEMAS[0], engine, "p")
        await put_item(where.table, "IN_PROGRESS|7", FLAT_ITEM)
        await store.put(ENTRY, entry("8"))
        stored = await store.get(ENTRY, state="IN_PROGRESS", asset="7")
        assert stored is not None
        assert stored.ext == {"showCategoryId": "1446"}
        assert len([found async for found in store.scan(ENTRY)]) == 2

        seen = [(finding.kind, finding.key) async for finding in verify(store)]
        assert seen.count(("foreign", "IN_PROGRESS|7")) == 1
        assert {kind for kind, _ in seen} == {"foreign", "miscounted", "missing", "wrong"}
        assert all([finding.repaired async for finding in verify(store, repair=True)])
        assert [finding async for finding in verify(store)] == []
        by_path = [
            found.record.attr.asset_id
            async for found in store.scan(ENTRY, by=BY_HIERARCHY, path=("1446",))
        ]
        assert sorted(by_path) == ["7", "8"]
        (summary,) = await engine.read("p", ["IN_PROGRESS"])
        assert summary is not None
        assert sorted(json.loads(summary.value)["assetIds"]) == ["7", "8"]
        (row,) = await engine.read("p", ["IN_PROGRESS|7"])
        assert row is not None
        assert row.revision > FOREIGN_REVISION
        await engine.close()

    asyncio.run(scenario())


def test_verify_reports_an_item_that_is_not_an_entry_and_drops_it() -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        store = Store(SCHEMAS[0], engine, "p")
        await store.put(ENTRY, entry("8"))
        await put_item(where.table, "IN_PROGRESS|9", {"note": {"S": "x"}})
        await put_item(where.table, "not a key", {})
        kinds = {finding.key: finding.kind async for finding in verify(store)}
        assert kinds == {"IN_PROGRESS|9": "unreadable", "not a key": "unknown"}
        assert [finding.repaired async for finding in verify(store, delete_unreadable=True)] == [
            True,
            True,
        ]
        assert [finding async for finding in verify(store)] == []
        await engine.close()

    asyncio.run(scenario())


def test_a_put_replaces_a_foreign_entry() -> None:
    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        store = Store(SCHEMAS[0], engine, "p")
        await put_item(where.table, "IN_PROGRESS|7", FLAT_ITEM)
        await store.put(ENTRY, entry("7"))
        assert "foreign" not in [finding.kind async for finding in verify(store, repair=True)]
        assert [finding async for finding in verify(store)] == []
        await engine.close()

    asyncio.run(scenario())


def test_a_result_by_an_item_of_another_program_is_not_cached() -> None:
    """All its changes have one revision, so that none was noticed."""

    async def progress(asset: str, tx: Transaction) -> float | None:
        found = await tx.get(ENTRY, state="IN_PROGRESS", asset=asset)
        return None if found is None else found.attr.progress

    async def scenario() -> None:
        where = settings(layout=layout_of("history"))
        engine = await DynamoDBEngine.open(where)
        cache = CachedReads(Store(SCHEMAS[0], engine, "p"), progress)
        for seconds in (50, 60):
            await put_item(
                where.table, "IN_PROGRESS|7", FLAT_ITEM | {"a.progress": {"N": str(seconds)}}
            )
            assert await cache.get("7") == seconds and len(cache) == 0
        await engine.close()

    asyncio.run(scenario())
