"""An import equals its export byte for byte, even if either was interrupted."""

import asyncio
import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put, Row
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.rocksdb import RocksdbEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import (
    CallerError,
    DocumentError,
    KeyFieldError,
    LimitError,
    UnreadableError,
    UsageError,
)
from keyhouse.limits import EXPIRES_MAX, VALUE_BYTES_MAX
from keyhouse.schema import Index, Record, Schema, Space
from keyhouse.store import (
    ExportResult,
    ImportResult,
    export_rows,
    import_rows,
    is_complete_export,
    read_partial_export,
)
from keyhouse.store.transfer.jsonl import (
    BLOCK_LINES,
    Checksum,
    ExportedRow,
    decode,
    decode_all,
    encode_redacted,
    encode_row,
    encode_rows,
    encode_trailer,
)
from keyhouse.testing.conformance.hostile_values import KEYS, VALUES
from keyhouse.testing.conformance.spaces import HOSTILE
from keyhouse.testing.faults import FaultyEngine, Killed, die, meanwhile
from tests.store.support.filled_engines import contents, digests, fill
from tests.support.polling import loop_turns

ODD_VALUES = (
    b"",
    b" 1",
    b"1 ",
    b"[1,\n2]",
    b"\r\n",
    b"not JSON",
    b"\xff\xfe\x00",
    bytes(range(256)),
    b"[" * 3_000,
    b"NaN",
)


async def exported(engine: Engine, **how: Any) -> tuple[bytes, ExportResult]:
    out = io.BytesIO()
    summary = await export_rows(engine, out.write, **how)
    return out.getvalue(), summary


async def imported(engine: Engine, data: bytes, **how: Any) -> ImportResult:
    return await import_rows(engine, io.BytesIO(data), **how)


async def hostile(engine: Engine) -> None:
    later = engine.clock.now() + 100_000
    for space in HOSTILE:
        await engine.commit(space, Batch(puts=(Put(f"key of {space}", b"1"),)))
    keys, values = list(dict.fromkeys(KEYS)), VALUES + ODD_VALUES
    for number, key in enumerate(keys):
        expires = later + number if number % 4 == 0 else None
        await engine.commit(
            "hostile", Batch(puts=(Put(key, values[number % len(values)], expires),))
        )


# The form


def test_a_row_is_a_line_that_any_program_reads() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(ManualClock(1_000))
        await engine.commit(
            "b", Batch(puts=(Put("k", '{"title":"é","n":[1,2.0]}'.encode()), Put("l", b"7", 5_000)))
        )
        await engine.commit("a", Batch(puts=(Put("x", b"null"),)))
        data, summary = await exported(engine)
        assert data.decode().splitlines()[:3] == [
            '{"space":"a","key":"x","value":null}',
            '{"space":"b","key":"k","value":{"title":"é","n":[1,2.0]}}',
            '{"space":"b","key":"l","value":7,"expires":5000}',
        ]
        *lines, last = data.splitlines(keepends=True)
        assert json.loads(last) == {
            "rows": 3,
            "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
        }
        assert summary == ExportResult(3, json.loads(last)["sha256"])

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [*VALUES, *ODD_VALUES])
def test_every_value_is_one_line_and_comes_back_to_the_byte(value: bytes) -> None:
    line = encode_row("s", Put("k", value, 7))
    assert line.count(b"\n") == 1 and b"\r" not in line
    line.decode()

    async def scenario() -> None:
        engine = MemoryEngine(ManualClock(0))
        assert await imported(engine, line, allow_truncated=True) == ImportResult(1, 1, 0)
        (row,) = await engine.read("s", ["k"])
        assert row is not None and (row.value, row.expires) == (value, 7)

    asyncio.run(scenario())


