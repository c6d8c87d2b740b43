"""A migration replaces records of an older declaration, whatever rows and options they have.

The table has every kind of derived row and every option of a record; each of them is tried with
every change of a member. The rows must be those of a space that the newer declaration wrote alone.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from keyhouse.errors import UniqueError, UnreadableError
from keyhouse.keyring import KeyRing
from keyhouse.keys.segments import Choice
from keyhouse.keys.template import Template
from keyhouse.schema import (
    MILLISECONDS,
    Derived,
    First,
    Index,
    Meta,
    Migration,
    Owner,
    Record,
    RecordCount,
    Reference,
    Schema,
    Space,
    Summary,
    Unique,
    at_field,
    fixed,
    per_write,
    sliding,
)
from keyhouse.store import Entry, Store, Transaction, migrate, run_job
from keyhouse.store.jobs import job
from keyhouse.testing.faults import Killed, fail
from tests.sizes import size
from tests.store.support.harness import Harness, clean, findings, played
from tests.support.engine_openers import OPENERS

VALUES = (1, 10, 100, 1000, 2, 20, 2)
"""One of each record, in the order of keys: a tenfold of one is the value of the next."""

RING = KeyRing(current="one", keys={"one": b"1" * 32}, index_key=b"2" * 32)


class Change(NamedTuple):
    """The member before and after, each with its type and the field of a key, and the step."""

    before: tuple[str, type, str]
    after: tuple[str, type, str] | None
    convert: Callable[[Any], dict[str, Any]]
    stored: Callable[[int], Any] = int


CHANGES = {
    "rename": Change(("m", int, "m:06d"), ("n", int, "n:06d"), lambda old: {"n": old.m}),
    "retype": Change(("m", str, "m"), ("m", int, "m:06d"), lambda old: {"m": int(old.m)}, str),
    "rescale": Change(("m", int, "m:06d"), ("m", int, "m:06d"), lambda old: {"m": old.m * 10}),
    "split": Change(
        ("m", str, "m"),
        ("first", str, "first"),
        lambda old: dict(zip(("first", "last"), old.m.split(" "), strict=True)),
        lambda number: f"f{number} l{number}",
    ),
    "drop": Change(("m", int, "m:06d"), None, lambda old: {}),
}


def words(record: Any) -> list[str]:
    return [f"w{len(record.tag)}", f"x{record.id}"]


SHARED = Index("i:{id}:x")

KINDS: dict[str, Callable[[str, str], list[Derived]]] = {
    "no rows": lambda name, field: [],
    "index": lambda name, field: [Index(f"i:{{{field}}}:{{id}}")],
    "index with a value": lambda name, field: [Index(f"i:{{{field}}}:{{id}}", value="id")],
    "index of each": lambda name, field: [
        Index("i:{word}:{id}", each={"word": words}),
        Index(f"j:{{{field}}}:{{word}}:{{id}}", each={"word": words}),
    ],
    "sparse index": lambda name, field: [
        Index(f"i:{{{field}}}:{{id}}", when=lambda record: str(getattr(record, name))[-1] == "0")
    ],
    "one index of both": lambda name, field: [SHARED],
    "unique": lambda name, field: [
        Unique(f"u:{{{field}}}:{{tag}}", value="id"),
        Unique("v:{id}:x", value="id"),
    ],
    "first": lambda name, field: [
        (among := Index(f"a:{{{field}}}:{{id}}")),
        First(f"f:{{{field}}}", value="id", among=among),
        (others := Index("b:{owner}:{id}")),
        First("g:{owner}", value="id", among=others),
    ],
    "summary": lambda name, field: [
        Summary(f"s:{{{field}}}", member="id", under="ids"),
        Summary("t:{owner}", member="id", under="ids"),
    ],
    "summary with entries": lambda name, field: [
        Summary(
            "s:{owner}", member="id", under="ids", entry=lambda record: getattr(record, name, None)
        )
    ],
    "rebuilt summary": lambda name, field: [
        Summary(
            f"s:{{{field}}}",
            member="id",
            under="ids",
            entry=lambda record: record.tag,
            rebuilt=True,
        )
    ],
    "summary of another shape": lambda name, field: [
        Summary("s:{owner}", member="id", under=f"with-{name}")
    ],
    "full summary": lambda name, field: [
        Summary(f"s:{{{field}}}", member="id", under="ids", members_max=2),
        Summary("t:{owner}", member="id", under="ids", members_max=2),
    ],
    "full summary that goes": lambda name, field: [
        Summary(f"s:{name}:{{owner}}", member="id", under="ids", members_max=2)
    ],
    "count": lambda name, field: [RecordCount(f"c:{{{field}}}"), RecordCount("d:{owner}")],
    "a count that goes": lambda name, field: [RecordCount(f"c:{name}:{{{field}}}")],
}

SOME_KINDS = ("index", "unique", "first", "rebuilt summary", "count")
"""Kinds whose rows are written in different ways."""

OPTIONS: dict[str, dict[str, Any]] = {
    "created": {"created": "made"},
    "created and updated": {"created": "made", "updated": "changed", "times": MILLISECONDS},
    "timestamps": {"timestamps": ("until",)},
    "version": {"version": ("v", 1)},
    "unknown": {"unknown": "keep"},
    "unknown and created": {"unknown": "keep", "created": "made"},
    "private": {"private": ("tag",)},
    "sealed": {"sealed": ("tag",)},
    "fixed": {"expiry": fixed(1_000)},
    "sliding": {"expiry": sliding(1_000)},
    "per write": {"expiry": per_write()},
    "at a field": {"expiry": at_field("until")},
    "computed": {"computed": {"tag": lambda record: f"of {record.id}"}},
    "legacy keys": {"legacy_at": "old:{id}", "created": "made"},
    "owned": {"belongs_to": True},
    "refers": {"references": True},
}
INDEXED = {name: {**options, "rows": "index"} for name, options in OPTIONS.items()}


class Part(msgspec.Struct):
    """A record that others are linked to."""

    id: str


PART = Record(Part, "part:{id}", name="part")


def struct(change: tuple[str, type, str] | None, *, has_last: bool) -> type[msgspec.Struct]:
    members: list[Any] = [("id", str)]
    if change is not None:
        members.append(change[:2])
    if has_last:
        members.append(("last", str))
    members += [("tag", str, "t"), ("owner", str, "o"), ("made", str, ""), ("changed", str, "")]
    return msgspec.defstruct("Item", [*members, ("until", str | None, None), ("v", int, 1)])


def declared(member: tuple[str, type, str] | None, kind: str, options: dict[str, Any]) -> Any:
    """Return a declaration; of a member that was dropped, there are rows of the others only."""
    options, rows = dict(options), []
    has_last = member is not None and member[0] == "first"
    if member is not None:
        rows = KINDS[options.pop("rows", kind)](member[0], member[2])
    elif options.pop("rows", kind) == "one index of both":
        rows = [SHARED]
    by = Index("by:{owner}:{id}")
    if options.pop("belongs_to", False):
        rows, options["belongs_to"] = [*rows, by], Owner(PART, by=by)
    if options.pop("references", False):
        rows, options["references"] = [*rows, by], Reference(PART, by=by)
    type_ = struct(member, has_last=has_last)
    return Record(type_, "r:{id}", *rows, name="item", **options)


class Case:
    """One change of one kind of record: its declarations, and the records of a space."""

    def __init__(self, change: str, kind: str, options: dict[str, Any]) -> None:
        self.change = CHANGES[change]
        self.old = declared(self.change.before, kind, options)
        self.new = declared(self.change.after, kind, options)
        self.before = Schema("items", self.old, PART, space=Space("x"), meta=Meta())
        self.after = Schema(
            "items",
            self.new,
            PART,
            space=Space("x"),
            meta=Meta(),
            migrations=(Migration(1, "…", self.old, self.step),),
        )

    async def step(self, tx: Transaction, entry: Entry[Any]) -> None:
        await tx.put(self.new, self.converted(entry.record))

    def converted(self, old: Any, **stamps: str) -> Any:
        kept = {name: getattr(old, name) for name in ("id", "tag", "owner", "until")}
        return self.new.type(**kept, **self.change.convert(old), **stamps)

    async def fill(self, harness: Harness, space: str) -> list[Entry[Any]]:
        """Write the records by the older declaration, and return what is stored."""
        store = Store(self.before.writing_legacy_keys(), harness.engine, space, key_ring=RING)
        await store.put(PART, Part("o"))
        until = self.old.times.format(harness.clock.now() + 900_000)
        entries = []
        for number, value in enumerate(VALUES):
            made = self.old.type(
                id=str(number),
                tag=f"t{number}",
                until=until,
                **{self.change.before[0]: self.change.stored(value)},
            )
            has_ttl = self.old.expiry is not None and self.old.expiry.mode == "write"
            entries.append(await store.put(self.old, made, ttl=500 if has_ttl else None))
        if self.old.keeps_unknown:
            key = f"r:{len(VALUES) - 1}"
            [row] = await harness.engine.read(space, (key,))
            assert row is not None
            await harness.plant({key: row.value[:-1] + b',"extra":{"a":1}}'}, space=space)
        return entries

    async def check(self, harness: Harness, space: str, entries: list[Entry[Any]]) -> None:
        """Compare the rows with those that the newer declaration writes."""
        other = Store(self.after, harness.engine, space + "-new", key_ring=RING)
        await migrate(other)
        await other.put(PART, Part("o"))
        stored = await Store(self.after, harness.engine, space, key_ring=RING).page(
            self.new, limit=20
        )
        for entry, found in zip(entries, stored.entries, strict=True):
            stamps = {"made": entry.record.made, "changed": found.record.changed}
            if self.new.updated is not None:
                assert found.record.changed > entry.record.changed, "the step has changed it"
            assert found.expires == entry.expires
            record = self.converted(entry.record, **stamps)
            async with other.transaction() as tx:
                await tx.restore(self.new, record, expires=entry.expires)
        if self.old.keeps_unknown:
            key = f"r:{len(VALUES) - 1}"
            [row] = await harness.engine.read(other.space, (key,))
            assert row is not None
            changed = row.value[:-1] + b',"extra":{"a":1}}'
            await harness.plant({key: changed}, space=other.space)
        if any(getattr(each, "members_max", None) for each in self.new.derived):
            for each in (space, other.space):  # lists that were full have room again
                await findings(Store(self.after, harness.engine, each), repair=True)
        assert await rows(harness, space) == await rows(harness, other.space)
        await clean(Store(self.after, harness.engine, space, key_ring=RING))


async def rows(harness: Harness, space: str) -> dict[str, Any]:
    """Return the rows without those of jobs and counts of nothing; members of a list are sorted."""
    found: dict[str, Any] = {}
    for key, (value, expires) in (await harness.rows(space)).items():
        if key.startswith(("meta:", "mig:")) or value == b"0":
            continue
        parsed = msgspec.json.decode(value)
        if isinstance(parsed, dict):
            parsed.pop("tag", None)  # a sealed one differs each time
            parsed = {
                name: sorted(part) if isinstance(part, list) else part
                for name, part in parsed.items()
            }
        if key.startswith(("f:", "g:")):
            parsed = "some record"  # which one is first depends on the order of writes
        if isinstance(parsed, dict) and parsed.get("truncated"):
            parsed["ids"] = len(parsed["ids"])
        found[key] = parsed, expires
    return found


CASES = [
    *((change, kind, {}) for change in CHANGES for kind in KINDS),
    *((change, "no rows", options) for change in CHANGES for options in OPTIONS.values()),
    *((change, "index", options) for change in CHANGES for options in INDEXED.values()),
]
NAMES = [
    *(f"{change}-{kind}" for change in CHANGES for kind in KINDS),
    *(f"{change}-{option}" for change in CHANGES for option in OPTIONS),
    *(f"{change}-{option} with index" for change in CHANGES for option in INDEXED),
]


KILLS = [(1, 3, 4)] if size(0, 1, 1) else [(1,), (3,), (4,)]
"""The commits at which a migration is killed; in a usual run, of one case after the other."""


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "CHUNK_ROWS", 2)


@pytest.mark.soak
@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(
    "engine", ["memory", pytest.param("sqlite", marks=pytest.mark.extra)]
)  # every engine has some of the cases below
@pytest.mark.parametrize(("change", "kind", "options"), CASES, ids=NAMES)
def test_a_changed_member_is_migrated_with_whatever_rows_and_options_its_record_has(
    change: str, kind: str, options: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    """The put of a step decoded the stored row by the newer type: it failed for every record with
    a derived row or a time of creation."""

    async def story(harness: Harness) -> None:
        case = Case(change, kind, options)
        kills = KILLS[CASES.index((change, kind, options)) % len(KILLS)]
        for at in (None, *kills) if engine == "memory" else (None,):
            space = f"space-{at}"
            entries = await case.fill(harness, space)
            harness.clock.advance(seconds=5)
            store = Store(case.after, harness.engine, space, key_ring=RING)
            if at is not None:
                killed = harness.faulty(fail(at, Killed))
                with pytest.raises(Killed):
                    await migrate(Store(case.after, killed, space, key_ring=RING))
                harness.clock.advance(seconds=60)
            await migrate(store)
            await case.check(harness, space, entries)

    asyncio.run(played(story, engine, tmp_path))


class Side(msgspec.Struct):
    """Two of these with one id are listed once."""

    id: str
    side: str
    m: int


class NewSide(msgspec.Struct):
    """With another name of the member."""

    id: str
    side: str
    n: int


def sides(type_: type[Any], field: str) -> Record[Any]:
    key = Template("r:{side}:{id}", side=Choice("a", "b", "c"))
    return Record(type_, key, Summary(f"s:{{{field}:06d}}", member="id", under="ids"), name="side")


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("factor", [1, 10])
def test_a_member_that_several_records_contribute_stays_until_all_of_them_have_moved(
    factor: int,
) -> None:
    old, new = sides(Side, "m"), sides(NewSide, "n")

    async def step(tx: Transaction, entry: Entry[Side]) -> None:
        await tx.put(new, NewSide(entry.record.id, entry.record.side, entry.record.m * factor))

    migrations = (Migration(1, "…", old, step),)

    async def story(harness: Harness) -> None:
        before = Store(Schema("sides", old, space=Space("x"), meta=Meta()), harness.engine, "space")
        for side in ("a", "b", "c"):
            for id in ("1", "2"):
                await before.put(old, Side(id, side, 10 ** int(id)))
        schema = Schema("sides", new, space=Space("x"), meta=Meta(), migrations=migrations)
        store = Store(schema, harness.engine, "space")
        await migrate(store)
        await clean(store)
        lists = {key: row for key, row in (await rows(harness, "space")).items() if key[:2] == "s:"}
        assert lists == {
            f"s:{10 * factor:06d}": ({"ids": ["1"]}, None),
            f"s:{100 * factor:06d}": ({"ids": ["2"]}, None),
        }

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("kinds", [SOME_KINDS, pytest.param(KINDS, marks=pytest.mark.extra)])
@pytest.mark.parametrize("engine", OPENERS)
def test_a_renamed_member_is_migrated_on_every_engine(
    engine: str, kinds: Iterable[str], tmp_path: Path
) -> None:
    async def story() -> None:
        harness = Harness("memory", tmp_path)
        harness.engine = await OPENERS[engine](tmp_path)(harness.clock)
        try:
            for kind in kinds:
                case = Case("rename", kind, {"created": "made"})
                entries = await case.fill(harness, space := kind.replace(" ", "-"))
                harness.clock.advance(seconds=5)
                await migrate(Store(case.after, harness.engine, space, key_ring=RING))
                await case.check(harness, space, entries)
        finally:
            await harness.engine.close()

    asyncio.run(story())


def test_a_value_that_two_records_have_after_the_change_stops_the_migration() -> None:
    """A unique row is taken from a record that is still to be migrated, not from one that was."""
    old = Record(Side, "r:{id}", Unique("u:{m:06d}", value="id"), name="side")
    new = Record(NewSide, "r:{id}", Unique("u:{n:06d}", value="id"), name="side")

    async def step(tx: Transaction, entry: Entry[Side]) -> None:
        await tx.put(new, NewSide(entry.record.id, "", entry.record.m // 10))

    async def story(harness: Harness) -> None:
        before = Store(Schema("sides", old, space=Space("x"), meta=Meta()), harness.engine, "space")
        for id, value in (("1", 10), ("2", 11)):
            await before.put(old, Side(id, "", value))
        schema = Schema(
            "sides",
            new,
            space=Space("x"),
            meta=Meta(),
            migrations=(Migration(1, "…", old, step),),
        )
        stored = await rows(harness, "space")
        with pytest.raises(UniqueError):
            await migrate(Store(schema, harness.engine, "space"))
        assert await rows(harness, "space") == stored

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("verb", ["delete new", "delete old", "restore", "delete, then put"])
def test_every_verb_of_a_step_knows_the_older_rows(verb: str) -> None:
    case = Case("rename", "index", {"created": "made", "expiry": fixed(1_000), "rows": "unique"})

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        record = case.converted(entry.record, made=entry.record.made)
        if verb == "restore":
            await tx.restore(case.new, record, expires=entry.expires, expect=entry.revision)
        elif verb == "delete, then put":
            assert await tx.delete(case.old, id=entry.record.id)
            await tx.put(case.new, record)
        else:
            of = case.new if verb == "delete new" else case.old
            assert await tx.delete(of, id=entry.record.id, expect=entry.revision)
            assert not await tx.delete(of, id=entry.record.id)

    async def story(harness: Harness) -> None:
        entries = await case.fill(harness, "space")
        harness.clock.advance(seconds=5)
        schema = Schema(
            "items",
            case.new,
            PART,
            space=Space("x"),
            meta=Meta(),
            migrations=(Migration(1, "…", case.old, step),),
        )
        store = Store(schema, harness.engine, "space")
        await migrate(store)
        if verb.startswith("delete "):
            assert set(await rows(harness, "space")) == {"part:o"}
            await clean(store)
        else:
            await case.check(harness, "space", entries)

    asyncio.run(played(story, "memory", Path()))


def test_two_changes_in_a_row_are_two_steps_and_each_reads_what_the_one_before_wrote() -> None:
    first, last = Case("rename", "count", {"created": "made"}), CHANGES["rename"]
    newest: Record[Any] = Record(
        msgspec.defstruct("Item", [("id", str), ("z", str), ("made", str, "")]),
        "r:{id}",
        Index("i:{z}:{id}"),
        RecordCount("z:{z}"),
        name="item",
        created="made",
    )

    async def step(tx: Transaction, entry: Entry[Any]) -> None:
        await tx.put(newest, newest.type(id=entry.record.id, z=str(entry.record.n)))

    async def story(harness: Harness) -> None:
        entries = await first.fill(harness, "space")
        harness.clock.advance(seconds=5)
        schema = Schema(
            "items",
            newest,
            PART,
            space=Space("x"),
            meta=Meta(),
            migrations=(
                Migration(1, "…", first.old, first.step),
                Migration(2, "…", first.new, step),
            ),
        )
        store = Store(schema, harness.engine, "space")
        await migrate(store)
        await clean(store)
        found = [each.record async for each in store.scan(newest)]
        assert [(each.id, each.z, each.made) for each in found] == [
            (entry.record.id, str(entry.record.m), entry.record.made) for entry in entries
        ]
        kept = {key for key in await rows(harness, "space") if key[:2] in ("c:", "d:", "z:")}
        assert kept == {f"z:{value}" for value in VALUES}

    assert last is first.change
    asyncio.run(played(story, "memory", Path()))


def test_a_row_that_a_newer_program_wrote_since_is_left_and_a_damaged_one_is_reported() -> None:
    case = Case("rename", "index", {})

    async def story(harness: Harness) -> None:
        entries = await case.fill(harness, "space")
        store = Store(case.after, harness.engine, "space")
        written = case.converted(entries[0].record)
        await store.put(case.new, msgspec.structs.replace(written, id="9"))
        await harness.plant({"r:8": b'{"id": "8"}'})
        with pytest.raises(UnreadableError, match="the declaration that the migration is over"):
            await migrate(store)
        await harness.plant({"r:8": None})
        await migrate(store)
        await clean(store)
        assert await store.count(case.new) == len(entries) + 1

    asyncio.run(played(story, "memory", Path()))


@pytest.mark.parametrize("option", ["unknown", "created"])
def test_a_job_and_a_fold_see_the_entries_that_a_scan_sees(option: str) -> None:
    case = Case("rename", "index", OPTIONS[option])

    async def story(harness: Harness) -> None:
        await case.fill(harness, "space")
        store = Store(case.before, harness.engine, "space")
        seen: list[Entry[Any]] = []

        async def step(tx: Transaction, entry: Entry[Any]) -> None:
            seen.append(entry)

        await run_job(store, "look", case.old, step)
        assert seen == [entry async for entry in store.scan(case.old)]

    asyncio.run(played(story, "memory", Path()))
