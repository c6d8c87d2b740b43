"""A model of linked records, forgotten spaces and rows of other programs: operations from a seed,
played on a store, and compared with dictionaries after each.

    write {"steps": [["put list", "a", "b"], ["delete person", "b", null]]}
    delete {"name": "person", "id": "a", "die": 9}
    forget {"die": null}
    plant {"id": "a", "kind": "newer"}
    note {"id": "a", "tag": "x"}

An owner is deleted with all that belongs to it, a record that others refer to is not, and `die` is
the engine call at which the process is killed; then the lease expires, and the work is resumed.
Notes are also written by another program: with members that the type does not have, as a newer
version, or not as JSON.
"""

import json
import random
from typing import Any, Final

import msgspec

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put, Span
from keyhouse.errors import KeyhouseError, LinkError, NewerError, UnreadableError
from keyhouse.schema import Index, Record, Schema, Space
from keyhouse.store import Store, Transaction, resume_interrupted, verify
from keyhouse.testing.conformance import Opener
from keyhouse.testing.faults import FaultyEngine, Killed, die
from keyhouse.testing.script import ScriptOperation
from tests.model.comparison import Difference, same
from tests.store.support.linked_schema import (
    AUTHOR,
    BOOK,
    BOOKS_BY_AUTHOR,
    ENTRY,
    LIST,
    LOGIN,
    MARK,
    MARKS_WITH_TAG,
    PERSON,
    SEEN,
    SEEN_STATE,
    VIEWS,
    Author,
    Book,
    Listing,
    Mark,
    Person,
)

SPACE: Final = "model"
LEASE_SECONDS: Final = 61
COMMIT_ROWS: Final = 8
IDS: Final = ("a", "b", "a:b", "é")
KINDS: Final = ("extra", "newer", "broken")
TAGS: Final = ("x", "y")
OWNERS: Final = {"list": "person", "entry": "list", "mark": "list"}
RECORDS: Final[dict[str, Record[Any]]] = {
    "person": PERSON,
    "list": LIST,
    "entry": ENTRY,
    "mark": MARK,
    "author": AUTHOR,
    "book": BOOK,
}
WEIGHTS: Final = {
    "write": 40,
    "delete": 14,
    "plant": 6,
    "note": 8,
    "drop": 3,
    "look": 10,
    "forget": 1.5,
    "reopen": 1,
    "verify": 1,
}


class Note(msgspec.Struct, kw_only=True):
    id: str
    tag: str
    v: int = 1


BY_TAG = Index("notes:{tag}:{id}")
NOTE = Record(Note, "note:{id}", BY_TAG, version=("v", 1), unknown="keep")
LINKED = (PERSON, LIST, ENTRY, MARK, VIEWS, SEEN_STATE, SEEN, LOGIN, AUTHOR, BOOK)
SCHEMA = Schema("model", *LINKED, NOTE, space=Space("a test"))


def generate(seed: int, count: int) -> list[ScriptOperation]:
    """Return the operations of a seed."""
    dice = random.Random(seed)
    names = dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [ScriptOperation(name, _arguments(name, dice)) for name in names]


def _arguments(name: str, dice: random.Random) -> dict[str, Any]:
    id = dice.choice(IDS)
    match name:
        case "write":
            return {"steps": [_step(dice) for _ in range(dice.choice((1, 1, 2, 4)))]}
        case "delete":
            killed = dice.randint(3, 40) if dice.random() < 0.4 else None
            return {"name": dice.choice(list(RECORDS)), "id": id, "die": killed}
        case "forget":
            return {"die": dice.randint(3, 30) if dice.random() < 0.6 else None}
        case "plant":
            return {"id": id, "kind": dice.choice(KINDS)}
        case "note":
            return {"id": id, "tag": dice.choice(TAGS)}
        case "drop":
            return {"id": id}
    return {}


def _step(dice: random.Random) -> list[str | None]:
    verb = dice.choice(("put", "put", "put", "delete"))
    return [
        f"{verb} {dice.choice(list(RECORDS))}",
        dice.choice(IDS),
        dice.choice((*IDS, None)),
    ]