def test_rows_that_imitate_others_when_concatenated_are_distinguished() -> None:
    for values in (
        [b"[1", b"2]", b"3,4"],
        [b'1,"expires":5', b"1"],
        [b'"', b'"'],
        [b"1", b"", b"2"],
        [b" 1"],
        [b"1\n"],
    ):
        rows = [Row(f"k{at}", value, 1, at if at % 2 else None) for at, value in enumerate(values)]
        one_by_one = b"".join(
            [encode_row("s", Put(row.key, row.value, row.expires)) for row in rows]
        )
        assert encode_rows("s", rows) == one_by_one
        read = [decode(line, 1) for line in one_by_one.splitlines(keepends=True)]
        assert [each.put.value for each in read if isinstance(each, ExportedRow)] == values


@pytest.mark.parametrize("seed", range(20))
def test_many_lines_decode_like_each_of_them(seed: int) -> None:
    draw = random.Random(seed)
    some = (*VALUES, *ODD_VALUES, b"1", b'{"a":1}')
    rows = [
        Row(f"k{at:03d}", draw.choice(some), 1, draw.choice((None, 7)))
        for at in range(draw.randrange(1, 30))
    ]
    lines = [encode_row("é", Put(row.key, row.value, row.expires)) for row in rows]
    assert encode_rows("é", rows) == b"".join(lines)
    assert decode_all(lines, 1) == [decode(line, 1) for line in lines]


def test_values_of_a_store_are_exported_as_json() -> None:
    assert b'"value":{"a":[1,-0.0,"\\u0000"]}' in encode_row(
        "s", Put("k", b'{"a":[1,-0.0,"\\u0000"]}')
    )
    assert b'"text":' in encode_row("s", Put("k", b"not JSON"))
    assert b'"base64":' in encode_row("s", Put("k", b"\xff"))


@pytest.mark.parametrize("depth", [129, 2_000, 100_000])
def test_a_value_that_is_nested_too_deep_for_some_parser_is_exported_as_text(depth: int) -> None:
    """Newer versions of Python parse deeper values: older ones could not import their exports."""
    value = b"[" * depth + b"]" * depth
    assert b'"text":"[[' in encode_row("s", Put("k", value))
    row = Row("k", value, 1, None)
    assert encode_rows("s", [row, row]) == 2 * encode_row("s", Put("k", value))
    assert b'"value":[[' in encode_row("s", Put("k", value[depth - 128 : depth + 128]))


# Round trips


