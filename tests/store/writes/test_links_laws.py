"""Laws of linked records, in transactions of any order: no record is without its owner, none refers
to an absent one, and the store equals a model of dictionaries."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keyhouse.clock import ManualClock
from keyhouse.engine import Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import LimitError, LinkError
from keyhouse.schema import Record
from keyhouse.store import Store, Transaction, verify
from keyhouse.testing.faults import FaultyEngine
from tests.sizes import size
from tests.store.support.linked_schema import (
    AUTHOR,
    BOOK,
    ENTRY,
    LIST,
    MARK,
    MARKS_WITH_TAG,
    PERSON,
    SCHEMA,
    Author,
    Book,
    Listing,
    Mark,
    Person,
)

IDS = st.sampled_from(["a", "b"])
MAYBE = st.sampled_from(["a", "b", None])
Step = tuple[str, str, str | None]
STEPS = st.tuples(
    st.sampled_from(
        [f"{verb} {name}" for verb in ("put", "delete") for name in ("person", "list", "entry")]
        + [f"{verb} {name}" for verb in ("put", "delete") for name in ("mark", "author", "book")]
    ),
    IDS,
    MAYBE,
)
RECORDS: dict[str, Record[Any]] = {
    "person": PERSON,
    "list": LIST,
    "entry": ENTRY,
    "mark": MARK,
    "author": AUTHOR,
    "book": BOOK,
}
OWNERS = {"list": "person", "entry": "list", "mark": "list"}
Model = dict[tuple[str, str], str | None]
"""Each record by its name and id, with the id of the record that it is linked to."""


async def step(tx: Transaction, verb: str, id: str, other: str | None) -> None:
    action, _, name = verb.partition(" ")
    if action == "delete":
        fields: dict[str, Any] = {"list": id, "position": 1} if name == "entry" else {"id": id}
        await tx.delete(RECORDS[name], **fields)
    elif name == "entry":
        await tx.put(ENTRY, "x", list=id, position=1)
    else:
        values: dict[str, Any] = {
            "person": Person(id=id, name=id),
            "list": Listing(id=id, person=other, title=id),
            "mark": Mark(id=id, list=other or "a"),
            "author": Author(id=id),
            "book": Book(id=id, author=other, binned=id == "b"),
        }
        await tx.put(RECORDS[name], values[name])


def expected(model: Model, verb: str, id: str, other: str | None) -> None:
    action, _, name = verb.partition(" ")
    if action == "delete":
        if model.pop((name, id), "absent") != "absent":
            for child, owner in OWNERS.items():
                for key in [k for k, v in model.items() if k[0] == child and v == id]:
                    if owner == name:
                        expected(model, f"delete {child}", key[1], None)
        return
    linked = {"entry": id, "mark": other or "a", "list": other, "book": other}
    model[name, id] = linked.get(name)


def holds(model: Model) -> bool:
    return all(
        linked is None or (OWNERS.get(name, "author"), linked) in model
        for (name, _), linked in model.items()
    )


async def stored(store: Store) -> set[tuple[str, str]]:
    rows = [row async for row in store.row_scan(Span())]
    names = {f"{name}:" for name in RECORDS}
    found = [row.key.split(":") for row in rows if row.key.startswith(tuple(names))]
    return {(parts[0], parts[1]) for parts in found}


@settings(max_examples=size(50, 150, 3_000), deadline=None)
@given(st.lists(st.lists(STEPS, min_size=1, max_size=4), max_size=14), st.booleans())
def test_links_hold_after_every_transaction(work: list[list[Step]], small: bool) -> None:
    async def story() -> None:
        engine = MemoryEngine(ManualClock())
        store = Store(SCHEMA, FaultyEngine(engine, rows=12 if small else 10_000), "space")
        model: Model = {}
        for steps in work:
            trial = dict(model)
            for each in steps:
                expected(trial, *each)

            async def run(tx: Transaction, steps: list[Step] = steps) -> None:
                for each in steps:
                    await step(tx, *each)

            try:
                await store.transact(run)
                assert holds(trial), steps
                model = trial
            except LinkError:
                assert not holds(trial), steps
            except LimitError:  # four puts with their rows: nothing of them is written
                assert small, steps
            assert await stored(store) == set(model)
            marks = sum(name == "mark" for name, _ in model)
            assert await store.record_count(MARKS_WITH_TAG, tag="x") == marks
        assert [finding async for finding in verify(store)] == []
        keys = {row.key async for row in store.row_scan(Span())}
        assert not [key for key in keys if key.startswith("meta:")], "no guard is left"

    asyncio.run(story())
