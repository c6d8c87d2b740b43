"""Every public name, called with an invalid argument, raises a KeyhouseError.

An AttributeError from inside does not help the caller. Python's TypeError remains for missing,
extra and unknown arguments.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

import keyhouse
from keyhouse import (
    MILLISECONDS,
    NATS,
    Choice,
    Counter,
    First,
    FixedPoint,
    FoldResult,
    Index,
    Integer,
    Log,
    LogState,
    ManualClock,
    Meta,
    Migration,
    NormalizedText,
    OptionalSegment,
    Record,
    RecordCount,
    Regex,
    Schema,
    Space,
    Span,
    Store,
    Summary,
    Template,
    TextSegment,
    UlidSource,
    Unique,
    at_field,
    fixed,
    fold,
    migrate,
    normal,
    open_engine,
    open_store,
    per_write,
    prune,
    reindex,
    run_job,
    sliding,
    sweep,
    verify,
)
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DeclarationError, KeyFieldError, KeyhouseError, UsageError


class Clip(msgspec.Struct, kw_only=True):
    id: str
    second: int = 0
    tags: list[str] = []
    at: str = ""


class Heard(LogState):
    pass


def _folded(state: Any, event: Any, found: Any) -> FoldResult:
    return FoldResult(Heard(through=""))


async def _step(tx: Any, entry: Any) -> None:
    pass


IN_ORDER = Index("in:{second:06d}:{id}")
ALONE = Unique("alone:{second:06d}", value="id")
PER_SECOND = RecordCount("per:{second:06d}")
CLIP = Record(Clip, "clip:{id}", IN_ORDER, ALONE, PER_SECOND, name="clip")
NOTE = Record(str, "note:{id}", name="note", expiry=per_write())
HITS = Counter("hits:{id}", name="hits")
STATE = Record(Heard, "state:{id}", name="state")
PLAY = Log(Clip, "play:{id}:{at:ulid}", name="play", state=STATE, fold=_folded)
BOARD = Schema("board", CLIP, NOTE, HITS, STATE, PLAY, space=Space("a channel"), meta=Meta())


def _clip() -> Record[Clip]:
    return Record(Clip, "clip:{id}")


JUNK: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, True, 10**30, float("nan"), "", "x", "1", "{", "{x}", "\ud800", "\0", b"x"),
    *(
        [],
        ["x"],
        [None],
        (),
        ("x",),
        (None,),
        ("x", 1),
        ("second", None),
        ((1, 2),),
        {},
        {"x": 1},
        {"id": 3},
        {1: 2},
    ),
    *(
        object(),
        int,
        Clip,
        Clip(id="a"),
        len,
        TextSegment,
        TextSegment(),
        Template("q:{id}"),
        Space("x"),
        _clip(),
        IN_ORDER,
    ),
)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], tuple[str, ...]]
"""A callable, valid arguments, and the names of optional ones."""

_ROW = ("fields", "each", "when")
_RECORD = (
    "doc",
    "fields",
    "computed",
    "version",
    "created",
    "updated",
    "times",
    "unknown",
    "private",
    "expiry",
    "upgrade",
)

DECLARING: dict[str, Call] = {
    "Choice": (Choice, ("a", "b"), {}, ()),
    "RecordCount": (RecordCount, ("c:{second:04d}",), {}, _ROW),
    "Counter": (Counter, ("c:{x}",), {"name": "c"}, ("doc",)),
    "First": (First, ("f:{second:04d}",), {"value": "id", "among": IN_ORDER}, _ROW),
    "Index": (Index, ("i:{second:04d}:{id}",), {}, ("value", *_ROW)),
    "Integer": (Integer, (4,), {}, ()),
    "Log": (
        Log,
        (Clip, "l:{id}"),
        {},
        ("sequence", "state", "fold", "needs", "name", *_RECORD),
    ),
    "ManualClock": (ManualClock, (5,), {}, ()),
    "Regex": (Regex, ("[a-z]+",), {}, ("without", "requirement", "tail")),
    "Meta": (Meta, (), {}, ("version", "done", "job", "times", "id")),
    "NormalizedText": (NormalizedText, (), {}, ("chars_max",)),
    "OptionalSegment": (OptionalSegment, (TextSegment(),), {}, ()),
    "Record": (Record, (Clip, "b:{id}", Index("i:{second:04d}:{id}")), {}, ("name", *_RECORD)),
    "Descending": (keyhouse.Descending, (Integer(4),), {}, ()),
    "KeyRing": (
        keyhouse.KeyRing,
        ({"1": b"x" * 32},),
        {"current": "1", "index_key": b"x" * 32},
        (),
    ),
    "Owner": (
        lambda of, **by: Schema(
            "s",
            CLIP,
            Record(str, "n:{id}:{x}", name="n", belongs_to=keyhouse.Owner(of, **by)),
            space=Space("x"),
        ),
        (CLIP,),
        {},
        ("by",),
    ),
    "Reference": (
        lambda of, **by: Schema(
            "s",
            CLIP,
            Record(str, "n:{id}:{x}", name="n", references=keyhouse.Reference(of, **by)),
            space=Space("x"),
        ),
        (CLIP,),
        {},
        ("by",),
    ),
    "FixedPoint": (FixedPoint, (6, 2), {}, ()),
    "Schema": (
        lambda name, record, **named: Schema(name, record, **named),
        ("s", _clip()),
        {"space": Space("x")},
        ("doc", "overlaps", "fixed", "meta", "migrations"),
    ),
    "Space": (Space, ("x",), {}, ("field", "segment", "name")),
    "Span": (Span.prefix, ("a",), {}, ()),
    "Summary": (
        Summary,
        ("s:{second:04d}",),
        {"member": "id", "under": "ids"},
        ("entry", "version", *_ROW),
    ),
    "Template": (Template, ("t:{id}",), {}, ("escape", "id")),
    "TextSegment": (TextSegment, (), {}, ("chars_max", "escape")),
    "UlidSource": (UlidSource, (ManualClock(),), {}, ("seed",)),
    "Unique": (Unique, ("u:{second:04d}",), {"value": "id"}, _ROW),
    "at_field": (lambda name: Record(Clip, "b:{id}", expiry=at_field(name)), ("at",), {}, ()),
    "fixed": (lambda seconds: Record(Clip, "b:{id}", expiry=fixed(seconds)), (5,), {}, ()),
    "Migration": (
        lambda id, over, step: Schema(
            "s", CLIP, space=Space("x"), migrations=(Migration(id, "m", over, step),)
        ),
        (1, CLIP, _step),
        {},
        (),
    ),
    "load_system": (keyhouse.load_system, ("rosey",), {}, ()),
    "normal": (normal, ("x",), {}, ()),
    "reindex": (reindex, (1, "d", CLIP), {}, ()),
    "sliding": (lambda seconds: Record(Clip, "b:{id}", expiry=sliding(seconds)), (5,), {}, ()),
}

VALUES = {
    *("MILLISECONDS", "NATS", "SECONDS"),
    *(
        "Clock",
        "IdSource",
        "KeyhouseError",
        "SystemClock",
        "Day",
        "Timestamp",
        "Ulid",
        "operation",
        "per_write",
    ),  # take nothing
    *(
        "Entry",
        "Event",
        "Finding",
        "UnreadableRow",
        "FoldResult",
        "LogState",
        "Regex",
        "Migration",
        "Operation",
        "RecordPage",
        "Transaction",
        "UnreadableRow",
    ),  # are given
}
"""Public names that are not callable, take no arguments, or are created by the store."""


def _wrong(call: Call) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield calls in which one argument is junk."""
    _, args, named, optional = call
    for junk in JUNK:
        for at in range(len(args)):
            yield (*args[:at], junk, *args[at + 1 :]), named
        for name in (*named, *optional):
            yield args, named | {name: junk}


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_of_junk_is_rejected_or_accepted_but_never_crashes(name: str) -> None:
    """`Schema("q", "x")` raised AttributeError, and `{x:|b}` was accepted."""
    refused = 0
    for args, named in _wrong(DECLARING[name]):
        try:
            DECLARING[name][0](*args, **named)
        except KeyhouseError:
            refused += 1
        except Exception as error:
            raise AssertionError(
                f"{name}{args!r:.200} {named!r:.200} is a raw {error!r}"
            ) from error
    assert refused > len(JUNK) // 2, "most of it is refused"