class Oracle:
    """`records` by name and id, with the id that each is linked to; `notes` by id: their tag and
    members of another program, or the error of a read."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], str | None] = {}
        self.notes: dict[str, dict[str, Any] | type[KeyhouseError]] = {}

    def step(self, verb: str, id: str, other: str | None) -> None:
        action, _, name = verb.partition(" ")
        if action == "put":
            links = {"entry": id, "mark": other or "a", "list": other, "book": other}
            self.records[name, id] = links.get(name)
        elif self.records.pop((name, id), "absent") != "absent":
            for child, owner in OWNERS.items():
                owned = [key for key, to in self.records.items() if key[0] == child and to == id]
                for key in owned if owner == name else ():
                    self.step(f"delete {child}", key[1], None)

    def copy(self) -> "Oracle":
        other = Oracle()
        other.records, other.notes = dict(self.records), dict(self.notes)
        return other

    @property
    def holds(self) -> bool:
        """Return whether every link leads to a record."""
        return all(
            linked is None or (OWNERS.get(name, "author"), linked) in self.records
            for (name, _), linked in self.records.items()
        )


class LinkedPlayer:
    """Plays operations on a store, each checked against the oracle."""

    def __init__(self, opener: Opener, clock: ManualClock) -> None:
        self._opener = opener
        self._clock = clock
        self._oracle = Oracle()
        self._engine: Any = None

    async def play(self, operations: list[ScriptOperation], label: str) -> None:
        self._engine = await self._opener(self._clock)
        try:
            for number, operation in enumerate(operations, 1):
                try:
                    await getattr(self, f"_{operation.name}")(**operation.arguments)
                    await self._check()
                except (AssertionError, KeyhouseError) as error:
                    last = "\n".join(map(str, operations[max(0, number - 8) : number]))
                    raise Difference(
                        f"{label}, operation {number}: {error!r}; the last operations:\n{last}"
                    ) from error
            await self._verify()
        finally:
            await self._engine.close()

    def _store(self, *faults: Any) -> Store:
        """Return a new store, as a new process has, with small commits."""
        return Store(SCHEMA, FaultyEngine(self._engine, *faults, rows=COMMIT_ROWS), SPACE)

    async def _write(self, steps: list[list[Any]]) -> None:
        trial = self._oracle.copy()
        for step in steps:
            trial.step(*step)

        async def work(tx: Transaction) -> None:
            for step in steps:
                await _apply(tx, *step)

        try:
            await Store(SCHEMA, self._engine, SPACE).transact(work)
        except LinkError:
            same(trial.holds, False, "links were refused")
        else:
            same(trial.holds, True, "links were accepted")
            self._oracle = trial

    async def _delete(self, name: str, id: str, die: int | None) -> None:
        trial = self._oracle.copy()
        trial.step(f"delete {name}", id, None)
        fields = _fields(name, id)
        try:
            found = await self._store(*_death(die)).delete(RECORDS[name], **fields)
            same(found, (name, id) in self._oracle.records, "the record was there")
        except LinkError:
            same(trial.holds, False, "the deletion was refused")
            return
        except Killed:
            await self._resume()
            if await Store(SCHEMA, self._engine, SPACE).get(RECORDS[name], **fields) is not None:
                return  # it was killed before it had deleted anything
        same(trial.holds, True, "the deletion was accepted")
        self._oracle = trial

    async def _forget(self, die: int | None) -> None:
        try:
            await self._store(*_death(die)).forget(watch_seconds=0)
        except Killed:
            before = bool((await self._engine.scan(SPACE, Span(), limit=1)).rows)
            forgotten = await self._resume()
            if before and not forgotten:
                return  # it was killed before it had marked the space
        same((await self._engine.scan(SPACE, Span(), limit=1)).rows, [], "a forgotten space")
        self._oracle = Oracle()

    async def _resume(self) -> bool:
        """Resume after the lease: once."""
        self._clock.advance(seconds=LEASE_SECONDS)
        store = Store(SCHEMA, self._engine, SPACE)
        forgotten = (await resume_interrupted(store, watch_seconds=0)).forgotten
        again = await resume_interrupted(store, watch_seconds=0)
        same((again.deletions, again.forgotten), (0, False), "resumed twice")
        return forgotten

    # Notes

    async def _plant(self, id: str, kind: str) -> None:
        """Write a note as another program does."""
        before = self._oracle.notes.get(id)
        deletes, puts = [], []
        if isinstance(before, dict):
            deletes.append(BY_TAG.template.build({"tag": before["tag"], "id": id}))
        if kind == "extra":
            value: dict[str, Any] = {"id": id, "tag": "x", "v": 1, "color": "red"}
            puts.append(Put(BY_TAG.template.build({"tag": "x", "id": id}), b"1"))
            self._oracle.notes[id] = {"tag": "x", "color": "red"}
        else:
            value = {"id": id, "tag": "x", "v": 2, "size": 7}
            self._oracle.notes[id] = NewerError if kind == "newer" else UnreadableError
        data = b"not JSON" if kind == "broken" else json.dumps(value).encode()
        puts.append(Put(NOTE.template.build({"id": id}), data))
        written = {put.key for put in puts}
        gone = tuple(key for key in deletes if key not in written)
        assert await self._engine.commit(SPACE, Batch(puts=tuple(puts), deletes=gone)) is not None

    async def _note(self, id: str, tag: str) -> None:
        before = self._oracle.notes.get(id)
        try:
            await Store(SCHEMA, self._engine, SPACE).put(NOTE, Note(id=id, tag=tag))
        except (NewerError, UnreadableError) as error:
            same(before, type(error), "the note was refused")
            return
        same(isinstance(before, type), False, "a note that does not decode was replaced")
        kept = before if isinstance(before, dict) else {}
        self._oracle.notes[id] = {**kept, "tag": tag}

    async def _drop(self, id: str) -> None:
        before = self._oracle.notes.get(id)
        try:
            found = await Store(SCHEMA, self._engine, SPACE).delete(NOTE, id=id)
        except (NewerError, UnreadableError) as error:
            same(before, type(error), "the deletion was refused")
            return
        same(found, before is not None, "the note was there")
        self._oracle.notes.pop(id, None)

    async def _look(self) -> None:
        store, notes = Store(SCHEMA, self._engine, SPACE), self._oracle.notes
        for id in IDS:
            expected = notes.get(id)
            try:
                found: Any = await store.get(NOTE, id=id)
                same(found and found.tag, expected and expected["tag"], f"note {id}")  # type: ignore[index]
            except (NewerError, UnreadableError) as error:
                same(type(error), expected, f"note {id}")
        page = await store.page(NOTE, unreadable="skip")
        tags = {id: note["tag"] for id, note in notes.items() if isinstance(note, dict)}
        same({each.record.id: each.record.tag for each in page.entries}, tags, "the page")
        unreadable = {NOTE.template.build({"id": id}) for id in notes if id not in tags}
        same({each.row.key for each in page.unreadable}, unreadable, "unreadable rows of the page")
        for tag in TAGS:
            found = {each.record.id async for each in store.scan(NOTE, by=BY_TAG, tag=tag)}
            same(found, {id for id, each in tags.items() if each == tag}, f"notes of {tag}")
        for id in IDS:
            found = {
                each.record.id async for each in store.scan(BOOK, by=BOOKS_BY_AUTHOR, author=id)
            }
            books = {
                key[1] for key, to in self._oracle.records.items() if key[0] == "book" and to == id
            }
            same(found, {each for each in books if each != "b"}, f"books of {id}")

    # The whole content

    async def _check(self) -> None:
        rows = (await self._engine.scan(SPACE, Span(), limit=1_000)).rows
        found = {row.key: row.value for row in rows}
        keys = {
            RECORDS[name].template.build(_fields(name, id)) for name, id in self._oracle.records
        }
        heads = tuple(f"{name}:" for name in RECORDS)
        same({key for key in found if key.startswith(heads)}, keys, "the records")
        for id, note in self._oracle.notes.items():
            value = found.get(NOTE.template.build({"id": id}))
            if isinstance(note, dict):
                same(value and json.loads(value), {"id": id, "v": 1, **note}, f"note {id}")
        same([key for key in found if key.startswith("meta:job:delete")], [], "deletion jobs")
        total = sum(name == "mark" for name, _ in self._oracle.records)
        counted = int(found.get(MARKS_WITH_TAG.template.build({"tag": "x"}), b"0"))
        same(counted, total, "the count of marks")

    async def _verify(self) -> None:
        store = Store(SCHEMA, self._engine, SPACE)
        found = {finding.key async for finding in verify(store)}
        wrong = {
            NOTE.template.build({"id": id})
            for id, note in self._oracle.notes.items()
            if not isinstance(note, dict)
        }
        same(found, wrong, "the findings of verify")

    async def _reopen(self) -> None:
        if self._engine.capabilities.durable:
            await self._engine.close()
            self._engine = await self._opener(self._clock)


def _death(at: int | None) -> tuple[Any, ...]:
    return () if at is None else (die(at),)


def _fields(name: str, id: str) -> dict[str, Any]:
    return {"list": id, "position": 1} if name == "entry" else {"id": id}


async def _apply(tx: Transaction, verb: str, id: str, other: str | None) -> None:
    action, _, name = verb.partition(" ")
    if action == "delete":
        await tx.delete(RECORDS[name], **_fields(name, id))
    elif name == "entry":
        await tx.put(ENTRY, "x", list=id, position=1)
    else:
        values: dict[str, Any] = {
            "person": Person(id=id, name=id),
            "list": Listing(id=id, person=other, title=id),
            "mark": Mark(id=id, list=other or "a"),
            "author": Author(id=id),
            "book": Book(id=id, author=other, binned=id == "b"),
        }
        await tx.put(RECORDS[name], values[name])
