"""The workload of processes that get killed: operations derived from a seed, and a model of them.

Operation `number` of a task depends only on the seed, the task and the number. Each is one
transaction that also adds 1 to the task's operation counter. After a kill the counters tell how
many operations of each task were applied, and the model computes every row.
"""

import random
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from keyhouse.engine import Row, Span
from keyhouse.errors import UniqueError
from keyhouse.schema import (
    Counter,
    FoldResult,
    Index,
    Log,
    LogState,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
)
from keyhouse.schema.log import Fold
from keyhouse.store import Store, Transaction, prune, verify

TASKS = 8
KEPT = 3
"""Events that pruning keeps in a stream."""


class Item(Struct, kw_only=True):
    id: str
    name: str
    shelf: str
    tags: list[str]
    step: int


class Sale(Struct, kw_only=True):
    step: int
    amount: int


class Tally(LogState, kw_only=True):
    events: int = 0
    amount: int = 0


def _tally(counter: Counter) -> Fold:
    def folded(state: Tally | None, event: Sale, found: object) -> FoldResult:
        before = state or Tally(through="")
        after = Tally(through="", events=before.events + 1, amount=before.amount + event.amount)
        return FoldResult(after, adds=[(counter, event.amount, {})])

    return folded


BY_SHELF = Index("idx:shelf:{shelf}:{id}")
BY_TAG = Index("idx:tag:{tag}:{id}", each={"tag": "tags"})
BY_NAME = Unique("idx:name:{name}", value="id")
ON_SHELF = Summary("shelf:{shelf}", member="id", under="ids")
PER_SHELF = RecordCount("count:{shelf}")
ITEM = Record(Item, "item:{id}", BY_SHELF, BY_TAG, BY_NAME, ON_SHELF, PER_SHELF)

OPERATIONS = Counter("operations:{task}", name="operations")
TOTAL = Counter("total", name="total")
SOLD = Counter("sold", name="sold")
VIEWED = Counter("viewed", name="viewed")
SALES = Record(Tally, "sales:{task}", name="sales")
VIEWS = Record(Tally, "views:{task}", name="views")
SALE = Log(Sale, "sale:{task}:{at:ulid}", name="sale", state=SALES, fold=_tally(SOLD))
VIEW = Log(Sale, "view:{task}:{at:ulid}", name="view", state=VIEWS, fold=_tally(VIEWED))

SHOP = Schema(
    "shop", ITEM, OPERATIONS, TOTAL, SOLD, VIEWED, SALES, VIEWS, SALE, VIEW, space=Space("a shop")
)

Kind = Literal["put", "delete", "swap", "sell", "view", "prune"]
_KINDS: tuple[Kind, ...] = ("put", "delete", "swap", "sell", "view", "prune")
_OFTEN = (40, 10, 12, 16, 14, 4)


class Operation(Struct, frozen=True, kw_only=True):
    kind: Kind
    task: str
    step: int
    ids: tuple[str, str]
    names: tuple[str, str]
    shelves: tuple[str, str]
    tags: tuple[str, ...]
    amount: int


def operation(seed: str, task: int, number: int) -> Operation:
    """Return the operation of this number, from 1."""
    draw = random.Random(f"{seed}/{task}/{number}")
    first, second = draw.sample(range(6), 2)
    return Operation(
        kind=draw.choices(_KINDS, _OFTEN)[0],
        task=f"t{task}",
        step=number,
        ids=(f"t{task}-{first}", f"t{task}-{second}"),
        names=tuple(f"n{task}-{draw.randrange(9)}" for _ in range(2)),  # type: ignore[arg-type]
        shelves=tuple(f"s{draw.randrange(5)}" for _ in range(2)),  # type: ignore[arg-type]
        tags=tuple(draw.sample(("red", "green", "blue", "a:b%"), draw.randrange(4))),
        amount=draw.randrange(1, 100),
    )


def items(op: Operation) -> list[Item]:
    """Return the items that the operation puts: one, or two in one commit."""
    count = {"put": 1, "swap": 2}.get(op.kind, 0)
    return [
        Item(id=op.ids[i], name=op.names[i], shelf=op.shelves[i], tags=list(op.tags), step=op.step)
        for i in range(count)
    ]


async def perform(store: Store, op: Operation) -> None:
    """Run the operation in one commit; pruning takes several, and is counted last."""
    if op.kind == "prune":
        async for _ in prune(
            store, SALE, before=store.engine.clock.now() + 60_000, keep=KEPT, task=op.task
        ):
            pass

    async def work(tx: Transaction) -> None:
        await _count(tx, op)
        for item in items(op):
            await tx.put(ITEM, item)
        if op.kind == "delete":
            await tx.delete(ITEM, id=op.ids[0])
        if op.kind in ("sell", "swap"):
            await tx.append(SALE, Sale(step=op.step, amount=op.amount), task=op.task)
        if op.kind in ("view", "swap"):
            await tx.append(VIEW, Sale(step=op.step, amount=op.amount), task=op.task)

    async def refused(tx: Transaction) -> None:
        await _count(tx, op)

    try:
        await store.transact(work)
    except UniqueError:
        await store.transact(refused)


