"""A schema that nobody wrote a service for: records, unique values, counters, a log, a TTL."""

from datetime import date

import msgspec

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


class Step(msgspec.Struct):
    text: str


class Recipe(msgspec.Struct):
    """A recipe."""

    id: str
    title: str
    slug: str
    minutes: int = 0
    tags: list[str] = []
    steps: list[Step] = []
    note: str | None = None
    secret: str = ""
    updated: str = ""


class Cooked(msgspec.Struct):
    recipe: str
    stars: int


class Rating(LogState, kw_only=True):
    stars: int = 0


class Draft(msgspec.Struct):
    text: str


class Plan(msgspec.Struct):
    day: date
    dish: str


def fold(state: Rating | None, event: Cooked, found: object) -> FoldResult:
    before = 0 if state is None else state.stars
    return FoldResult(Rating(through="", stars=before + event.stars))


RECIPE = Record(
    Recipe,
    "recipe:{id}",
    Index("idx:recipe:minutes:{minutes:05d}:{id}"),
    Index("idx:recipe:tag:{tag}:{id}", each={"tag": "tags"}),
    Index("idx:recipe:title:{title}:{id}", name="by-title"),
    Unique("idx:recipe:slug:{slug}", value="id"),
    Index("idx:recipe:secret:{secret}:{id}", when=lambda recipe: bool(recipe.secret)),
    RecordCount("idx:recipe:tag_count:{tag}", each={"tag": "tags"}),
    Summary("idx:recipe:tagged:{tag}", member="id", under="ids", each={"tag": "tags"}),
    private=("secret",),
    updated="updated",
)
DRAFT = Record(Draft, "draft:{user}:{name}", expiry=per_write())
PLAN = Record(Plan, "plan:{day:date}")
NOTE = Record(str, "note:{name}", name="note")
HIDDEN = Record(Draft, "hidden:{name}", name="hidden")
VIEWS = Counter("views:{id}")
VISITS = Counter("visits:{id}:{day:date}")
RATING = Record(Rating, "rating:{recipe}")
COOKED = Log(Cooked, "cooked:{recipe}:{at:ulid}", state=RATING, fold=fold)

BOX = Schema(
    "recipes",
    RECIPE,
    DRAFT,
    PLAN,
    NOTE,
    HIDDEN,
    VIEWS,
    VISITS,
    RATING,
    COOKED,
    space=Space("a person"),
    doc="Recipes of a person.",
)
