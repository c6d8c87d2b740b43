"""Documents as flat attributes: queried by a local secondary index, read back byte for byte."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.engine import Batch, Put, Row, Span
from keyhouse.engines.dynamodb import DynamoDBEngine, Layout, Path, layout_of
from keyhouse.engines.dynamodb.flattening import COPIES_BYTES_MAX, flatten
from keyhouse.engines.dynamodb.items import Items
from keyhouse.errors import DeclarationError
from keyhouse.testing.conformance.hostile_values import VALUES
from tests.support.dynamodb_tables import plain_client, settings

HISTORY = layout_of("history")

ENTRY = (
    b'{"attr":{"assetId":"1981","assetType":"tv-episode","totalTime":6604,"state":"IN_PROGRESS","progress":2518,'
    b'"updateTime":"2021-01-27T23:37:42.155Z","progressPercentage":38.13},"ext":{"showCategoryId":"1446",'
    b'"seasonCategoryId":"1450","sport":"cricket","series-id":"4","team-ids":"60091,60092"}}'
)
"""The document's own example, as the store encodes it."""

FLAT = {
    "a.assetId": {"S": "1981"},
    "a.assetType": {"S": "tv-episode"},
    "a.totalTime": {"N": "6604"},
    "a.state": {"S": "IN_PROGRESS"},
    "a.progress": {"N": "2518"},
    "a.updateTime": {"S": "2021-01-27T23:37:42.155Z"},
    "a.progressPercentage": {"N": "38.13"},
    "e.showCategoryId": {"S": "1446"},
    "e.seasonCategoryId": {"S": "1450"},
    "e.sport": {"S": "cricket"},
    "e.series-id": {"S": "4"},
    "e.team-ids": {"S": "60091,60092"},
    "path.hierarchy": {"S": "/1446/1450"},
    "path.sport": {"S": "/cricket/4"},
}

EXACT = (
    b'{"attr":{}}',
    b'{"attr":{},"ext":{}}',
    b'{"ext":{"b":1,"a":2},"attr":{"z":null,"y":true,"x":false,"":""}}',
    b'{"m":{"timestamps":["2021-01-27T23:37:42Z","2021-01-28T00:00:00Z"]},"attr":{"n":[]}}',
    b'{"attr":{"n":-7,"f":0.5,"g":-12.000001,"zero":0,"mixed":[1,"1",null,true,1.5]}}',
    '{"attr":{"é\\n\\u0000":"\u2028\U0001f600"}}'.encode(),
    b'{"assetIds":["1981","1988"]}',
    b'{"attr":{"n":1},"assetIds":[]}',
    b'{"attr":{"long":"' + b"x" * COPIES_BYTES_MAX + b'"}}',
    b'{"assetIds":["' + b'","'.join(b"%014d" % number for number in range(22_000)) + b'"]}',
)
BESIDE = (
    b'{"attr":{"n":1.0}}',
    b'{"attr":{"n":1e3}}',
    b'{"attr":{"n":-0}}',
    b'{"attr":{"n":-0.0}}',
    b'{"attr":{"n":0.0000001}}',
    b'{"attr":{"n":18446744073709551616}}',
    b'{"attr":{"n":1,"n":2}}',
    b'{"attr": {"n": 1}}',
    b'{"attr":{"deep":{"b":1,"a":2}}}',
    b'{"attr":{"deep":[[1]]}}',
    b'{"attr":{"text":"\\u00e9"}}',
    b'{"attr":{"text":"\\/"}}',
    b'{"attr":{},"other":{}}',
    b'{"attr":{"n":1},"other":1}',
    b'{"assetIds":[1.0]}',
    b'{"attr":{' + b",".join(b'"name-%06d":1' % number for number in range(9_000)) + b"}}",
)
PLAIN = (
    b"{}",
    b"1",
    b"null",
    b'["attr"]',
    b'{"attr":1}',
    b'{"assetIds":"1981"}',
    b'{"other":[1]}',
    b'{"attr":{"lone":"\\ud800"}}',
    b'{"attr":',
)