@pytest.mark.parametrize("kind", ["memory", "sqlite", "rocksdb"])
def test_a_hostile_store_is_exported_and_imported_whole(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = MemoryEngine(clock)
        await hostile(source)
        target: Engine = MemoryEngine(clock)
        if kind == "sqlite":
            target = SqliteEngine.open(tmp_path / "rows.db", clock=clock)
        elif kind == "rocksdb":
            target = RocksdbEngine.open(tmp_path / "rows", clock=clock)
        data, summary = await exported(source)
        result = await imported(target, data)
        assert result == ImportResult(summary.rows, summary.rows, 0)
        assert await contents(target) == await contents(source)
        assert await digests(target) == await digests(source)
        again, _ = await exported(target)
        assert again == data
        await target.close()

    asyncio.run(scenario())


def test_some_spaces_alone_can_be_exported() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await fill(engine)
        data, summary = await exported(engine, spaces=["s2", "s0", "s0", "absent"])
        assert summary.rows == 40 + 120
        assert [json.loads(line).get("space") for line in data.splitlines()] == ["s0"] * 40 + [
            "s2"
        ] * 120 + [None]

    asyncio.run(scenario())


def test_an_empty_store_is_one_line() -> None:
    data, summary = asyncio.run(exported(MemoryEngine()))
    assert summary.rows == 0
    assert data.count(b"\n") == 1
    assert asyncio.run(imported(MemoryEngine(), data)) == ImportResult(0, 0, 0)


def test_rows_that_have_expired_are_neither_exported_nor_imported() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine, target = MemoryEngine(clock), MemoryEngine(clock)
        await engine.commit(
            "s", Batch(puts=(Put("a", b"1", clock.now() + 10), Put("b", b"1"), Put("c", b"1", 5)))
        )
        data, summary = await exported(engine)
        assert summary.rows == 2
        clock.advance(milliseconds=10)
        assert await imported(target, data) == ImportResult(2, 1, 1)
        assert (await exported(engine))[1].rows == 1
        assert await contents(engine) == await contents(target)

    asyncio.run(scenario())


def test_a_backup_is_written_in_blocks_with_progress() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await fill(engine, rows=3_000)
        pieces: list[bytes] = []
        reports: list[int] = []
        await export_rows(engine, pieces.append, on_progress=reports.append)
        assert max(map(len, pieces)) < 200_000
        assert reports == sorted(reports) and reports[-1] == 18_000 and len(reports) > 10
        reports.clear()
        target = FaultyEngine(MemoryEngine(), rows=50, bytes=2_000)
        await import_rows(target, io.BytesIO(b"".join(pieces)), on_progress=reports.append)
        assert reports == sorted(reports) and reports[-1] == 18_000 and len(reports) > 4
        assert await contents(target) == await contents(engine)

    asyncio.run(scenario())


# Cut off


def test_an_export_truncated_at_any_byte_resumes_and_is_the_same() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(ManualClock())
        await fill(engine, spaces=2, rows=4)
        whole, summary = await exported(engine)
        for cut in range(len(whole) + 1):
            start = read_partial_export(io.BytesIO(whole[:cut]))
            assert start.bytes == whole[:cut].rfind(b"\n") + 1
            rest, result = await exported(engine, resume=start)
            assert whole[: start.bytes] + rest == whole
            assert (result.rows, result.sha256) == (summary.rows, summary.sha256)

    asyncio.run(scenario())


@pytest.mark.parametrize("late", [False, True])
def test_an_import_killed_at_any_call_is_run_again_and_writes_only_the_rest(late: bool) -> None:
    async def scenario() -> None:
        source = MemoryEngine(ManualClock())
        await fill(source, rows=150)
        data, summary = await exported(source)
        calls = 0
        while True:
            calls += 1
            target = MemoryEngine(source.clock)
            try:
                await imported(FaultyEngine(target, die(calls, after=late)), data)
                break
            except Killed:
                there = sum([len(rows) for rows in (await contents(target)).values()])
                assert (await imported(target, data)).written == summary.rows - there
                assert await contents(target) == await contents(source)
        assert calls >= 7

    asyncio.run(scenario())


def test_a_second_import_writes_nothing_and_one_over_other_rows_puts_them_right() -> None:
    async def scenario() -> None:
        engine, target = MemoryEngine(ManualClock()), MemoryEngine(ManualClock())
        await fill(engine)
        data, summary = await exported(engine)
        assert (await imported(target, data)).written == summary.rows
        assert (await imported(target, data)).written == 0
        await target.commit(
            "s1", Batch(puts=(Put("k00001", b"7"), Put("own", b"1")), deletes=("k00002",))
        )
        assert (await imported(target, data)).written == 2
        assert (await target.read("s1", ["own"]))[0] is not None, "an import takes nothing away"

    asyncio.run(scenario())


@pytest.mark.parametrize("between", [b"", b'{"space":"t","key":"k","value":1}\n'])
def test_the_last_line_of_a_key_wins(between: bytes) -> None:
    """With another space between two lines of a key, they were concurrent commits in any order."""
    lines = (
        b'{"space":"s","key":"k","value":1}\n' + between + b'{"space":"s","key":"k","value":2}\n'
    )

    async def scenario() -> None:
        engine = FaultyEngine(MemoryEngine(), meanwhile(1, lambda: loop_turns(50), call="commit"))
        await imported(engine, lines, allow_truncated=True)
        (row,) = await engine.read("s", ["k"])
        assert row is not None and row.value == b"2"

    asyncio.run(scenario())


# Rejected input


def test_a_truncated_or_changed_file_is_rejected() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        await fill(engine)
        data, _ = await exported(engine)
        lines = data.splitlines(keepends=True)
        with pytest.raises(UnreadableError, match="truncated"):
            await imported(MemoryEngine(), b"".join(lines[:-1]))
        assert (
            await imported(MemoryEngine(), b"".join(lines[:-1]), allow_truncated=True)
        ).rows == len(lines) - 1
        for changed in (
            lines[1:],
            lines[:5] + lines[6:],
            [lines[0].replace(b":0}", b":9}"), *lines[1:]],
        ):
            with pytest.raises(UnreadableError, match="do not match its trailer"):
                await imported(MemoryEngine(), b"".join(changed))
        with pytest.raises(DocumentError, match="continues after its trailer"):
            await imported(MemoryEngine(), data + lines[0])
        assert (await imported(MemoryEngine(), data + b"\n\n")).rows == len(lines) - 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"not JSON", DocumentError),
        (b"[]", DocumentError),
        (b"{}", DocumentError),
        (b'{"space":"s","key":"k"}', DocumentError),
        (b'{"space":"s","value":1}', DocumentError),
        (b'{"key":"k","value":1}', DocumentError),
        (b'{"space":"","key":"k","value":1}', DocumentError),
        (b'{"space":"a\\u0000b","key":"k","value":1}', DocumentError),
        (b'{"space":"' + b"x" * 256 + b'","key":"k","value":1}', DocumentError),
        (b'{"space":"s","key":"","value":1}', KeyFieldError),
        (b'{"space":"s","key":"a\\u0000b","value":1}', KeyFieldError),
        (b'{"space":"s","key":"' + b"k" * 1_025 + b'","value":1}', KeyFieldError),
        (b'{"space":"s","key":"k","value":NaN}', DocumentError),
        (b'{"space":"s","key":"k","value":1,"text":"1"}', DocumentError),
        (b'{"space":"s","key":"k","base64":"?"}', DocumentError),
        (b'{"space":"s","key":"k","value":1,"expires":"soon"}', DocumentError),
        (b'{"space":"s","key":"k","value":1,"expires":1.5}', DocumentError),
        (b'{"space":"s","key":"k","value":1,"expires":%d}' % (EXPIRES_MAX + 1), DocumentError),
        (b'{"space":"s","key":"k","value":1,"ttl":5}', DocumentError),
        (b'{"space":"s","key":"\xff","value":1}', DocumentError),
        (b'{"space":"s","key":"k","value":' + b"[" * 99_999 + b"]" * 99_999 + b"}", DocumentError),
        (b'{"space":"s","key":"k","value":"' + b"x" * VALUE_BYTES_MAX + b'"}', LimitError),
        (b'{"space":"s","key":"k","shown":1}', UsageError),
    ],
)
def test_an_invalid_line_is_rejected_with_its_number(line: bytes, error: type[CallerError]) -> None:
    data = b'{"space":"s","key":"before","value":1}\n\n' + line + b"\n"
    with pytest.raises(error) as refusal:
        asyncio.run(imported(MemoryEngine(), data))
    assert refusal.value.fields["line"] == 3