ASKING: dict[str, Callable[[Store, Any], Any]] = {
    "Store of": lambda store, junk: Store(junk, store.engine, "s"),
    "Store on": lambda store, junk: Store(BOARD, junk, "s"),
    "Store in": lambda store, junk: Store(BOARD, store.engine, junk),
    "add": lambda store, junk: store.add(junk, 1, id="a"),
    "add by": lambda store, junk: store.add(HITS, junk, id="a"),
    "add at": lambda store, junk: store.add(HITS, 1, id=junk),
    "append to": lambda store, junk: store.append(junk, Clip(id="a")),
    "append": lambda store, junk: store.append(PLAY, junk),
    "append at": lambda store, junk: store.append(PLAY, Clip(id="a"), at=junk),
    "count": lambda store, junk: store.count(junk),
    "count prefix": lambda store, junk: store.count(CLIP, prefix=junk),
    "delete": lambda store, junk: store.delete(junk, id="none"),
    "delete at": lambda store, junk: store.delete(NOTE, id=junk),
    "delete expect": lambda store, junk: store.delete(CLIP, id="none", expect=junk),
    "entry": lambda store, junk: store.entry(junk, id="a"),
    "entry at": lambda store, junk: store.entry(CLIP, id=junk),
    "find": lambda store, junk: store.find(junk),
    "fold": lambda store, junk: fold(store, junk, id="a"),
    "fold at": lambda store, junk: fold(store, PLAY, id=junk),
    "get": lambda store, junk: store.get(junk, id="a"),
    "get at": lambda store, junk: store.get(CLIP, id=junk),
    "keys": lambda store, junk: store.keys(junk),
    "keys limit": lambda store, junk: store.keys(CLIP, limit=junk),
    "keys cursor": lambda store, junk: store.keys(CLIP, cursor=junk),
    "lookup": lambda store, junk: store.lookup(junk, ALONE, second=1),
    "lookup by": lambda store, junk: store.lookup(CLIP, junk, second=1),
    "lookup at": lambda store, junk: store.lookup(CLIP, ALONE, second=junk),
    "members": lambda store, junk: store.members(junk),
    "migrate": lambda store, junk: migrate(junk),
    "open_engine": lambda store, junk: open_engine(junk),
    "open_store of": lambda store, junk: open_store(junk, store.engine, "s"),
    "open_store on": lambda store, junk: open_store(BOARD, junk, "s"),
    "page": lambda store, junk: store.page(junk),
    "page by": lambda store, junk: store.page(CLIP, by=junk),
    "page limit": lambda store, junk: store.page(CLIP, by=IN_ORDER, limit=junk),
    "page cursor": lambda store, junk: store.page(CLIP, by=IN_ORDER, cursor=junk),
    "page prefix": lambda store, junk: store.page(CLIP, prefix=junk),
    "prune": lambda store, junk: prune(store, junk, before=0),
    "prune before": lambda store, junk: prune(store, PLAY, before=junk),
    "prune keep": lambda store, junk: prune(store, PLAY, before=5, keep=junk),
    "put": lambda store, junk: store.put(junk, Clip(id="a")),
    "put value": lambda store, junk: store.put(CLIP, junk),
    "put ttl": lambda store, junk: store.put(NOTE, "x", id="a", ttl=junk),
    "put expect": lambda store, junk: store.put(CLIP, Clip(id="a"), expect=junk),
    "put at": lambda store, junk: store.put(NOTE, "x", id=junk),
    "RemoteStore of": lambda store, junk: keyhouse.RemoteStore(junk, "http://localhost"),
    "RemoteStore at": lambda store, junk: keyhouse.RemoteStore(BOARD, junk),
    "RemoteStore token": lambda store, junk: keyhouse.RemoteStore(BOARD, "http://x", junk),
    "reseal": lambda store, junk: keyhouse.reseal(junk),
    "reseal before": lambda store, junk: keyhouse.reseal(store, before=junk),
    "resume_deletions": lambda store, junk: keyhouse.resume_deletions(junk),
    "restore": lambda store, junk: store.transact(
        lambda tx: tx.restore(NOTE, "x", id="a", expires=junk)
    ),
    "row": lambda store, junk: store.row(junk),
    "run_job": lambda store, junk: run_job(junk, "job", CLIP, _step),
    "run_job name": lambda store, junk: run_job(store, junk, CLIP, _step),
    "run_job over": lambda store, junk: run_job(store, "job", junk, _step),
    "scan": lambda store, junk: store.scan(junk),
    "scan by": lambda store, junk: store.scan(CLIP, by=junk),
    "sweep": lambda store, junk: sweep(junk),
    "record_count": lambda store, junk: store.record_count(junk),
    "record_count at": lambda store, junk: store.record_count(PER_SECOND, second=junk),
    "transact id": lambda store, junk: store.transact(
        lambda tx: tx.put(CLIP, Clip(id="a")), batch_id=junk
    ),
    "verify": lambda store, junk: verify(junk),
    "watch": lambda store, junk: store.watch(junk),
    "watch since": lambda store, junk: store.watch(CLIP, since=junk),
    "watch prefix": lambda store, junk: store.watch(CLIP, prefix=junk),
    "watch at": lambda store, junk: store.watch(CLIP, id=junk),
}


