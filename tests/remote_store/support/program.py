"""One program, as it runs on a Store, on a RemoteStore, and without an event loop.

`play` is a generator of calls: each is sent to a store, by a runner that awaits it or waits for it.
Its transcript must be the same everywhere.
"""

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from keyhouse import Counter, Index, Record, Schema, Space, Unique, per_write


class Recipe(Struct, kw_only=True):
    id: str
    title: str
    minutes: int = 0
    tags: list[str] = []
    note: str | None = None


BY_TAG = Index("tag:{tag}:{id}", each={"tag": "tags"})
BY_MINUTES = Index("minutes:{minutes:04d}:{id}")
ONE_TITLE = Unique("title:{title:norm}", value="id")
RECIPE = Record(Recipe, "recipe:{id}", BY_TAG, BY_MINUTES, ONE_TITLE)
DRAFT = Record(str, "draft:{user}:{name}", name="draft", expiry=per_write())
COOKED = Counter("cooked:{id}")
BOX = Schema("box", RECIPE, DRAFT, COOKED, space=Space("a kitchen"))

Call = Callable[[Any], Any]
Program = Generator[Call, Any, None]


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
    found = yield lambda s: s.lookup(RECIPE, ONE_TITLE, title="TEA")
    note((found.key, found.record))
    note((yield lambda s: s.lookup(RECIPE, ONE_TITLE, title="none")))
    yield lambda s: s.add(COOKED, 3, id="pie")
    yield lambda s: s.add(COOKED, -1, id="pie")
    note((yield lambda s: s.get(COOKED, id="pie")))
    note((yield lambda s: s.get(COOKED, id="none")))
    entry = yield lambda s: s.put(DRAFT, "text", user="ann", name="x", ttl=100.5)
    note((entry.record, entry.fields, entry.expires is not None))
    listed = yield lambda s: s.scan(DRAFT, user="ann")
    note([(each.fields, each.record) for each in listed])
    events = yield lambda s: s.watch(RECIPE, since=first)
    note([(each.fields, each.gone, each.record is None) for each in events])
    note((yield lambda s: s.delete(RECIPE, id="tea")))
    note((yield lambda s: s.delete(RECIPE, id="tea")))
    note((yield lambda s: s.count(RECIPE)))