# For people


class Account(msgspec.Struct):
    name: str
    mail: str
    secret: str = "x"


BY_MAIL = Index("idx:mail:{mail}:{name}")
ACCOUNT = Record(Account, "account:{name}", BY_MAIL, private=("mail", "secret"))
ACCOUNTS = Schema("accounts", ACCOUNT, space=Space("a customer"))


def test_an_export_is_whole_as_it_is_and_not_when_a_byte_of_it_is_another() -> None:
    rows = [encode_row("s", Put(f"k{at:05d}", b"1")) for at in range(BLOCK_LINES + 10)]
    for count in (0, 1, 2, BLOCK_LINES - 1, BLOCK_LINES, BLOCK_LINES + 10):
        checksum = Checksum()
        checksum.add(b"".join(rows[:count]), count)
        text = b"".join(rows[:count]) + encode_trailer(checksum.trailer())
        assert is_complete_export(io.BytesIO(text)) and is_complete_export(
            io.BytesIO(b"\n" + text + b"\n")
        )
        cuts = [
            text[:-2],
            text.replace(b"1}", b"2}", 1) if count else b"",
            text + b"{}\n",
            b"".join(rows[:count]),
        ]
        assert not any(is_complete_export(io.BytesIO(each)) for each in cuts)
    assert not is_complete_export(io.BytesIO(shown_export()))