@pytest.mark.parametrize("name", ASKING)
def test_a_call_with_junk_is_rejected_or_done_but_never_crashes(name: str) -> None:
    """`watch(since="1")` raised TypeError, and a negative `keep` raised IndexError."""

    async def story() -> int:
        store = Store(BOARD, MemoryEngine(ManualClock()), "channel")
        await store.put(CLIP, Clip(id="a", second=1))
        refused = 0
        for junk in JUNK:
            try:
                await _done(ASKING[name](store, junk))
            except KeyhouseError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{name} with {junk!r:.200} is a raw {error!r}") from error
        return refused

    assert asyncio.run(story()) > len(JUNK) // 3, "much of it is refused"


async def _done(made: Any) -> None:
    """Await a call, or run a generator until it waits."""
    if inspect.isasyncgen(made):
        with suppress(StopAsyncIteration, TimeoutError):
            await asyncio.wait_for(anext(made), 0.001)
        await made.aclose()
    elif inspect.isawaitable(made):
        await made


def test_every_public_name_is_among_those_that_are_called() -> None:
    called = {*DECLARING, *(name.split()[0] for name in ASKING)}
    assert set(keyhouse.__all__) - called - VALUES == set(), (
        "call it with junk here, or say why it is not called"
    )


WORD: Any = "x"
NUMBER: Any = 3