async def _count(tx: Transaction, op: Operation) -> None:
    await tx.add(OPERATIONS, 1, task=op.task)
    await tx.add(TOTAL, op.amount)


class Model:
    """The expected rows of one task's operations."""

    def __init__(self, seed: str, task: int) -> None:
        self._seed = seed
        self._task = task
        self.done = 0
        self.items: dict[str, Item] = {}
        self.total = 0
        self.sales: list[Sale] = []
        self.views: list[Sale] = []

    def advance(self, done: int) -> None:
        """Advance the model to this number of operations."""
        for number in range(self.done + 1, done + 1):
            self._apply(operation(self._seed, self._task, number))
        self.done = done

    def _apply(self, op: Operation) -> None:
        self.total += op.amount
        after = dict(self.items)
        for item in items(op):
            if any(other.name == item.name and other.id != item.id for other in after.values()):
                return  # the name is taken: nothing of it was written
            after[item.id] = item
        if op.kind == "delete":
            after.pop(op.ids[0], None)
        self.items = after
        if op.kind in ("sell", "swap"):
            self.sales.append(Sale(step=op.step, amount=op.amount))
        if op.kind in ("view", "swap"):
            self.views.append(Sale(step=op.step, amount=op.amount))


async def faults(store: Store, models: list[Model], acknowledged: list[int]) -> list[str]:
    """Return all problems after these operations were acknowledged; empty if there are none.

    The models are advanced to the stored operations.
    """
    found: list[str] = []
    for task, (model, least) in enumerate(zip(models, acknowledged, strict=True)):
        done = await store.get(OPERATIONS, task=f"t{task}") or 0
        if not least <= done <= max(least, model.done) + 1:
            return [f"task {task}: {least} operations were acknowledged, {done} are stored"]
        model.advance(done)
    rows = await _all_rows(store)
    found += _differences(_derived(item for model in models for item in model.items.values()), rows)
    for task, model in enumerate(models):
        found += await _wrong_logs(store, f"t{task}", model)
    sums = {
        TOTAL: sum(model.total for model in models),
        SOLD: sum(sale.amount for model in models for sale in model.sales),
        VIEWED: sum(view.amount for model in models for view in model.views),
    }
    for counter, total in sums.items():
        if (there := await store.get(counter)) != total:
            found.append(f"{counter.name}: {there} instead of {total}")
    return found + [f"verify: {finding}" async for finding in verify(store)]


async def _all_rows(store: Store) -> dict[str, Row]:
    page = await store.engine.scan(store.space, Span(), limit=10_000)
    assert not page.more
    return {row.key: row for row in page.rows}


def _derived(stored: Iterable[Item]) -> dict[str, object]:
    """Return every row of the items and their derived rows, without using the code under test."""
    rows: dict[str, object] = {}
    shelves: dict[str, set[str]] = {}
    for item in stored:
        rows[f"item:{item.id}"] = msgspec.to_builtins(item)
        rows[f"idx:shelf:{item.shelf}:{item.id}"] = 1
        rows[f"idx:name:{item.name}"] = item.id
        for tag in item.tags:
            rows[f"idx:tag:{tag.replace('%', '%25').replace(':', '%3A')}:{item.id}"] = 1
        shelves.setdefault(item.shelf, set()).add(item.id)
    for shelf, ids in shelves.items():
        rows[f"shelf:{shelf}"] = ids
        rows[f"count:{shelf}"] = len(ids)
    return rows


def _differences(expected: dict[str, object], rows: dict[str, Row]) -> list[str]:
    stored: dict[str, object] = {}
    for key, row in rows.items():
        if key.startswith(("item:", "idx:", "shelf:", "count:")) and row.value != b"0":
            value = msgspec.json.decode(row.value)
            stored[key] = set(value["ids"]) if key.startswith("shelf:") else value
    return [
        f"{key}: {stored.get(key)} instead of {expected.get(key)}"
        for key in sorted(stored.keys() | expected.keys())
        if stored.get(key) != expected.get(key)
    ]


async def _wrong_logs(store: Store, task: str, model: Model) -> list[str]:
    """Check that each event is in the log once, in order, and folded once."""
    found = []
    sales = [entry.record async for entry in store.scan(SALE, task=task)]
    if sales != model.sales[len(model.sales) - len(sales) :] or len(sales) < min(
        KEPT, len(model.sales)
    ):
        found.append(f"sales of {task}: the log holds {[sale.step for sale in sales]}")
    views = [entry.record async for entry in store.scan(VIEW, task=task)]
    if views != model.views:
        found.append(f"views of {task}: the log holds {[view.step for view in views]}")
    for record, events in ((SALES, model.sales), (VIEWS, model.views)):
        state = await store.get(record, task=task) or Tally(through="")
        if (state.events, state.amount) != (len(events), sum(event.amount for event in events)):
            found.append(f"{record.name} of {task}: {state} of {len(events)} events")
    return found