def test_the_documented_example_is_stored_flat() -> None:
    item = flatten(ENTRY, HISTORY)
    assert item is not None
    shape = json.loads(item.pop("shape")["S"])
    assert item == FLAT
    assert [member for member, _ in shape] == ["attr", "ext"]


@pytest.mark.parametrize(
    ("values", "kept_in"), [(EXACT, "shape"), (BESIDE, "value"), (PLAIN, None)]
)
def test_bytes_are_stored_when_attributes_cannot_reproduce_them(
    values: tuple[bytes, ...], kept_in: str | None
) -> None:
    for value in values:
        item = flatten(value, HISTORY)
        assert (item is None) is (kept_in is None), value
        if item is not None:
            assert ("shape" in item, "value" in item) == (kept_in == "shape", kept_in == "value"), (
                value
            )


@pytest.mark.parametrize("percentage", ["0", "0.0", "50.0", "100", "100.0", "1e2", "38.13"])
def test_the_percentage_is_an_attribute_of_every_entry(percentage: str) -> None:
    value = ENTRY.replace(b"38.13", percentage.encode())
    item = flatten(value, HISTORY)
    assert item is not None
    assert float(item["a.progressPercentage"]["N"]) == float(percentage)
    assert FLAT.keys() <= item.keys()


def test_an_entry_of_many_completions_keeps_its_attributes_and_paths() -> None:
    """330 completion times are more than 8 KiB; a nested member keeps `value` beside them."""
    times = [f"2021-01-27T23:37:42.{number:03d}Z" for number in range(330)]
    marks = b',"m":{"timestamps":' + json.dumps(times, separators=(",", ":")).encode() + b"}}"
    for value in (
        ENTRY[:-1] + marks,
        ENTRY[:-2] + b',"deep":{"a":1}}' + marks,
        ENTRY[:-1] + b',"other":"' + b"x" * 380_000 + b'"}',
    ):
        item = flatten(value, HISTORY)
        assert item is not None
        assert {name: item[name] for name in FLAT} == FLAT


def test_a_summary_has_its_assets_as_an_attribute() -> None:
    item = flatten(b'{"assetIds":["1981","1988"]}', HISTORY)
    assert item is not None
    assert item["assetIds"] == {"L": [{"S": "1981"}, {"S": "1988"}]}
    assert "value" not in item


def test_every_value_is_read_back_byte_for_byte() -> None:
    values = [ENTRY, *EXACT, *BESIDE, *PLAIN, *VALUES]
    values += [b'{"attr":{"v":' + value + b'},"ext":{"w":' + value + b"}}" for value in VALUES]

    async def scenario() -> None:
        engine = await DynamoDBEngine.open(settings(layout=HISTORY))
        for number, value in enumerate(values):
            await engine.commit("p", Batch(puts=(Put(f"k{number:03d}", value),)))
        page = await engine.scan("p", Span(), limit=1_000)
        assert [row.value for row in page.rows] == values
        rows = await engine.read("p", [row.key for row in page.rows])
        assert rows == page.rows
        keys = await engine.scan("p", Span(), limit=1_000, keys_only=True)
        assert [row.value for row in keys.rows] == [b""] * len(values)
        await engine.close()

    asyncio.run(scenario())


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
groups = st.dictionaries(st.text(max_size=5), scalars | st.lists(scalars, max_size=3), max_size=4)
documents = st.dictionaries(st.sampled_from(["attr", "ext", "m"]), groups, max_size=3)


@given(documents, st.booleans())
def test_any_document_is_rebuilt_byte_for_byte(document: Any, spaced: bool) -> None:
    text = json.dumps(document, ensure_ascii=spaced, separators=None if spaced else (",", ":"))
    value = text.encode(errors="replace")
    items = Items(HISTORY)
    item = items.item("p", Row("k", value, 1))
    assert items.row(_normalised(item)) == Row("k", value, 1)


