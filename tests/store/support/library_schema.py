"""A keyspace with every kind of derived row, of expiry and of log."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from keyhouse.keys import Regex, Template
from keyhouse.schema import (
    MILLISECONDS,
    Counter,
    First,
    FoldResult,
    Index,
    Log,
    LogState,
    Meta,
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

_ID: Final = Regex("[a-z0-9]+")


class Book(msgspec.Struct, kw_only=True):
    id: str
    title: str
    series: str | None = None
    position: float | None = None
    tags: list[str] = []
    isbn: str | None = None
    year: int = 0
    rating: float = 0.0
    shelf: str | None = None
    created_at: str = ""
    updated_at: str = ""


BY_TITLE = Index(Template("idx:title:{title:norm}:{id}", id=_ID), value="id")
BY_SERIES = Index(Template("idx:series:{series}:{position:08.3f?}:{id}", id=_ID))
BY_TAG = Index(Template("idx:tag:{tag:norm}:{id}", id=_ID), each={"tag": "tags"})
RATINGS = Index(
    Template("idx:rating:{id}", id=_ID), value="rating", when=lambda book: book.rating > 0
)
ONE_ISBN = Unique("isbn:{isbn}", value="id")
FIRST_IN_SERIES = First("first:{series}", value="id", among=BY_SERIES)
ON_SHELF = Summary(
    "shelf:{shelf}",
    member="id",
    under="books",
    entry=lambda book: {"title": book.title},
    version=("v", 1),
)
IN_YEAR = RecordCount("year:{year:04d}")

BOOK = Record(
    Book,
    Template("b:{id}", id=_ID),
    BY_TITLE,
    BY_SERIES,
    BY_TAG,
    RATINGS,
    ONE_ISBN,
    FIRST_IN_SERIES,
    ON_SHELF,
    IN_YEAR,
    created="created_at",
    updated="updated_at",
    times=MILLISECONDS,
)

MAP: Record[Any] = Record(Any, "b:map:{id}", name="map", doc="Rows that lie among the books.")


class Viewing(msgspec.Struct, kw_only=True):
    state: str
    asset: str
    topic: str | None = None


SEEN = Summary("seen:{topic}", member="asset", under="assets")
"""Both viewings of an asset share one member, which is removed with the last."""

VIEWING = Record(Viewing, "v:{state:open|done}|{asset}", SEEN)


class Session(msgspec.Struct, kw_only=True):
    id: str
    user: str
    token: str
    until: str | None = None


def _session(name: str, expiry: Any) -> tuple[Record[Session], Index, Unique]:
    by_user = Index(f"{name}:user:{{user}}:{{id}}")
    token = Unique(f"{name}:token:{{token}}", value="id")
    record = Record(
        Session, f"{name}:s:{{id}}", by_user, token, name=name, expiry=expiry, times=MILLISECONDS
    )
    return record, by_user, token


SLIDING, SLIDING_BY_USER, SLIDING_TOKEN = _session("sliding", sliding(60))
FIXED, FIXED_BY_USER, FIXED_TOKEN = _session("fixed", fixed(60))
WRITTEN, WRITTEN_BY_USER, WRITTEN_TOKEN = _session("written", per_write())
UNTIL, UNTIL_BY_USER, UNTIL_TOKEN = _session("until", at_field("until"))

HITS = Counter("hits:{page}", name="hits")


class Heard(msgspec.Struct, kw_only=True):
    """An event: some seconds of a book were heard."""

    user: str
    book: str
    seconds: int
    at: str = ""


class Hearing(LogState, kw_only=True):
    """The state of one listener: the number of times the book changed."""

    book: str = ""
    changes: int = 0


class Total(msgspec.Struct, kw_only=True):
    user: str
    book: str
    changes: int


SECONDS_OF = Counter("heard:seconds:{user}", name="seconds_of")
LAST = Record(Total, "heard:last:{user}", Index("idx:heard:{book}:{user}"), name="last")


def _fold(state: Hearing | None, event: Heard, found: Mapping[str, Any]) -> FoldResult:
    changes = 0 if state is None else state.changes + (state.book != event.book)
    total = Total(user=event.user, book=event.book, changes=changes)
    after = Hearing(through="", book=event.book, changes=changes)
    return FoldResult(
        after, puts=[(LAST, total, {})], adds=[(SECONDS_OF, event.seconds, {"user": event.user})]
    )


HEARING = Record(Hearing, "heard:state:{user}", name="hearing")
HEARD = Log(Heard, "heard:event:{user}:{at:ulid}", name="heard", state=HEARING, fold=_fold)

LATER_SECONDS_OF = Counter("later:seconds:{user}", name="later_seconds_of")


def _fold_later(state: Hearing | None, event: Heard, found: Mapping[str, Any]) -> FoldResult:
    changes = 0 if state is None else state.changes + (state.book != event.book)
    after = Hearing(through="", book=event.book, changes=changes)
    return FoldResult(after, adds=[(LATER_SECONDS_OF, event.seconds, {"user": event.user})])


LATER_STATE = Record(Hearing, "later:state:{user}", name="later_state")
LATER = Log(
    Heard,
    "later:event:{user}:{at:ulid}",
    name="later",
    state=LATER_STATE,
    fold=_fold_later,
)


class Line(msgspec.Struct):
    text: str


NEXT_LINE = Counter("line:next:{job}", name="next_line")
LINE = Log(Line, "line:at:{job}:{n:06d}", name="line", sequence=NEXT_LINE)

LIBRARY = Schema(
    "library",
    BOOK,
    MAP,
    VIEWING,
    SLIDING,
    FIXED,
    WRITTEN,
    UNTIL,
    HITS,
    SECONDS_OF,
    LAST,
    HEARING,
    HEARD,
    LATER_SECONDS_OF,
    LATER_STATE,
    LATER,
    NEXT_LINE,
    LINE,
    space=Space("a library"),
    overlaps=((BOOK, MAP),),
    meta=Meta(),
)