def shown_export() -> bytes:
    """A redacted export is complete, but cannot be imported."""
    line, checksum = encode_redacted("s", "k", {"a": 1}, None), Checksum()
    checksum.add(line)
    return line + encode_trailer(checksum.trailer())


def test_an_error_late_in_a_file_states_how_much_was_written() -> None:
    async def scenario() -> None:
        good = [encode_row("s", Put(f"k{at:05d}", b"1")) for at in range(BLOCK_LINES)]
        for lines, fields in ((good, {"written_up_to": BLOCK_LINES}), (good[:-1], {})):
            engine = MemoryEngine()
            with pytest.raises(DocumentError) as refused:
                await imported(engine, b"".join(lines) + b"{\n")
            more = {
                name: value
                for name, value in refused.value.fields.items()
                if name not in ("line", "reason")
            }
            assert more == fields
            assert fields or not [space async for space in engine.spaces()]

    asyncio.run(scenario())


def test_an_export_for_people_has_the_records_without_their_private_members() -> None:
    async def scenario() -> None:
        engine = MemoryEngine(ManualClock(0))
        account = msgspec.json.encode(Account("ann", "ann@example.org"))
        puts = (
            Put("account:ann", account, 5_000),
            Put("account:bad", b'{"mail":"bad@example.org"}'),
            Put("idx:mail:ann@example.org:ann", b"1"),
            Put("unknown", b'"secret"'),
        )
        await engine.commit("s", Batch(puts=puts))
        data, summary = await exported(engine, schemas=[ACCOUNTS])
        assert json.loads(data.splitlines()[0]) == {
            "space": "s",
            "key": "account:ann",
            "shown": {"name": "ann"},
            "expires": 5_000,
        }
        assert summary.rows == 1 and summary.left_out == 3
        assert b"example.org" not in data and b"secret" not in data
        with pytest.raises(UsageError, match="make a complete one"):
            await imported(MemoryEngine(), data)

    asyncio.run(scenario())


def test_a_space_outside_the_schema_is_left_out() -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        only = Schema("one", Record(Account, "account:{name}"), space=Space("the one", name="one"))
        for space in ("one", "two"):
            await engine.commit(
                space, Batch(puts=(Put("account:ann", b'{"name":"ann","mail":"m"}'),))
            )
        data, summary = await exported(engine, schemas=[only])
        assert summary.rows == 1 and summary.left_out == 1
        assert json.loads(data.splitlines()[0])["space"] == "one"

    asyncio.run(scenario())


@pytest.mark.parametrize("schemas", [[], [ACCOUNTS]])
def test_an_export_resumes_only_as_it_was_started(schemas: list[Schema]) -> None:
    async def scenario() -> None:
        engine = MemoryEngine()
        for name in ("ann", "bob", "cy"):
            account = msgspec.json.encode(Account(name, f"{name}@example.org"))
            await engine.commit("s", Batch(puts=(Put(f"account:{name}", account),)))
        data, _ = await exported(engine, schemas=schemas)
        start = read_partial_export(data.splitlines(keepends=True)[:2])
        rest, _ = await exported(engine, schemas=schemas, resume=start)
        assert data[: start.bytes] + rest == data
        start = read_partial_export(data.splitlines(keepends=True)[:2])
        with pytest.raises(UsageError, match="as it was started"):
            await exported(engine, schemas=[] if schemas else [ACCOUNTS], resume=start)

    asyncio.run(scenario())
