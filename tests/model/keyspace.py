"""A keyspace with every kind of derived row, expiry, counter and log.

All keys begin with `home`, a setting of the store: two homes in one space must not affect each
other.
"""

from typing import Any

import msgspec

from keyhouse.schema import (
    MILLISECONDS,
    Counter,
    Derived,
    Expiry,
    First,
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
    at_field,
    fixed,
    per_write,
    sliding,
)


class Item(msgspec.Struct, kw_only=True):
    """A record that never expires, with a row of every kind."""

    id: str
    name: str | None = None
    shelf: str | None = None
    place: float | None = None
    tags: list[str] = []
    rank: int = 0
    listed: bool = True
    label: str = ""
    created: str = ""
    updated: str = ""
    v: int = 0


BY_SHELF = Index("{home}/x:shelf:{shelf}:{place:06.2f?}:{id}")
BY_TAG = Index("{home}/x:tag:{tag:norm}:{id}", each={"tag": "tags"})
BY_RANK = Index("{home}/x:rank:{rank:03d}:{id}", value="shelf", when=lambda item: item.listed)
BY_NAME = Unique("{home}/x:name:{name:norm}", value="id")
FIRST = First("{home}/x:first:{shelf}", value="id", among=BY_SHELF)
SHELF = Summary("{home}/m:shelf:{shelf}", member="id", under="ids", version=("v", 1))
RANK = Summary(
    "{home}/m:rank:{rank:03d}",
    member="id",
    under="items",
    entry=lambda item: {"name": item.name, "tags": item.tags},
)
ON_SHELF = RecordCount("{home}/n:shelf:{shelf}")
WITH_TAG = RecordCount(
    "{home}/n:tag:{tag:norm}", each={"tag": "tags"}, when=lambda item: item.listed
)

ITEM = Record(
    Item,
    "{home}/i:{id}",
    BY_SHELF,
    BY_TAG,
    BY_RANK,
    BY_NAME,
    FIRST,
    SHELF,
    RANK,
    ON_SHELF,
    WITH_TAG,
    computed={"label": lambda item: f"{item.name or item.id} #{item.rank}"},
    version=("v", 3),
    created="created",
    updated="updated",
    times=MILLISECONDS,
)


class Task(msgspec.Struct):
    """Two records, one open and one done, may have the same member in one summary."""

    id: str
    state: str
    project: str | None = None


BY_PROJECT = Index("{home}/x:project:{project}:{state:open|done}:{id}")
PROJECT = Summary("{home}/m:project:{project}", member="id", under="tasks")
IN_PROJECT = RecordCount("{home}/n:project:{project}")
TASK = Record(Task, "{home}/t:{state:open|done}|{id}", BY_PROJECT, PROJECT, IN_PROJECT)


class Mortal(msgspec.Struct):
    """A record with one of the four kinds of expiry."""

    id: str
    owner: str
    code: str | None = None
    tags: list[str] = []
    until: str | None = None


def mortal(name: str, expiry: Expiry) -> Record[Mortal]:
    return Record(
        Mortal,
        f"{{home}}/{name}:{{id}}",
        Index(f"{{home}}/x:{name}:{{owner}}:{{id}}"),
        Index(f"{{home}}/x:{name}-tag:{{tag}}:{{id}}", each={"tag": "tags"}, value="owner"),
        Unique(f"{{home}}/x:{name}-code:{{code}}", value="id"),
        name=name,
        expiry=expiry,
        times=MILLISECONDS,
    )


MORTALS = {
    "fixed": mortal("fixed", fixed(60)),
    "sliding": mortal("sliding", sliding(30)),
    "write": mortal("write", per_write()),
    "field": mortal("field", at_field("until")),
}

HITS = Counter("{home}/c:{name}", name="hits")


class Played(msgspec.Struct):
    item: str


class Plays(LogState):
    count: int = 0
    ranks: int = 0


class Last(msgspec.Struct):
    user: str
    item: str
    count: int


PLAYED_BY = Summary(
    "{home}/m:played:{item}", member="user", under="users", entry=lambda last: last.count
)
LAST = Record(Last, "{home}/last:{item}:{user}", PLAYED_BY)
TOTAL = Counter("{home}/total:{item}", name="total")


def _log(name: str) -> Log[Played]:
    state = Record(Plays, f"{{home}}/{name}-state:{{user}}", name=f"{name}-state")

    def fold(state: Any, event: Played, found: Any) -> FoldResult:
        """Count plays, sum the items' ranks, and write the log's name and count to each item."""
        count = 1 if state is None else state.count + 1
        rank = 0 if found["item"] is None else found["item"].rank
        after = Plays(through="", count=count, ranks=rank if state is None else state.ranks + rank)
        return FoldResult(
            after, [(LAST, Last(name, event.item, count), {})], [(TOTAL, 1, {"item": event.item})]
        )

    return Log(
        Played,
        f"{{home}}/{name}:{{user}}:{{at:ulid}}",
        name=name,
        state=state,
        fold=fold,
        needs=lambda event: {"item": (ITEM, {"id": event.item})},
    )


LOGS = {name: _log(name) for name in ("now", "later")}
NUMBER = Counter("{home}/number:{user}", name="number")
NUMBERED = Log(Played, "{home}/numbered:{user}:{at:06d}", name="numbered", sequence=NUMBER)
LOGS["numbered"] = NUMBERED

RECORDS: dict[str, Record[Any]] = {
    "item": ITEM,
    "task": TASK,
    **MORTALS,
    "last": LAST,
    **LOGS,
    **{f"{name}-state": log.state for name, log in LOGS.items() if log.state is not None},
}
COUNTERS = {"hits": HITS, "total": TOTAL, "number": NUMBER}
SCHEMA = Schema(
    "model",
    *RECORDS.values(),
    *COUNTERS.values(),
    space=Space("a test"),
    fixed={"home": "main"},
    doc="For tests.",
)

DERIVED: dict[str, tuple[Record[Any], Derived]] = {
    "shelf": (ITEM, BY_SHELF),
    "tag": (ITEM, BY_TAG),
    "rank": (ITEM, BY_RANK),
    "name": (ITEM, BY_NAME),
    "first": (ITEM, FIRST),
    "project": (TASK, BY_PROJECT),
    **{f"{name}-owner": (record, record.derived[0]) for name, record in MORTALS.items()},
    **{f"{name}-tag": (record, record.derived[1]) for name, record in MORTALS.items()},
    **{f"{name}-code": (record, record.derived[2]) for name, record in MORTALS.items()},
}
SUMMARIES: dict[str, Summary] = {
    "shelf": SHELF,
    "rank": RANK,
    "project": PROJECT,
    "played": PLAYED_BY,
}
COUNTS: dict[str, RecordCount] = {"shelf": ON_SHELF, "tag": WITH_TAG, "project": IN_PROJECT}
