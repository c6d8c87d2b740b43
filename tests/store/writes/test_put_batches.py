"""A put commits the batch that a transaction of one put does, for every kind of record."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError
from keyhouse.schema import Index, Record, Schema, Space, at_field, fixed, per_write, sliding
from keyhouse.store import Store


class Note(msgspec.Struct, kw_only=True):
    id: str
    title: str
    tags: list[str] = []
    until: str | None = None
    version: int = 0
    slug: str = ""
    created: str = ""
    updated: str = ""


MARKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "computed": {"computed": {"slug": lambda note: note.title.lower()}},
    "versioned": {"version": ("version", 3)},
    "created": {"created": "created"},
    "updated": {"updated": "updated"},
}
MARKS["all"] = {name: value for each in list(MARKS.values()) for name, value in each.items()}
EXPIRIES: dict[str, Any] = {
    "forever": None,
    "fixed": fixed(60),
    "sliding": sliding(60),
    "per write": per_write(),
    "at field": at_field("until"),
}


class Noting(MemoryEngine):
    """Notes what it commits."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.noted: list[Batch] = []

    async def commit(self, space: str, batch: Batch) -> int | None:
        self.noted.append(batch)
        return await super().commit(space, batch)


@pytest.mark.parametrize("derives", [False, True], ids=["one row", "derived rows"])
@pytest.mark.parametrize("expiry", EXPIRIES)
@pytest.mark.parametrize("marks", MARKS)
def test_a_put_commits_the_batch_that_a_transaction_does(
    marks: str, expiry: str, derives: bool
) -> None:
    derived = (
        Index("title:{title:norm}:{id}", value="id"),
        Index("tag:{tag}:{id}", each={"tag": "tags"}),
    )
    record = Record(
        Note, "n:{id}", *(derived if derives else ()), expiry=EXPIRIES[expiry], **MARKS[marks]
    )
    schema = Schema("notes", record, space=Space("notes"))
    draw = random.Random(f"{marks} {expiry} {derives}")
    clock = ManualClock()
    ours, theirs = Noting(clock), Noting(clock)
    short, long = Store(schema, ours, "a"), Store(schema, theirs, "a")

    async def both(note: Note, ttl: int | None) -> tuple[Any, Any]:
        found: list[Any] = []
        for writing in (
            short.put(record, note, ttl=ttl),
            long.transact(lambda tx: tx.put(record, note, ttl=ttl)),
        ):
            try:
                found.append((await writing).record)
            except KeyhouseError as error:
                found.append((error.code, error.fields))
        return found[0], found[1]

    async def scenario() -> None:
        for _ in range(60):
            late = draw.randrange(120)
            note = Note(
                id=draw.choice("ab"),
                title=draw.choice(["Dune", "Emma", "Ümit", "", "a\0"]),
                tags=draw.sample(["x", "y", "z"], draw.randrange(4)),
                until=draw.choice([None, f"2026-01-01T00:{late // 60:02d}:{late % 60:02d}Z"]),
            )
            one, other = await both(
                note, draw.choice([None, 5, 0] if expiry == "per write" else [None])
            )
            assert one == other
            assert ours.noted == theirs.noted
            clock.advance(seconds=1)
        assert len(ours.noted) > 10

    asyncio.run(scenario())
