"""`keyhouse describe` prints the declarations."""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType

from keyhouse.schema import (
    Counter,
    First,
    FoldResult,
    Index,
    Log,
    LogState,
    Meta,
    Migration,
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
from keyhouse.schema.description import SchemaText, describe, seconds_text, space_text
from keyhouse.schema.keyspace_document import document
from keyhouse.schema.shape import shape
from tests.support.program import run


class Point(Struct):
    x: int
    y: float


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Tree(Struct, rename="camel"):
    left_child: "Tree | None" = None


class Short(Struct, omit_defaults=True, tag="short"):
    name: str
    note: str = ""


@pytest.mark.parametrize(
    ("type_", "written"),
    [
        (str, "text"),
        (int, "integer"),
        (int | float, "number"),
        (
            Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)],
            "number (from 0)",
        ),
        (bool, "boolean"),
        (Any, "any JSON"),
        (str | None, "text | null"),
        (None | str, "text | null"),
        (list[str], "[text, …]"),
        (frozenset[int], "[integer, …]"),
        (tuple[int, str], "[integer, text]"),
        (dict[str, Any], "{text: any JSON, …}"),
        (Literal["a", 1], '1 | "a"'),
        (Colour, '"red" | "blue"'),
        (Annotated[str, msgspec.Meta(min_length=1, max_length=200)], "text (1 to 200 characters)"),
        (Annotated[str, msgspec.Meta(pattern="^a+$")], "text (matches ^a+$)"),
        (Annotated[int, msgspec.Meta(ge=0)], "integer (from 0)"),
        (Annotated[float, msgspec.Meta(le=1)], "number (up to 1)"),
        (Annotated[float, msgspec.Meta(gt=0, lt=9)], "number (over 0) (under 9)"),
        (Annotated[str, msgspec.Meta(description="a name")], "text"),
        (Point, '{"x": integer, "y": number}'),
        (list[Point], '[{"x": integer, "y": number}, …]'),
        (Tree, '{"leftChild": Tree | null}'),
        (Short, '{"type": "short", "name": text, "note"?: text}'),
    ],
)
def test_a_type_is_described_by_its_json(type_: Any, written: str) -> None:
    assert shape(type_) == written


def test_a_large_object_has_one_line_per_member() -> None:
    class Wide(Struct):
        a_member_with_a_long_name: str
        another_member_with_a_long_name: Point
        a_third_member_with_a_long_name: str | UnsetType = UNSET

    assert shape(Wide).splitlines() == [
        "{",
        '  "a_member_with_a_long_name": text,',
        '  "another_member_with_a_long_name": {"x": integer, "y": number},',
        '  "a_third_member_with_a_long_name"?: text',
        "}",
    ]


class Account(Struct, kw_only=True, rename="camel"):
    """Somebody who may sign in.

    Another paragraph,
    over two lines.
    """

    id: str
    mail: str
    name: str
    pass_hash: str
    groups: list[str] = []
    parent: str | None = None
    state: Literal["new", "old"] = "new"
    lower_name: str = ""
    schema_version: int = 1
    made_at: str = ""
    seen_at: str = ""
    ends_at: str | None = None
    others: dict[str, Any] = {}


class Visit(Struct, kw_only=True):
    account: str


class Visits(LogState, kw_only=True):
    count: int = 0


def by_domain(account: Account) -> str:
    """The part after the at sign."""
    return account.mail.partition("@")[2]


def is_new(account: Account) -> bool:
    return account.state == "new"


def fold(state: Visits | None, event: Visit, found: Mapping[str, Any]) -> FoldResult:
    return FoldResult(Visits(through="", count=(state.count if state else 0) + 1))


async def do_nothing(tx: Any, entry: Any) -> None: ...


NAMES = Index("idx:name:{name:norm}:{id:ulid}")
ACCOUNT = Record(
    Account,
    "account:{id:ulid}",
    Unique("idx:mail:{mail:norm}", value="id"),
    NAMES,
    First("idx:first:{name:norm}", value="id", among=NAMES),
    Index("idx:group:{group}:{id:ulid}", each={"group": "groups"}),
    Index("idx:domain:{domain}:{id:ulid}", fields={"domain": by_domain}, when=is_new),
    Index("idx:hash:{hash}:{id:ulid}", fields={"hash": "pass_hash"}, when=lambda account: True),
    Summary("members:{parent:ulid?}", member="id", under="ids"),
    Summary(
        "map:{state:new|old}",
        member="id",
        under="map",
        entry=lambda account: {},
        version=("schema", 1),
    ),
    RecordCount("count:{state:new|old}"),
    computed={"lower_name": lambda account: account.name.lower()},
    version=("schema_version", 3),
    created="made_at",
    updated="seen_at",
    unknown="others",
    private=("pass_hash",),
    upgrade=lambda plain: plain,
)
SESSION = Record(Point, "session:{id:ulid}", name="session", expiry=sliding(1_800))
TOKEN = Record(str, "token:{id:ulid}", name="token", doc="One use.", expiry=fixed(86_400))
CODE = Record(Any, "code:{id:ulid}", name="code", expiry=per_write())
OFFER = Record(Account, "offer:{id:ulid}", name="offer", expiry=at_field("ends_at"))
NEXT = Counter("visit:{account}:next", name="next visit")
VISITS = Record(Visits, "visits:{account}", name="visits")
VISIT = Log(Visit, "visit:{account}:{at:ulid}", name="visit", state=VISITS, fold=fold)
LINE = Log(Visit, "line:{account}:{number:010d}", name="line", sequence=NEXT)
WORLD = Schema(
    "world",
    *(ACCOUNT, SESSION, TOKEN, CODE, OFFER, NEXT, VISITS, VISIT, LINE),
    space=Space("a shop"),
    doc="Everything that\n    can be declared.",
    fixed={"account": "main"},
    overlaps=((VISIT, NEXT),),
    meta=Meta(),
    migrations=(Migration(1, "Count again.", ACCOUNT, do_nothing),),
)
TEXT = describe(WORLD)
PAGE = document("World", "All of it.", [TEXT])


