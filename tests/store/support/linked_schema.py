"""A keyspace with every kind of link: people own lists, lists own entries, marks, a log and a
count; people own sessions that expire; books refer to authors, in the bin too."""

from collections.abc import Mapping
from typing import Any

import msgspec

from keyhouse.schema import (
    Counter,
    FoldResult,
    Index,
    Log,
    LogState,
    Owner,
    Record,
    RecordCount,
    Reference,
    Schema,
    Space,
    Summary,
    Unique,
    per_write,
)
from keyhouse.store import Store


class Person(msgspec.Struct, kw_only=True):
    id: str
    name: str


class Listing(msgspec.Struct, kw_only=True):
    id: str
    person: str | None = None
    title: str


class Mark(msgspec.Struct, kw_only=True):
    id: str
    list: str
    tag: str = "x"


class Seen(msgspec.Struct, kw_only=True):
    what: str


class SeenState(LogState, kw_only=True):
    count: int = 0


class Login(msgspec.Struct, kw_only=True):
    id: str
    person: str


class Author(msgspec.Struct, kw_only=True):
    id: str


class Book(msgspec.Struct, kw_only=True):
    id: str
    author: str | None = None
    binned: bool = False


PERSON = Record(Person, "person:{id}", Unique("name:{name}", value="id"))
LISTS_OF_PERSON = Index("lists:{person}:{id}")
ALL_LISTS = Summary("all-lists", member="id", under="lists")
LIST = Record(
    Listing,
    "list:{id}",
    LISTS_OF_PERSON,
    ALL_LISTS,
    name="list",
    belongs_to=Owner(PERSON, by=LISTS_OF_PERSON),
)
ENTRY = Record(str, "entry:{list}:{position:04d}", name="entry", belongs_to=Owner(LIST))
MARKS_OF_LIST = Index("marks:{list}:{id}")
MARKS_WITH_TAG = RecordCount("tags:{tag}")
MARK = Record(
    Mark, "mark:{id}", MARKS_OF_LIST, MARKS_WITH_TAG, belongs_to=Owner(LIST, by=MARKS_OF_LIST)
)
VIEWS = Counter("views:{list}", name="views", belongs_to=Owner(LIST))
SEEN_STATE = Record(SeenState, "seen-state:{list}", name="seen_state", belongs_to=Owner(LIST))


def fold(state: SeenState | None, event: Seen, found: Mapping[str, Any]) -> FoldResult:
    return FoldResult(SeenState(through="", count=1 if state is None else state.count + 1))


SEEN = Log(Seen, "seen:{list}:{at:ulid}", state=SEEN_STATE, fold=fold, belongs_to=(Owner(LIST),))
LOGINS_OF_PERSON = Index("logins:{person}:{id}")
LOGIN = Record(
    Login,
    "login:{id}",
    LOGINS_OF_PERSON,
    expiry=per_write(),
    belongs_to=Owner(PERSON, by=LOGINS_OF_PERSON),
)
AUTHOR = Record(Author, "author:{id}")
BOOKS_BY_AUTHOR = Index("books:{author}:{id}", when=lambda book: not book.binned)
BIN_BY_AUTHOR = Index("bin:{author}:{id}", when=lambda book: book.binned)
BOOK = Record(
    Book,
    "book:{id}",
    BOOKS_BY_AUTHOR,
    BIN_BY_AUTHOR,
    references=Reference(AUTHOR, by=(BOOKS_BY_AUTHOR, BIN_BY_AUTHOR)),
)
SCHEMA = Schema(
    "linked",
    *(PERSON, LIST, ENTRY, MARK, VIEWS, SEEN_STATE, SEEN, LOGIN, AUTHOR, BOOK),
    space=Space("a test"),
)


async def fill_list(store: Store, id: str, person: str | None, size: int = 3) -> None:
    await store.put(LIST, Listing(id=id, person=person, title=id))
    for number in range(size):
        await store.put(ENTRY, f"book {number}", list=id, position=number)
        await store.put(MARK, Mark(id=f"{id}-{number}", list=id))
        await store.append(SEEN, Seen(what="x"), list=id)
    await store.add(VIEWS, 2, list=id)


async def fill(store: Store, person: str = "ada", lists: int = 2, size: int = 3) -> None:
    await store.put(PERSON, Person(id=person, name=f"name of {person}"))
    for number in range(lists):
        await fill_list(store, f"{person}-{number}", person, size)
    await store.put(LOGIN, Login(id=f"{person}-l", person=person), ttl=60)
