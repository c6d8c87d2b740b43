"""Batches of one group are written together, with the result of writing each on its own."""

import asyncio
import tempfile
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keyhouse.engine import Add, Batch, Check, Put, Row
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.engines.sqlite.sql import READ_TOGETHER_MAX, VALUE_INLINE_BYTES

KEYS = ("a", "b", "c")
COUNTER = "n"
LARGE = b'"' + b"x" * VALUE_INLINE_BYTES + b'"'
SPACES = ("s", "t")
ABSENT = tuple(Check(key, None) for key in KEYS)


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, Batch]:
    written = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from((b"1", LARGE, None))))
    checks = draw(st.sets(st.sampled_from(KEYS)))
    adds = draw(st.booleans())
    if not adds:
        written |= draw(st.dictionaries(st.just(COUNTER), st.sampled_from((b"7", None))))
    batch = Batch(
        checks=tuple(Check(key, None) for key in checks),
        puts=tuple(Put(key, value) for key, value in written.items() if value is not None),
        deletes=tuple(key for key, value in written.items() if value is None),
        adds=(Add(COUNTER, 1),) if adds else (),
    )
    return draw(st.sampled_from(SPACES)), batch


@settings(deadline=None)
@given(st.lists(batches(), min_size=1, max_size=12))
@example(
    [
        ("s", Batch(checks=ABSENT, puts=(Put("a", b"1"),))),
        ("s", Batch(checks=ABSENT, puts=(Put("b", b"1"),))),
        ("s", Batch(deletes=("a",))),
        ("s", Batch(checks=ABSENT, puts=(Put("c", b"1"),))),
    ]
)
def test_a_group_of_batches_writes_what_they_write_one_by_one(
    group: list[tuple[str, Batch]],
) -> None:
    async def scenario(folder: str) -> None:
        memory = MemoryEngine()
        sqlite = SqliteEngine.open(Path(folder) / "rows.db")
        try:
            expected = [await memory.commit(space, batch) is None for space, batch in group]
            found = await asyncio.gather(*(sqlite.commit(space, batch) for space, batch in group))
            assert [revision is None for revision in found] == expected
            for space in SPACES:
                for keys in (KEYS, (*KEYS, COUNTER)):
                    ours, theirs = await sqlite.read(space, keys), await memory.read(space, keys)
                    assert [_value(row) for row in ours] == [_value(row) for row in theirs]
        finally:
            await sqlite.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(folder))


def _value(row: Row | None) -> bytes | None:
    return None if row is None else row.value


def test_any_number_of_rows_is_read_in_the_order_of_their_keys(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = SqliteEngine.open(tmp_path / "rows.db")
        present = [f"k{number}" for number in range(0, 40, 2)]
        await engine.commit(
            "s", Batch(puts=tuple(Put(key, msgspec.json.encode(key)) for key in present))
        )
        for count in range(READ_TOGETHER_MAX + 4):
            keys = [f"k{number * 7 % 40}" for number in range(count)]
            rows = await engine.read("s", keys)
            assert [None if row is None else row.key for row in rows] == [
                key if key in present else None for key in keys
            ]
        assert not engine.reader.connection.in_transaction
        await engine.close()

    asyncio.run(scenario())
