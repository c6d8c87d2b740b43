"""One program, as it runs on a Store, on a RemoteStore, and without an event loop.

`play` is a generator of calls: each is sent to a store, by a runner that awaits it or waits for it.
Its transcript must be the same everywhere.
"""

from collections.abc import Callable, Generator
from datetime import date
from typing import Any, NamedTuple

from msgspec import Struct

from keyhouse import (
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
    per_write,
)


class Recipe(Struct, kw_only=True):
    id: str
    title: str
    minutes: int = 0
    tags: list[str] = []
    note: str | None = None


class Eaten(Struct, kw_only=True):
    user: str
    stars: int


class Stars(LogState, kw_only=True):
    stars: int = 0


def fold(state: Stars | None, event: Eaten, found: object) -> FoldResult:
    return FoldResult(Stars(through="", stars=(state.stars if state else 0) + event.stars))


BY_TAG = Index("tag:{tag}:{id}", each={"tag": "tags"})
BY_MINUTES = Index("minutes:{minutes:04d}:{id}")
ONE_TITLE = Unique("title:{title:norm}", value="id")
TAG_COUNT = RecordCount("count:{tag}", each={"tag": "tags"})
TAGGED = Summary("tagged:{tag}", member="id", under="ids", each={"tag": "tags"})
NOTED = Summary(
    "noted", member="id", under="notes", entry=lambda r: {"note": r.note}, when=lambda r: r.note
)
RECIPE = Record(Recipe, "recipe:{id}", BY_TAG, BY_MINUTES, ONE_TITLE, TAG_COUNT, TAGGED, NOTED)
DRAFT = Record(str, "draft:{user}:{name}", name="draft", expiry=per_write())
COOKED = Counter("cooked:{id}")
VIEWS = Counter("views:{id}:{day:date}")
STARS = Record(Stars, "stars:{user}")
EATEN = Log(Eaten, "eaten:{user}:{at:ulid}", state=STARS, fold=fold)
BOX = Schema("box", RECIPE, DRAFT, COOKED, VIEWS, STARS, EATEN, space=Space("a kitchen"))

Call = Callable[[Any], Any]
Program = Generator["Call | Within", Any, None]


class Within(NamedTuple):
    """Calls of one transaction, in a block."""

    calls: list[Call]
    batch_id: str | None = None


def _scan(named: dict[str, Any]) -> Call:
    return lambda s: s.scan(RECIPE, **named)


