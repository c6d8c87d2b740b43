"""Invalid calls with their errors, and unusual texts and documents that are valid."""

import base64
import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from keyhouse.errors import (
    CounterError,
    CursorError,
    DocumentError,
    KeyFieldError,
    KeyhouseError,
    LimitError,
    RecordError,
    RevisionError,
    UsageError,
)
from keyhouse.keys import NATS, Template
from keyhouse.limits import (
    BATCH_ID_BYTES_MAX,
    COUNTER_MAX,
    INTEGER_DIGITS_MAX,
    KEY_BYTES_MAX,
    PAGE_ROWS_MAX,
    TTL_SECONDS_MAX,
    VALUE_BYTES_MAX,
)
from keyhouse.schema import (
    Counter,
    Index,
    Log,
    Record,
    Schema,
    Space,
    Unique,
    at_field,
    fixed,
    per_write,
)
from keyhouse.store import Store, Transaction

SPACE = "tenant-1"
OTHER = "tenant-2"


class Note(Struct, kw_only=True):
    id: Any
    title: Any = None
    slug: str | None = None
    position: int | None = None
    score: float = 0.0
    tags: list[str] = []


class Plain(Struct, kw_only=True):
    """A record without floats or `Any`, so its values are not searched for NaN before a write."""

    id: str
    text: str | None = None
    number: int | None = None
    tags: list[str] = []


class Pass(Struct, kw_only=True):
    id: str
    until: str | None = None


class Event(Struct):
    text: str


BY_TITLE = Index("idx:title:{title}:{id}")
BY_SLUG = Unique("idx:slug:{slug}", value="id")
NOTE = Record(Note, "note:{id}", BY_TITLE, BY_SLUG)
PLAIN = Record(Plain, "plain:{id}")
DOC: Record[Any] = Record(Any, "doc:{id}", name="doc")
PAIR: Record[Any] = Record(Any, "pair:{left}:{right}:x", name="pair")
DOTTED: Record[Any] = Record(Any, Template("dotted/{left}/{right}", escape=NATS), name="dotted")
NUMBERED: Record[Any] = Record(Any, "numbered:{n:06d}", name="numbered")
NAMED: Record[Any] = Record(Any, "named:{name:norm}", name="named")
TICKET = Record(str, "ticket:{id}", name="ticket", expiry=per_write())
SESSION = Record(str, "session:{id}", name="session", expiry=fixed(60))
PASS = Record(Pass, "pass:{id}", expiry=at_field("until"))
HITS = Counter("hits:{id}", name="hits")
EVENT = Log(Event, "event:{stream}:{at:ulid}")
RECORDS = (NOTE, PLAIN, DOC, PAIR, DOTTED, NUMBERED, NAMED, TICKET, SESSION, PASS, HITS, EVENT)
SCHEMA = Schema("hostile", *RECORDS, space=Space("a tenant"))


class Bad:
    """One call on a store, a method name or a function of the store, and its error."""

    def __init__(
        self,
        error: type[KeyhouseError],
        how: str | Callable[..., Any],
        /,
        *args: Any,
        **fields: Any,
    ) -> None:
        self.error = error
        self._how = how
        self._args = args
        self._fields = fields

    async def call(self, store: Store | Transaction) -> None:
        if isinstance(self._how, str):
            await getattr(store, self._how)(*self._args, **self._fields)
        else:
            await self._how(store, *self._args, **self._fields)

    def __repr__(self) -> str:
        try:
            return f"{self._how} {self._args} {self._fields}"[:300]
        except (ValueError, RecursionError):  # what it is given can't even be shown
            return f"{self._how} of what can't be shown"