def _normalised(item: Any) -> Any:
    """Spell a number as DynamoDB returns it, without insignificant digits."""
    if isinstance(item, dict) and item.keys() == {"N"}:
        number = float(item["N"])
        return (
            {"N": str(int(item["N"]))}
            if "." not in item["N"] and "e" not in item["N"]
            else {"N": repr(number)}
        )
    if isinstance(item, dict):
        return {name: _normalised(content) for name, content in reversed(item.items())}
    return [_normalised(element) for element in item] if isinstance(item, list) else item


def test_a_plain_query_on_the_index_finds_the_items_of_a_show_and_of_a_sport() -> None:
    def entry(asset: str, **ext: str) -> Put:
        document = {
            "attr": {"assetId": asset},
            "ext": {name.replace("_", "-"): text for name, text in ext.items()},
        }
        return Put(f"IN_PROGRESS|{asset}", json.dumps(document, separators=(",", ":")).encode())

    async def scenario() -> None:
        where = settings(layout=HISTORY)
        engine = await DynamoDBEngine.open(where)
        entries = (
            entry(
                "1", showCategoryId="1446", seasonCategoryId="1450", sport="cricket", series_id="4"
            ),
            entry(
                "2", showCategoryId="1446", seasonCategoryId="1451", sport="cricket", series_id="5"
            ),
            entry("3", showCategoryId="14460", seasonCategoryId="1", sport="cric/ket|%"),
            entry("4", sport="cricket"),
            entry("5", seasonCategoryId="1450", showCategoryId=""),
            entry("6", showCategoryId="x" * 1_100),
        )
        await engine.commit(
            "profile", Batch(puts=(*entries, Put("IN_PROGRESS", b'{"assetIds":["1","2"]}')))
        )
        await engine.commit("another", Batch(puts=entries))

        async with plain_client() as client:

            async def found(path: str, prefix: str) -> list[str]:
                answer = await client.query(
                    TableName=where.table,
                    IndexName=f"{path}-index",
                    KeyConditionExpression="profileId = :profile AND begins_with(#path, :prefix)",
                    ExpressionAttributeNames={"#path": path},
                    ExpressionAttributeValues={
                        ":profile": {"S": "profile"},
                        ":prefix": {"S": prefix},
                    },
                )
                return [item["a.assetId"]["S"] for item in answer["Items"]]

            assert await found("path.hierarchy", "/1446/") == ["1", "2"]
            assert await found("path.hierarchy", "/1446/1451") == ["2"]
            assert await found("path.hierarchy", "/") == ["1", "2", "3"]
            assert sorted(await found("path.sport", "/cricket")) == ["1", "2", "4"]
            assert await found("path.sport", "/cric%2Fket%7C%25") == ["3"]

        moved = entry("1", showCategoryId="7", seasonCategoryId="8")
        await engine.commit("profile", Batch(puts=(moved,)))
        assert (await engine.read("profile", [moved.key])) == [Row(moved.key, moved.value, 2)]
        async with plain_client() as client:
            assert await found("path.hierarchy", "/1446/") == ["2"]
            assert await found("path.hierarchy", "/7/8") == ["1"]
            assert await found("path.sport", "/cricket/4") == []
        await engine.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "names",
    [
        {"value": "key"},
        {"members": {"attr": "v"}},
        {"members": {"attr": "a.", "ext": "a.b"}},
        {"members": {"attr": ""}},
        {"lists": ("value",)},
        {"members": {"attr": "a."}, "lists": ("a.ids",)},
        {"members": {"e": "e."}, "paths": (Path("e.path", ("e.x",), "index"),)},
    ],
)
def test_a_layout_with_colliding_attributes_is_rejected(names: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Layout(**names)