def test_the_document_lists_every_template_in_order() -> None:
    places = [PAGE.index(f"`{declared.template.text}` → ") for _, declared in WORLD.declared()]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "line",
    [
        "# World",
        "All of it.",
        "A space is a shop.",
        "`{account}` is a setting of the store, `main` by default.",
        "Somebody who may sign in.",
        "Another paragraph, over two lines.",
        "Key: `account:{id:ulid}`",
        '  "passHash": text,',
        '  "state": "new" | "old",',
        "  …",
        "- version: `schemaVersion` is the version of the JSON, now 3",
        "- older versions: are upgraded when they are read",
        "- stamped: `madeAt` when it is created and `seenAt` when it is written, such as "
        "`2026-01-18T12:00:00Z`",
        "- computed: `lowerName` from the other members, at each write",
        "- unknown members: are stored unchanged",
        "- private: `passHash`: never visible outside the store",
        "- unique: `idx:mail:{mail:norm}` → `id`, where `mail` is text in its normal form",
        "- first: `idx:first:{name:norm}` → `id` of the first record, where `name`"
        " is text in its normal form",
        "- index: `idx:group:{group}:{id:ulid}` → `1`, where `group` is text (each of several, "
        "from `groups`)",
        "- index: `idx:domain:{domain}:{id:ulid}` → `1`, where `domain` is text (computed: the "
        "part after the at sign); only when `is_new`",
        "- index: `idx:hash:{hash}:{id:ulid}` → `1`, where `hash` is text (from `passHash`);"
        " only when a condition on the record holds",
        '- summary: `members:{parent:ulid?}` → `{"ids": [id, …]}`,'
        " where `parent` is a ULID, or null",
        '- summary: `map:{state:new|old}` → `{"map": {id: entry, …}, "schema": 1}`,'
        " where `state` is one of new, old",
        "- count: `count:{state:new|old}` → the number of records,"
        " where `state` is one of new, old",
        "- TTL: 30 minutes after its last write",
        "- TTL: 1 day after it is created",
        "- TTL: set by each write; without one, it does not expire",
        "- TTL: until `endsAt`",
        "Value: text",
        "Value: any JSON",
        "Value: integer, changed by adding",
        "- stream: one for each `account`, in the order of `at`: a ULID generated by the store",
        "- stream: one for each `account`, in the order of `number`: the next number of "
        "`visit:{account}:next`",
        "- folds into: `visits:{account}`, each event once, in the commit that appends it",
        "- Scans of `visit:{account}:{at:ulid}` leave out what lies within: `visit:{account}:next`",
        "1. Count again, over each account",
        "- a key: 1 to 1,024 bytes of UTF-8",
    ],
)
def test_the_document_contains(line: str) -> None:
    assert line in PAGE.splitlines()


def test_a_system_with_several_schemas_has_a_section_for_each() -> None:
    page = document(
        "Two", "", [TEXT, describe(Schema("other", SESSION, space=Space("a shop"), doc="Another."))]
    )
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## world",
        "## other",
        "## How to read it",
        "## Limits",
    ]
    assert "Another." in page.splitlines()


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        (Space("a shop"), "A space is a shop."),
        (Space("a bucket", name="acl"), "A space is a bucket; there is one, `acl`."),
        (
            Space("a shop", field="shop"),
            "A space is a shop. Its name is repeated in keys as `{shop}`.",
        ),
    ],
)
def test_a_space_is_described(space: Space, sentence: str) -> None:
    assert space_text(space) == sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1 second"), (90, "90 seconds"), (3_600, "1 hour"), (2_592_000, "30 days")],
)
def test_a_duration_is_printed_in_its_largest_whole_unit(seconds: int, text: str) -> None:
    assert seconds_text(seconds) == text


def test_describe_prints_markdown_and_json_of_a_users_schema() -> None:
    page = run("describe", "keyhouse.demo.clips:NEXT_BOARD").stdout
    assert page.startswith("# Clips\n")
    printed = json.loads(run("describe", "keyhouse.demo.clips:NEXT_BOARD", "--json").stdout)
    assert printed["name"] == "clips"
    described = msgspec.convert(printed["schemas"], list[SchemaText])
    assert [record.name for record in described[0].records] == [
        "clip",
        "on-screen",
        "version",
        "migration",
        "job",
    ]
    for record in described[0].records:
        assert f"`{record.key}`" in page


def test_a_condition_and_a_source_are_described_by_their_docstrings() -> None:
    """The page said "only when return whether it is new", and had the help text of `str`."""

    def is_new(value: Any) -> bool:
        """Return whether it is new."""
        return bool(value)

    index = Index("new:{name}:{id}", fields={"name": str}, when=is_new)
    record = Record(Point, "point:{id}", index)
    [made] = describe(Schema("points", record, space=Space("a shop"))).records
    [row] = made.derived
    assert row.notes == {"only when": "it is new"}
    assert row.fields[0].source == "computed from the record"