STORIES: dict[str, tuple[Callable[[], object], type[KeyhouseError], str]] = {
    "a word for a record": (
        lambda: Schema("q", WORD, space=Space("x")),
        DeclarationError,
        "argument='records', needed='Record",
    ),
    "a word for a space": (
        lambda: Schema("q", CLIP, space=WORD),
        DeclarationError,
        "argument='space', needed='Space'",
    ),
    "an empty word": (lambda: Template("t:{x:|b}"), DeclarationError, "without empty or duplicate"),
    "a word twice": (lambda: Template("t:{x:b|b}"), DeclarationError, "without empty or duplicate"),
    "a word for a segment": (
        lambda: Template("t:{x}", x=WORD),
        DeclarationError,
        "argument='x', needed='Segment'",
    ),
    "one private name": (
        lambda: Record(Clip, "b:{id}", private=WORD),
        DeclarationError,
        r"'tuple\[str, ...\]'",
    ),
    "a record that is not a type": (
        lambda: Record(NUMBER, "b:{id}"),
        DeclarationError,
        "msgspec reads from JSON",
    ),
    "more decimals than digits": (
        lambda: FixedPoint(2, 3),
        DeclarationError,
        "more decimals than digits",
    ),
    "a number for a URL": (lambda: asyncio.run(open_engine(NUMBER)), UsageError, "sqlite:data.db"),
    "work that is not async": (
        lambda: asyncio.run(_transact(lambda tx: None)),
        UsageError,
        "async def work",
    ),
    "work that is not a function": (
        lambda: asyncio.run(_transact(NUMBER)),
        UsageError,
        "async function of one argument",
    ),
    "a key that is a number": (lambda: Span.prefix(NUMBER), KeyFieldError, "must be text"),
}


async def _transact(work: Any) -> None:
    async with open_store(BOARD, "memory:", "mine") as store:
        await store.transact(work)


@pytest.mark.parametrize("story", STORIES)
def test_the_error_explains_the_fix(story: str) -> None:
    call, error, says = STORIES[story]
    with pytest.raises(error, match=says):
        call()


def test_the_constants_are_what_they_are_called() -> None:
    assert MILLISECONDS.format(0) == "1970-01-01T00:00:00.000Z" and NATS.mark == "="
