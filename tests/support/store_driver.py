"""Helpers of all systems' tests: drive a store on an engine, read raw rows, check round trips."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine, Span
from keyhouse.keys import Template
from keyhouse.schema import Record
from keyhouse.store import Store, verify
from keyhouse.testing.conformance import Opener

NOW = 1_767_225_600_000
"""When the tests begin."""

NOW_TEXT = "2026-01-01T00:00:00Z"

Work = Callable[[Engine, ManualClock], Awaitable[None]]


class Drive:
    """Runs a test's work on a fresh engine with a clock that stands still."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def __call__(self, work: Work) -> None:
        asyncio.run(self._run(work))

    async def _run(self, work: Work) -> None:
        clock = ManualClock(NOW)
        engine = await self._opener(clock)
        try:
            await work(engine, clock)
        finally:
            await engine.close()


async def rows(store: Store) -> dict[str, Any]:
    """Every live row of the store's space, each value parsed."""
    page = await store.engine.scan(store.space, Span(), limit=10_000)
    assert not page.more
    return {row.key: json.loads(row.value) for row in page.rows}


async def holds(store: Store, expected: dict[str, Any]) -> None:
    """The space holds exactly these rows, and verify agrees with them."""
    assert await rows(store) == expected
    assert [finding async for finding in verify(store)] == []


def written(record: Record[Any], value: Any, **changes: Any) -> dict[str, Any]:
    """The JSON of a record as the store keeps it, with what the store sets in it."""
    plain: dict[str, Any] = json.loads(record.json.encode(value))
    return plain | changes


def key_round_trips(template: Template, key: str, fields: dict[str, object]) -> None:
    """The key is built from the fields, read into them, and built again."""
    assert template.build(fields) == key
    assert template.parse(key) == fields


def value_round_trips(record: Record[Any], value: Any) -> None:
    """The JSON is read as the record, and written as it was: each member, and each number in its
    kind."""
    written = record.json.encode(record.json.decode(msgspec.json.encode(value)))
    assert json.dumps(json.loads(written), sort_keys=True) == json.dumps(value, sort_keys=True)


def ulid(number: int) -> str:
    """A ULID that a reader can tell from the others."""
    return f"01J{number:023d}"