def play(note: Callable[[object], None]) -> Program:
    """Yield calls of a store; note each result."""
    pie = Recipe(id="pie", title="Pie", minutes=40, tags=["sweet", "oven"])
    entry = yield lambda s: s.put(RECIPE, pie)
    note((entry.record, entry.key, entry.values, entry.fields, entry.expires))
    first = entry.revision
    entries = yield lambda s: s.put_many(
        RECIPE,
        [
            Recipe(id="tea", title="Tea", minutes=5, tags=["sweet"]),
            Recipe(id="a/b c%é", title="Odd", minutes=20),
        ],
    )
    note([(each.key, each.record) for each in entries])
    note((yield lambda s: s.get(RECIPE, id="a/b c%é")))
    note((yield lambda s: s.get(RECIPE, id="none")))
    entry = yield lambda s: s.update(RECIPE, {"minutes": 45, "note": "crisp"}, id="pie")
    note(entry.record)
    entry = yield lambda s: s.update(RECIPE, {"note": None}, id="pie", expect=entry.revision)
    note((entry.record, entry.fields))
    failures: list[Call] = [
        lambda s: s.put(RECIPE, pie, expect=first),
        lambda s: s.put(RECIPE, pie, expect=None),
        lambda s: s.update(RECIPE, {"minutes": 1}, id="none"),
        lambda s: s.update(RECIPE, {"title": 3}, id="pie"),
        lambda s: s.update(RECIPE, {"colour": "red"}, id="pie"),
        lambda s: s.put(RECIPE, Recipe(id="x", title="tea")),
        lambda s: s.put(RECIPE, "not a recipe"),
        lambda s: s.get(RECIPE, id=3),
        lambda s: s.get(RECIPE),
        lambda s: s.get(RECIPE, id="a", other="b"),
        lambda s: s.get_many(RECIPE, [{"id": "a"}, {"id": "a", "other": "b"}]),
        lambda s: s.entries(RECIPE, [{}]),
        lambda s: s.page(RECIPE, cursor="nonsense"),
        lambda s: s.delete(RECIPE, id="pie", expect=first),
        lambda s: s.put(RECIPE, pie, ttl=5),
        lambda s: s.add(COOKED, 1.5, id="pie"),
        lambda s: s.transact(lambda tx: tx.put(RECIPE, Recipe(id="x", title="tea"))),
    ]
    for failing in failures:
        error = yield failing
        note(type(error).__name__)
    page = yield lambda s: s.page(RECIPE, limit=2)
    note([each.key for each in page.entries])
    rest = yield lambda s: s.page(RECIPE, limit=2, cursor=page.cursor)
    note(([each.key for each in rest.entries], rest.cursor))
    scans: list[dict[str, Any]] = [
        {},
        {"reverse": True, "limit": 2},
        {"by": BY_TAG, "tag": "sweet"},
        {"by": BY_MINUTES, "between": (10, 45)},
        {"by": BY_MINUTES, "between": (20, None)},
        {"prefix": "p"},
    ]
    for named in scans:
        listed = yield _scan(named)
        note([(each.key, each.record) for each in listed])
    addresses = [{"id": "tea"}, {"id": "none"}, {"id": "a/b c%é"}, {"id": "tea"}]
    note((yield lambda s: s.get_many(RECIPE, addresses)))
    note((yield lambda s: s.get_many(RECIPE, [])))
    listed = yield lambda s: s.entries(RECIPE, addresses)
    note([each and (each.key, each.record, each.fields, each.expires) for each in listed])
    found = yield lambda s: s.lookup(RECIPE, ONE_TITLE, title="TEA")
    note((found.key, found.record))
    note((yield lambda s: s.lookup(RECIPE, ONE_TITLE, title="none")))
    yield lambda s: s.add(COOKED, 3, id="pie")
    yield lambda s: s.add(COOKED, -1, id="pie")
    note((yield lambda s: s.get(COOKED, id="pie")))
    note((yield lambda s: s.get(COOKED, id="none")))
    note((yield lambda s: s.get_many(COOKED, [{"id": "none"}, {"id": "pie"}])))
    entry = yield lambda s: s.put(DRAFT, "text", user="ann", name="x", ttl=100.5)
    note((entry.record, entry.fields, entry.expires is not None))
    listed = yield lambda s: s.scan(DRAFT, user="ann")
    note([(each.fields, each.record) for each in listed])
    complete: list[int] = []
    events = yield lambda s: s.watch(
        RECIPE, since=first, unreadable="skip", caught_up=complete.append
    )
    note([(each.fields, each.gone, each.record is None) for each in events])
    note(all(revision >= first for revision in complete))
    note((yield lambda s: s.delete(RECIPE, id="tea")))
    note((yield lambda s: s.delete(RECIPE, id="tea")))
    note((yield lambda s: s.count(RECIPE)))
    yield from _derived(note)
    yield from _logs_and_transactions(note)
    progress: list[int] = []
    note((yield lambda s: s.clear(on_progress=progress.append)))
    note((progress[-1], (yield lambda s: s.count(RECIPE)), (yield lambda s: s.get(COOKED, id="x"))))
    note((yield lambda s: s.clear()))