def nested(levels: int, *, objects: bool = False) -> object:
    value: object = {"a": 1} if objects else [1]
    for _ in range(levels - 1):
        value = {"a": value} if objects else [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def put_with_batch_id(store: Store, id: Any) -> None:
    await store.transact(lambda tx: tx.put(DOC, 2, id="a"), batch_id=id)


# Keys

BAD_TEXTS: tuple[Any, ...] = (
    *(
        "",
        "\0",
        "a\0b",
        "\ud800",
        "a\udfffb",
        "\udc80",
        "x" * (KEY_BYTES_MAX + 1),
        "é" * KEY_BYTES_MAX,
    ),
    *(None, 5, 1.5, math.nan, True, b"a", [], ["a"], {}, (), object()),
)
BAD_NUMBERS: tuple[Any, ...] = (-1, 10**6, 1.0, math.nan, True, "1", None, 10**5_000)
BAD_ULIDS: tuple[Any, ...] = ("", "x", "../", 5, "01arz3ndektsv4rrffq69g5fav", "8" * 26, "\ud800")

KEYS = [
    *(
        Bad(KeyFieldError, how, DOC, id=bad)
        for how in ("get", "entry", "delete")
        for bad in BAD_TEXTS
    ),
    *(Bad(KeyFieldError, "put", DOC, 1, id=bad) for bad in BAD_TEXTS),
    *(
        Bad(KeyFieldError, "put", record, 1, left=bad, right="b")
        for record in (PAIR, DOTTED)
        for bad in BAD_TEXTS
    ),
    *(
        Bad(KeyFieldError, "put", record, 1, left="a", right=bad)
        for record in (PAIR, DOTTED)
        for bad in BAD_TEXTS
    ),
    *(Bad(KeyFieldError, "put", NAMED, 1, name=bad) for bad in (*BAD_TEXTS, " ", "\u3000\t")),
    *(Bad(KeyFieldError, "put", HITS, 1, id=bad) for bad in BAD_TEXTS),
    *(Bad(KeyFieldError, "add", HITS, 1, id=bad) for bad in BAD_TEXTS),
    *(Bad(KeyFieldError, "put", NOTE, Note(id=bad)) for bad in BAD_TEXTS),
    *(
        Bad(KeyFieldError, "put", NOTE, Note(id="n", title=bad))
        for bad in ("", "\0", "a\0b", 5, True, ["a"])
    ),
    *(
        Bad(KeyFieldError, "put", NOTE, Note(id="n", title=bad))
        for bad in ("x" * 1_020, "é:" * 400, ":" * 400)
    ),
    *(
        Bad(DocumentError, "put", NOTE, Note(id="n", title=bad))
        for bad in ("\ud800", "a\udfffb", math.nan)
    ),
    *(
        Bad(KeyFieldError, "put", NOTE, Note(id="n", slug=bad))
        for bad in ("", "\0", "x" * KEY_BYTES_MAX)
    ),
    *(Bad(KeyFieldError, "put", NUMBERED, 1, n=bad) for bad in BAD_NUMBERS),
    *(Bad(KeyFieldError, "append", EVENT, Event("x"), stream="s", at=bad) for bad in BAD_ULIDS),
    *(Bad(KeyFieldError, "append", EVENT, Event("x"), stream=bad) for bad in BAD_TEXTS),
    *(Bad(KeyFieldError, "row", bad) for bad in BAD_TEXTS[:8]),
    Bad(KeyFieldError, "put", DOC, 1),
    Bad(UsageError, "put", DOC, 1, id="a", __proto__="x"),
    Bad(UsageError, "get", DOC, id="a", other="x"),
    Bad(UsageError, "page", PAIR, right="b"),
    Bad(UsageError, "put", Record(int, "doc:{id}", name="foreign"), 1, id="a"),
]

# Values

BAD_VALUES: tuple[Bad, ...] = (
    *(
        Bad(DocumentError, "put", DOC, value, id="a")
        for value in (math.nan, math.inf, -math.inf, 1e400)
    ),
    *(
        Bad(DocumentError, "put", DOC, value, id="a")
        for value in ({"a": [1, {"b": math.nan}]}, [[-math.inf]])
    ),
    *(
        Bad(DocumentError, "put", DOC, value, id="a")
        for value in ("\ud800", ["a\udfffb"], {"\ud800": 1})
    ),
    *(Bad(DocumentError, "put", DOC, nested(levels), id="a") for levels in (129, 1_000)),
    *(
        Bad(DocumentError, "put", DOC, nested(levels, objects=True), id="a")
        for levels in (129, 1_000)
    ),
    Bad(DocumentError, "put", DOC, cyclic(), id="a"),
    Bad(DocumentError, "put", DOC, 10**INTEGER_DIGITS_MAX, id="a"),
    Bad(DocumentError, "put", DOC, [-(10**INTEGER_DIGITS_MAX)], id="a"),
    Bad(DocumentError, "put", DOC, 10**5_000, id="a"),
    *(
        Bad(DocumentError, "put", DOC, value, id="a")
        for value in (b"\xff", {"a": b"a"}, {1, 2}, (1, 2), object())
    ),
    *(
        Bad(DocumentError, "put", DOC, value, id="a")
        for value in ({1: 2}, {None: 2}, {"a": {1.5: 2}}, {b"a": 1})
    ),
    Bad(LimitError, "put", DOC, "x" * (VALUE_BYTES_MAX - 1), id="a"),
    Bad(LimitError, "put", DOC, "x" * 1_024 * 1_024, id="a"),
)


def note(error: type[KeyhouseError], **attributes: Any) -> Bad:
    return Bad(error, "put", NOTE, Note(**{"id": "n"} | attributes))


def plain(error: type[KeyhouseError], **attributes: Any) -> Bad:
    return Bad(error, "put", PLAIN, Plain(**{"id": "n"} | attributes))


VALUES = [
    *BAD_VALUES,
    *(Bad(RecordError, "put", NOTE, value) for value in ({"id": "n"}, None, "n", Event("x"))),
    *(note(DocumentError, score=value) for value in (math.nan, math.inf, -math.inf)),
    *(note(DocumentError, position=value) for value in (math.nan, 10**INTEGER_DIGITS_MAX)),
    *(note(DocumentError, tags=value) for value in ([math.nan], ["\ud800"], cyclic())),
    *(note(RecordError, score=value) for value in ("1", True, None, 10**400, [1])),
    *(note(RecordError, position=value) for value in (1.0, True, "1", [1])),
    *(note(RecordError, tags=value) for value in ([None], [1], "abc", None, {"a": 1}, [b"\xff"])),
    note(LimitError, tags=["x" * VALUE_BYTES_MAX]),
    *(
        plain(RecordError, text=value)
        for value in (math.nan, math.inf, b"\xff", 5, True, [1], bytearray(b"a"))
    ),
    *(plain(RecordError, number=value) for value in (math.nan, -math.inf, 1.0, True, "1", b"1")),
    *(
        plain(RecordError, tags=value)
        for value in ([math.nan], [None], [b"a"], ["a", b"a"], [5], "abc")
    ),
    *(plain(DocumentError, text=value) for value in ("\ud800", "a\udfff", object())),
    *(plain(DocumentError, number=value) for value in (10**INTEGER_DIGITS_MAX, 10**5_000)),
    plain(DocumentError, tags=cyclic()),
    Bad(RecordError, "append", EVENT, 5, stream="s"),
    Bad(RecordError, "append", EVENT, Event(5), stream="s"),  # type: ignore[arg-type]
    Bad(DocumentError, "append", EVENT, Event("\ud800"), stream="s"),
]

# Times to live, counters, and other arguments

BAD_TTLS: tuple[Any, ...] = (
    0,
    -1,
    TTL_SECONDS_MAX + 1,
    10**30,
    0.0004,
    math.nan,
    math.inf,
    True,
    "60",
    b"1",
    [],
)
BAD_TIMES = (
    "",
    "soon",
    "2030-01-01",
    "2030-01-01T00:00:00",
    "2030-13-01T00:00:00Z",
    "99999-01-01T00:00:00Z",
)

TTLS = [
    *(
        Bad(RecordError, "put", record, "x", id="a", ttl=ttl)
        for record in (TICKET, SESSION)
        for ttl in BAD_TTLS
    ),
    *(Bad(DocumentError, "put", PASS, Pass(id="a", until=text)) for text in BAD_TIMES),
    Bad(UsageError, "put", DOC, 1, id="a", ttl=60),
    Bad(UsageError, "put", PASS, Pass(id="a"), ttl=60),
    Bad(RecordError, "put", PASS, Pass(id="a", until="2020-01-01T00:00:00Z")),
    Bad(RecordError, "put", PASS, Pass(id="a", until="2026-01-01T00:00:00Z")),
    Bad(RecordError, "put", PASS, Pass(id="a", until=5)),  # type: ignore[arg-type]
]

BAD_ADDS: tuple[Any, ...] = (1.5, 1.0, math.nan, True, "1", None, 2**63, -(2**63), 10**5_000)
BAD_COUNTS: tuple[Any, ...] = (1.0, True, "1", None, [], math.nan, 2**63, -(2**63), 2**64)

COUNTERS = [
    *(Bad(RecordError, "add", HITS, by, id="a") for by in BAD_ADDS),
    *(Bad(RecordError, "put", HITS, value, id="a") for value in BAD_COUNTS),
    *(Bad(CounterError, "add", HITS, by, id="full") for by in (1, COUNTER_MAX)),
    Bad(UsageError, "add", DOC, 1, id="a"),
]

BAD_EXPECTATIONS: dict[Any, type[KeyhouseError]] = {
    **dict.fromkeys((0, -1, 2**70, None), RevisionError),
    **dict.fromkeys((math.nan, "1", b""), UsageError),  # no record is ever at these
}
BAD_BATCH_IDS: tuple[Any, ...] = (
    "",
    "x" * (BATCH_ID_BYTES_MAX + 1),
    "é" * 65,
    "\ud800",
    5,
    b"x",
    ["x"],
)
BAD_LIMITS: tuple[Any, ...] = (0, -1, PAGE_ROWS_MAX + 1, 2**70, 1.5, math.nan, True, "5", None)
BAD_STARTS: tuple[Any, ...] = ("\0", "a\0", "\ud800", 5, b"a", 0, [])

ARGUMENTS = [
    *(Bad(kind, "put", DOC, 2, id="a", expect=each) for each, kind in BAD_EXPECTATIONS.items()),
    *(Bad(kind, "delete", DOC, id="a", expect=each) for each, kind in BAD_EXPECTATIONS.items()),
    *(Bad(LimitError, put_with_batch_id, id) for id in BAD_BATCH_IDS),
    *(Bad(UsageError, "page", DOC, limit=limit) for limit in BAD_LIMITS),
    *(
        Bad(UsageError, "page", record, prefix=text)
        for record in (DOC, PAIR, NAMED)
        for text in BAD_STARTS
    ),
    Bad(UsageError, "page", NUMBERED, prefix="0"),
    Bad(UsageError, "page", DOC, id="a", prefix="a"),
]

BAD_CURSORS: tuple[Any, ...] = (
    *(
        "",
        "x",
        "!!",
        "é",
        "\ud800",
        "\0",
        "A" * 5_000,
        "////",
        "....",
        "../",
        " ",
        "null",
        "%2e%2e",
    ),
    *(5, 1.5, True, b"x", [], {}, object()),
    *(
        base64.urlsafe_b64encode(text).decode()
        for text in (
            *(
                b"",
                b"1",
                b"[]",
                b"{}",
                b"[1]",
                b'[1,"a"]',
                b'[1,"a",2]',
                b'["1","a"]',
                b"[1,2]",
                b"[1,null]",
            ),
            *(
                b'[1e400,"a"]',
                b'[NaN,"a"]',
                b'[1,"\\ud800"]',
                b'[1,"\xff"]',
                b"[" * 5_000,
                b'[1,"a"',
                b"\xff\xfe",
            ),
        )
    ),
)

CURSORS = [
    *(
        Bad(CursorError, "page", DOC, cursor=bad, reverse=back)
        for bad in BAD_CURSORS
        for back in (False, True)
    ),
    *(Bad(CursorError, "page", NOTE, by=BY_TITLE, cursor=bad) for bad in BAD_CURSORS),
    *(Bad(CursorError, "keys", DOC, cursor=bad) for bad in BAD_CURSORS),
]

# JSON from outside

BAD_JSON: tuple[bytes, ...] = (
    *(
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e400",
        b"-1e400",
        b'{"a":1e999}',
        b"nan",
        b"undefined",
        b"'a'",
        b"01",
        b"+1",
    ),
    *(
        b'"\\ud800"',
        b'"\\udfff\\ud800"',
        b'{"\\ud800":1}',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"\xc0\x80"',
    ),
    *(
        "{}".encode("utf-16"),
        "{}".encode("utf-16-be"),
        "{}".encode("utf-32"),
        b"\xef\xbb\xbf{}",
        b"\xfe\xff",
    ),
    *(
        b"[" * 129 + b"]" * 129,
        b'{"a":' * 129 + b"1" + b"}" * 129,
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
    ),
    *(
        b"1" * (INTEGER_DIGITS_MAX + 1),
        b"-" + b"1" * (INTEGER_DIGITS_MAX + 1),
        b"[" + b"9" * 100_000 + b"]",
    ),
    *(
        b"",
        b" ",
        b"1 2",
        b"{}{}",
        b'"\x00"',
        b"\x00",
        b'"\n"',
        b"{,}",
        b"[1,]",
        b'{"a":1,}',
        b"{1:2}",
        b"// a\n1",
    ),
)

MEMBERS_10_000 = b"{" + b",".join(b'"m%d":%d' % (number, number) for number in range(10_000)) + b"}"

KEPT_JSON: tuple[bytes, ...] = (
    *(
        b"null",
        b"true",
        b'""',
        b"[]",
        b"{}",
        b"0",
        b"-1",
        b"0.0",
        b"-0.0",
        b"1.0",
        b"1",
        b"0.1",
        b"5e-324",
    ),
    *(
        b"9007199254740993",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1" + b"0" * (INTEGER_DIGITS_MAX - 1),
    ),
    *(
        b'{"b":1,"a":2}',
        b'{"constructor":1,"":2}',
        b'{"__proto__":{"a":1}}',
        b'"\\u0000"',
        b'{"a\\u0000":"\\u0000b"}',
    ),
    *(
        '"é"'.encode(),
        '"e\u0301"'.encode(),
        '"\u202e\u200b\ufeff\u2028"'.encode(),
        '"\U0010ffff\U0001f600"'.encode(),
    ),
    *(
        MEMBERS_10_000,
        b"[" * 128 + b"]" * 128,
        b'"%s \' ; -- ${x}"',
        b'"' + b"y" * (VALUE_BYTES_MAX - 2) + b'"',
    ),
)
"""Stored byte for byte."""

GOOD_JSON: tuple[tuple[bytes, bytes], ...] = (
    *((text, text) for text in KEPT_JSON),
    (b'{"a":1,"a":2}', b'{"a":2}'),
    (b'{"a":1,"b":2,"a":[3]}', b'{"a":[3],"b":2}'),
    (b' { "a" : [ 1 , 2 ] } ', b'{"a":[1,2]}'),
    (b'"\\/\\ud83d\\ude00\\u00e9"', '"/\U0001f600é"'.encode()),
    (b"1e5", b"100000.0"),
    (b"1E+2", b"100.0"),
)
"""Pairs of a text and its stored form."""

# Texts that are fine in a key

GOOD_TEXTS: tuple[str, ...] = (
    *(chr(code) for code in range(1, 128)),
    *(
        "..",
        "a..b",
        ".a",
        "a.",
        "...",
        "../",
        "../../etc/passwd",
        "%2e%2e",
        "%2E",
        "%%",
        "%zz",
        "=3A",
        "a=b",
        "%3A",
    ),
    *(
        "a.>",
        "a.*.b",
        "$KV",
        "a_b",
        "//",
        "\\\\",
        "::",
        "a:b",
        "a:",
        ":a",
        "2001:db8::1",
        "fe80::1%eth0",
        "[::1]:80",
    ),
    *(
        "  ",
        " a",
        "a ",
        "\r\n",
        "a\r\nb",
        "127.0.0.1",
        "null",
        "true",
        "-0",
        "NaN",
        "{id}",
        "${x}",
        "__proto__",
    ),
    *(
        OTHER,
        f"../{OTHER}",
        f"{OTHER}/doc:a",
        f"{OTHER}:doc:a",
        "doc:a",
        "note:a",
        "idx:title:One:a",
        "hits:a",
    ),
    *(
        "é",
        "e\u0301",
        "ﬁ",
        "fi",
        "ß",
        "ss",
        "İ",
        "ı",
        "Å",
        "A\u030a",
        "\u212b",
        "\u200b",
        "a\u200bb",
        "\u202e",
        "\u2066x",
    ),
    *(
        "\ufeff",
        "\ufffd",
        "\ufffe",
        "\uffff",
        "\ud7ff",
        "\ue000",
        "\U0001f468\u200d\U0001f469",
        "\U0010ffff",
        "\u2028",
    ),
    *("constructor", "' OR '1'='1", "'; DROP TABLE rows; --", "x" * 600, "é" * 300),
)

GOOD_SPACES = (">", "*", "..", "../", "%2e%2e", "a/b", "a:b", "é", "e\u0301", " ", "'--", "x" * 255)
