"""Specific to DynamoDB: tables, limits, concurrency and URLs."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from botocore.exceptions import ReadTimeoutError

from keyhouse.bench import open_scratch
from keyhouse.clock import ManualClock, SystemClock
from keyhouse.engine import Add, Batch, Check, Put, Span, check_limits
from keyhouse.engines.dynamodb import DynamoDBEngine, Layout, Settings, layout_of
from keyhouse.engines.dynamodb.engine import CAPABILITIES
from keyhouse.engines.dynamodb.items import TTL_LATE_SECONDS
from keyhouse.engines.dynamodb.log import table_of
from keyhouse.engines.dynamodb.table import prepare
from keyhouse.errors import (
    ClosedError,
    LimitError,
    UnavailableError,
    UsageError,
)
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, DynamoDBServer
from tests.support.dynamodb_tables import (
    ALL,
    UNREACHED,
    InterceptingClient,
    intercept,
    opened,
    plain_client,
    put,
    raising,
    scenario,
    settings,
    value,
)

# Tables


def test_forget_deletes_the_log_of_a_benchmark_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows were deleted, but their changes and names were left in the log table."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ACCESS_KEY)
    where = settings()

    async def story() -> list[str]:
        async with opened(where) as engine:
            await put(engine, "k")
        url = f"dynamodb://{where.table}?region={where.region}&endpoint={where.endpoint}"
        async with open_scratch(url) as scratch, scratch.open() as measured:
            for space in scratch.spaces:
                await measured.commit(space, Batch(puts=(Put("k", b"1"),), id="once"))
        async with plain_client() as client:
            tables = (where.table, table_of(where.table))
            return [
                item["space"]["S"]
                for each in tables
                for item in (await client.scan(TableName=each))["Items"]
            ]

    assert sorted(asyncio.run(story())) == ["s", "s:s", "s:s", "spaces"]


@scenario
async def test_tables_are_created_on_demand_with_indexes_and_ttl() -> None:
    where = settings(layout=layout_of("history"), native_ttl=True)
    async with opened(where), plain_client() as client:
        for name in (where.table, table_of(where.table)):
            table = (await client.describe_table(TableName=name))["Table"]
            assert table["TableStatus"] == "ACTIVE"
            assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
            ttl = (await client.describe_time_to_live(TableName=name))["TimeToLiveDescription"]
            assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "ttl")
        rows = (await client.describe_table(TableName=where.table))["Table"]
        assert [key["AttributeName"] for key in rows["KeySchema"]] == ["profileId", "sortKey"]
        assert [index["IndexName"] for index in rows["GlobalSecondaryIndexes"]] == ["by-expiry"]
        paths = {
            index["IndexName"]: index["KeySchema"][1]["AttributeName"]
            for index in rows["LocalSecondaryIndexes"]
        }
        assert paths == {"path.hierarchy-index": "path.hierarchy", "path.sport-index": "path.sport"}


@scenario
async def test_tables_can_be_created_by_many_at_once() -> None:
    where = settings(native_ttl=True)
    engines = await asyncio.gather(*(DynamoDBEngine.open(where) for _ in range(4)))
    assert [await put(engine, "a") for engine in engines] == [1, 2, 3, 4]
    for engine in engines:
        await engine.close()


@scenario
async def test_opening_retries_a_connect_timeout_a_few_times() -> None:
    async with opened() as engine:
        stand = InterceptingClient(engine.client.driver)
        where = settings()
        stand.plan("describe_table", raising(UNREACHED))
        stand.plan("create_table", raising(ReadTimeoutError(endpoint_url="http://host")))
        await prepare(stand, where.table, where.layout, create=True, native_ttl=False)
        assert stand.calls.count("create_table") == 3, (
            "the one that was not answered, and one for each table"
        )
        stand.plan("describe_table", *[raising(UNREACHED)] * 3)
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await prepare(stand, where.table, where.layout, create=True, native_ttl=False)
        assert not any(stand.steps.values())


@scenario
async def test_an_unopened_engine_connects_on_first_use() -> None:
    engine = DynamoDBEngine(settings())
    assert await asyncio.gather(*(engine.read("s", ["a"]) for _ in range(5))) == [[None]] * 5
    assert await put(engine, "a") == 1
    await engine.close()
    unused = DynamoDBEngine(settings())
    await unused.close()
    with pytest.raises(ClosedError):
        await unused.read("s", ["a"])


@scenario
async def test_missing_tables_are_created_only_with_create() -> None:
    with pytest.raises(UsageError, match="does not exist"):
        await DynamoDBEngine.open(settings(create=False))


@scenario
async def test_a_table_of_another_program_or_layout_is_rejected_unchanged() -> None:
    where = settings()
    async with opened(where):
        pass
    for layout in (Layout(key="other"), layout_of("history")):
        other = Settings(
            **{name: getattr(where, name) for name in where.__struct_fields__} | {"layout": layout}
        )
        with pytest.raises(UsageError, match="layout"):
            await DynamoDBEngine.open(other)


@scenario
async def test_an_expiring_row_has_a_ttl_a_day_late_and_is_indexed() -> None:
    where = settings()
    async with opened(where, clock=ManualClock()) as engine, plain_client() as client:
        await put(engine, "expires", expires=1_767_225_600_001)
        await put(engine, "stays")
        items = (await client.scan(TableName=where.table))["Items"]
        expires, stays = sorted(items, key=lambda item: str(item["key"]["S"]))
        assert expires["ttl"] == {"N": str(1_767_225_601 + TTL_LATE_SECONDS)}
        assert expires["expires"] == {"N": "1767225600001"}
        assert stays.keys() == {"space", "key", "value", "revision"}
        found = await client.scan(TableName=where.table, IndexName="by-expiry")
        assert [item["key"]["S"] for item in found["Items"]] == ["expires"]


@scenario
async def test_binary_values_are_stored() -> None:
    async with opened() as engine:
        values = {
            "a": bytes(range(256)),
            "b": b"",
            "c": b"\0\0",
            "e": b"\xff\xfe",
            "f": b"\xed\xa0\x80",
        }
        for key, content in values.items():
            await put(engine, key, value=content)
        assert [row and row.value for row in await engine.read("s", list(values))] == list(
            values.values()
        )
        assert [row.value for row in (await engine.scan("s", ALL, limit=10)).rows] == list(
            values.values()
        )


# Limits


def test_a_commit_above_the_transaction_limit_is_rejected_by_the_store() -> None:
    many = tuple(Put(f"k{number}", b"1") for number in range(97))
    with pytest.raises(LimitError, match="Too many rows") as refused:
        check_limits(Batch(puts=many), CAPABILITIES)
    assert refused.value.fields["limit"] == 96
    large = tuple(Put(f"k{number}", b"x" * 300_000) for number in range(10))
    with pytest.raises(LimitError, match="Too many bytes"):
        check_limits(Batch(puts=large), CAPABILITIES)


@scenario
async def test_the_largest_allowed_commit_fits_in_one_transaction() -> None:
    """96 rows, all checked, with a batch id, in a new space: 100 items. Also one near the byte
    limit."""
    async with opened(settings(layout=layout_of("history"))) as engine:
        calls = intercept(engine).calls
        keys = [f"{number:03d}" + "\U0001f600" * 255 for number in range(96)]
        document = b'{"attr":{"a":"' + b"x" * 8_000 + b'"},"ext":{"b":1.0}}'
        batch = Batch(
            checks=tuple(Check(key, None) for key in keys),
            puts=tuple(Put(key, document, expires=2**45) for key in keys),
            id="\U0001f600" * 32,
        )
        check_limits(batch, CAPABILITIES)
        assert await engine.commit("x" * 255, batch) == 1
        assert calls.count("transact_write_items") == 1
        large = tuple(Put(f"k{number}", b'"' + b"x" * 380_000 + b'"') for number in range(7))
        check_limits(Batch(puts=large), CAPABILITIES)
        assert await engine.commit("s", Batch(puts=large)) == 1
        assert [
            row and row.value for row in await engine.read("s", [put.key for put in large])
        ] == [put.value for put in large]


@scenario
async def test_checks_above_the_transaction_limit_are_enforced() -> None:
    async with opened() as engine:
        keys = [f"k{number:03d}" for number in range(250)]
        revisions = {
            key: await put(engine, *keys[start : start + 50])
            for start in range(0, 250, 50)
            for key in [keys[start]]
        }
        (last,) = list(revisions.values())[-1:]
        rows = await engine.read("s", keys)
        checks = tuple(Check(row.key, row.revision) for row in rows if row is not None)
        assert await engine.commit("s", Batch(checks=checks, adds=(Add("n", 1),))) == last + 1
        await put(engine, keys[123])
        assert await engine.commit("s", Batch(checks=checks, adds=(Add("n", 1),))) is None
        assert await value(engine, "n") == b"1"


@scenario
async def test_span_bounds_may_be_longer_than_a_key() -> None:
    async with opened() as engine:
        keys = ["k" * 1_024, "\U0001f600" * 256, "\U0001f600" * 255 + "\U0001f601"]
        await put(engine, *keys)
        assert [
            row.key for row in (await engine.scan("s", ALL.after(keys[0]), limit=9)).rows
        ] == keys[1:]
        assert [
            row.key for row in (await engine.scan("s", Span(keys[1] + "a"), limit=9)).rows
        ] == keys[2:]
        assert [
            row.key for row in (await engine.scan("s", Span("", keys[1] + "a"), limit=9)).rows
        ] == keys[:2]
        assert [
            row.key
            for row in (await engine.scan("s", Span("", keys[2] * 2), limit=9, reverse=True)).rows
        ] == keys[::-1]


# Many at once


@scenario
async def test_concurrent_commits_of_one_space_share_transactions() -> None:
    async with opened() as engine:
        calls = intercept(engine).calls
        await asyncio.gather(*(put(engine, f"k{number}") for number in range(64)))
        assert calls.count("transact_write_items") <= 2
        calls.clear()
        await asyncio.gather(*(engine.commit("s", Batch(adds=(Add("n", 1),))) for _ in range(64)))
        assert await value(engine, "n") == b"64"
        assert calls.count("transact_write_items") <= 2


@scenario
async def test_sixty_four_tasks_on_two_engines_lose_no_add_and_no_compare_and_set() -> None:
    where = settings()
    async with opened(where) as one, opened(where) as other:
        await put(one, "cas", value=b"0")

        async def work(engine: DynamoDBEngine) -> None:
            await engine.commit("s", Batch(adds=(Add("n", 1),)))
            while True:
                (row,) = await engine.read("s", ["cas"])
                assert row is not None
                swap = Batch(
                    checks=(Check("cas", row.revision),),
                    puts=(Put("cas", b"%d" % (int(row.value) + 1)),),
                )
                if await engine.commit("s", swap) is not None:
                    return

        await asyncio.gather(*(work(engine) for _ in range(32) for engine in (one, other)))
        assert (await value(one, "n"), await value(other, "cas")) == (b"64", b"64")


@scenario
async def test_a_failed_check_wins_over_a_counter_error() -> None:
    """The counter is read before the check is evaluated: its error must not come first."""
    async with opened() as engine:
        await put(engine, "text", value=b'"x"')
        assert (
            await engine.commit("s", Batch(checks=(Check("a", 7),), adds=(Add("text", 1),))) is None
        )


# URLs and the server


def test_a_dynamodb_url_is_parsed() -> None:
    where = Settings.of(
        "dynamodb://history?region=eu-west-1&endpoint=http://127.0.0.1:4566&layout=history&create=false"
    )
    assert (where.table, where.region, where.endpoint) == (
        "history",
        "eu-west-1",
        "http://127.0.0.1:4566",
    )
    assert where.layout == layout_of("history")
    assert not where.create
    assert Settings.of("dynamodb://rows") == Settings(table="rows")


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb:",
        "dynamodb://",
        "dynamodb://a/b",
        "dynamodb://u:p@a",
        "dynamodb://a?key=x",
        "dynamodb://a?create=1",
    ],
)
def test_an_invalid_dynamodb_url_is_rejected(url: str) -> None:
    with pytest.raises(UsageError):
        Settings.of(url)


@pytest.mark.parametrize(
    "endpoint",
    ["foo", "", "host:4566", "http://", "ftp://host", "http://host:99999", "http://[::1"],
)
def test_an_invalid_endpoint_is_rejected_before_any_request(endpoint: str) -> None:
    with pytest.raises(UsageError, match="Invalid endpoint"):
        Settings.of(f"dynamodb://a?endpoint={endpoint}")


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_ENDPOINT_URL", "foo"), ("AWS_DEFAULT_REGION", "a b")]
)
def test_an_invalid_environment_setting_is_reported_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        asyncio.run(DynamoDBEngine.open(Settings(table="rows")))


def test_the_test_server_stops_when_its_parent_is_killed() -> None:
    program = (
        "from keyhouse.testing.servers.dynamodb import *; "
        "s = DynamoDBServer(); print(s.pid, flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    server = int(parent.stdout.readline())
    assert _runs(server)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    deadline = SystemClock().now() + 30_000
    while _runs(server):
        assert SystemClock().now() < deadline


def _runs(pid: int) -> bool:
    """A stopped process may be a zombie until its adoptive parent reaps it."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_test_server_listens_on_loopback_only() -> None:
    server = DynamoDBServer()
    try:
        sockets = set()
        for name in os.listdir(f"/proc/{server.pid}/fd"):
            with suppress(FileNotFoundError):  # it closes the connection of the last health check
                sockets.add(os.readlink(f"/proc/{server.pid}/fd/{name}"))
        listening = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{server.pid}/net/{table}") as lines:
                for line in list(lines)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                        listening.add(fields[1].split(":")[0])
        assert listening == {"0100007F"}
    finally:
        server.close()