def _derived(note: Callable[[object], None]) -> Program:
    """Counts, summaries, sums of days, keys."""
    yield lambda s: s.put(RECIPE, Recipe(id="jam", title="Jam", tags=["sweet"], note="sticky"))
    for tag in ("sweet", "oven", "none"):
        note((yield lambda s, tag=tag: s.record_count(TAG_COUNT, tag=tag)))  # type: ignore[misc]
        note((yield lambda s, tag=tag: s.members(TAGGED, tag=tag)))  # type: ignore[misc]
    note((yield lambda s: s.members(NOTED)))
    yield lambda s: s.add(VIEWS, 3, id="pie")
    yield lambda s: s.add(VIEWS, 4, id="pie", day=date(2020, 2, 29))
    note((yield lambda s: s.sum_of_days(VIEWS, 7, id="pie")))
    note((yield lambda s: s.get(VIEWS, id="pie", day=date(2020, 2, 29))))
    for named in (
        {"declared": RECIPE},
        {"declared": RECIPE, "reverse": True, "limit": 1},
        {"declared": RECIPE, "prefix": "p"},
        {"declared": BY_MINUTES, "between": (40, 50)},
        {"declared": BY_TAG, "tag": "sweet"},
        {"declared": TAG_COUNT},
        {"declared": COOKED},
        {"declared": TAGGED, "limit": 2},
    ):
        declared: Any = named.pop("declared")
        page = yield lambda s, d=declared, n=named: s.keys(d, **n)  # type: ignore[misc]
        note(page[0])
        note((yield lambda s, d=declared: s.count(d)))  # type: ignore[misc]
    first = yield lambda s: s.keys(RECIPE, limit=2)
    second = yield lambda s: s.keys(RECIPE, limit=2, cursor=first[1])
    note((first[0], second))
    failures: list[Call] = [
        lambda s: s.record_count(TAG_COUNT),
        lambda s: s.record_count(TAG_COUNT, tag=3),
        lambda s: s.record_count(TAG_COUNT, tag="x", more="y"),
        lambda s: s.record_count(TAGGED, tag="x"),
        lambda s: s.members(BY_TAG, tag="x"),
        lambda s: s.members(TAGGED),
        lambda s: s.sum_of_days(COOKED, 3, id="pie"),
        lambda s: s.sum_of_days(VIEWS, 0, id="pie"),
        lambda s: s.sum_of_days(VIEWS, 3),
        lambda s: s.keys(RECIPE, cursor="nonsense"),
        lambda s: s.keys(RECIPE, limit=0),
        lambda s: s.keys(RECIPE, other="x"),
        lambda s: s.clear(on_progress=3),
    ]
    for failing in failures:
        error = yield failing
        note(type(error).__name__)


def _logs_and_transactions(note: Callable[[object], None]) -> Program:
    for stars in (3, 5):
        event = Eaten(user="ann", stars=stars)
        entry = yield lambda s, event=event: s.append(EATEN, event)  # type: ignore[misc]
        note((entry.record, entry.names, entry.revision > 0))
    newest = entry.fields
    note((yield lambda s: s.get(EATEN, **newest)))  # over HTTP, it was a 404
    note((yield lambda s: s.get(EATEN, user="bob", at=newest["at"])))
    note((yield lambda s: s.get(STARS, user="ann")).stars)
    events = yield lambda s: s.scan(EATEN, user="ann", reverse=True)
    note([event.record.stars for event in events])
    note(type((yield lambda s: s.put(EATEN, Eaten(user="ann", stars=1)))).__name__)
    found = yield lambda s: s.get_many(RECIPE, [{"id": "pie"}, {"id": "none"}, {"id": "jam"}])
    note(found)
    found = yield lambda s: s.get_many(COOKED, [{"id": "pie"}, {"id": "none"}])
    note(found)
    entry = yield lambda s: s.entry(RECIPE, id="pie")
    note((entry.record, entry.fields, (yield lambda s: s.entry(RECIPE, id="none"))))
    soup = Recipe(id="soup", title="Soup")
    yield Within(
        [
            lambda tx: tx.put(RECIPE, soup),
            lambda tx: tx.update(RECIPE, {"minutes": 9}, id="soup"),
            lambda tx: tx.add(COOKED, 2, id="soup"),
            lambda tx: tx.delete(RECIPE, id="jam"),
        ]
    )
    note(((yield lambda s: s.get(RECIPE, id="soup")), (yield lambda s: s.get(RECIPE, id="jam"))))
    for _ in range(2):
        yield lambda s: s.transact(lambda tx: tx.add(COOKED, 5, id="once"), batch_id="five")
        yield Within([lambda tx: tx.add(COOKED, 1, id="once")], batch_id="one")
    note((yield lambda s: s.get(COOKED, id="once")))
    title = yield lambda s: s.transact(lambda tx: tx.lookup(RECIPE, ONE_TITLE, title="soup"))
    note(title.fields)
