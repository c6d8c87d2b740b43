"""Apply each operation to a store and to the oracle, and raise `Difference` where they differ.

The clock steps back only after a sweep: otherwise expired rows would be live again, though other
records may have taken their unique values, and no result would be right.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from keyhouse.clock import ManualClock, UlidSource, ulid_at
from keyhouse.engine import Engine, Span
from keyhouse.errors import CounterError, KeyhouseError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.store import Entry, Store, Transaction, prune, sweep, verify
from keyhouse.store.entry import ANY, Unset
from keyhouse.testing.conformance.harness import Opener
from keyhouse.testing.script import ScriptOperation
from tests.model.comparison import Difference, agree, same, shown
from tests.model.generator import HOMES, USERS
from tests.model.keyspace import (
    COUNTS,
    DERIVED,
    HITS,
    LOGS,
    MORTALS,
    RECORDS,
    SCHEMA,
    SUMMARIES,
    Item,
    Mortal,
    Played,
    Task,
)
from tests.model.oracle import Home, Keys, Stored, folded, ordered, time_text, written
from tests.model.scans import FOLDED, Scans, index_of

SPACE: Final = "space"
CHECK_EVERY: Final = 100
VERIFY_EVERY: Final = 500
"""Operations between two runs of `verify`, which costs as much as fifty operations."""

SHOWN: Final = 25
"""Operations that a failure prints, up to the one that failed."""

TYPES: Final[dict[str, Any]] = {"item": Item, "task": Task} | dict.fromkeys(MORTALS, Mortal)
STREAMS: Final = sorted(USERS, key=lambda user: f"{written(user)}:")
"""The streams of a log in key order, the order in which they are folded and pruned."""


async def play(
    operations: Iterable[ScriptOperation], opener: Opener, *, label: str = "a script"
) -> int:
    """Run all operations, check everything at the end, and return their number."""
    player = await Player.open(opener)
    last: deque[str] = deque(maxlen=SHOWN)
    number = 0
    try:
        for number, operation in enumerate(operations, 1):
            last.append(str(operation))
            await player.play(operation)
            if number % CHECK_EVERY == 0:
                await player.check()
            if number % VERIFY_EVERY == 0:
                await player.verify()
        await player.check()
        await player.verify()
    except Exception as error:
        shown = "\n".join(last)
        raise Difference(
            f"{label}, operation {number}: {error!r}\nthe last operations:\n{shown}"
        ) from error
    finally:
        await player.close()
    return number


class PositionTaken(Exception):
    """A first attempt took the position of another event to be free, which its commit notices."""


class Player:
    """One engine, a store for each home, and the oracle's homes."""

    def __init__(self, opener: Opener, clock: ManualClock, engine: Engine) -> None:
        self._opener = opener
        self._clock = clock
        self._reopened = 0
        self.homes = {home: Home() for home in HOMES}
        self._stores: dict[str, Store] = {}
        self._scans = Scans(clock, self._stores, self.homes, self._same_entry)
        self._newest = 0
        self._use(engine)

    @classmethod
    async def open(cls, opener: Opener) -> "Player":
        clock = ManualClock()
        return cls(opener, clock, await opener(clock))

    async def close(self) -> None:
        await self._engine.close()

    def _use(self, engine: Engine) -> None:
        self._engine = engine
        self._ids = UlidSource(self._clock, seed=self._reopened)
        self._stores.update(
            {home: Store(SCHEMA, engine, SPACE, ids=self._ids, home=home) for home in HOMES}
        )

    @property
    def _now(self) -> int:
        return self._clock.now()

    async def play(self, operation: ScriptOperation) -> None:
        method: Callable[..., Awaitable[None]] = getattr(self, f"do_{operation.name}")
        await method(**operation.arguments)

    # Writing

    async def do_put(self, home: str, **step: Any) -> None:
        """Use the store's own method, which has a separate code path."""
        store, name = self._stores[home], step["record"]
        value = self._value(step["value"])
        keys = _keys(name, value)
        expect = await self._expected(store, name, keys, step["expect"], home)
        trial = self.homes[home].copy()
        stored: list[Entry[Any]] = []

        async def call() -> None:
            stored.append(
                await store.put(
                    RECORDS[name],
                    msgspec.convert(value, TYPES[name]),
                    ttl=step["ttl"],
                    expect=expect,
                )
            )

        await agree(
            call,
            lambda: trial.put(name, value, self._now, ttl=step["ttl"], expect=step["expect"]),
            "put",
        )
        if stored:
            await self._commit(home, trial)
            self._same_entry(stored[0], home, name, keys)

    async def do_delete(self, home: str, **step: Any) -> None:
        store, keys, name = self._stores[home], tuple(step["keys"]), step["record"]
        expect = await self._expected(store, name, keys, step["expect"], home)
        trial = self.homes[home].copy()
        fields = _fields(name, keys)
        await agree(
            lambda: store.delete(RECORDS[name], expect=expect, **fields),
            lambda: trial.delete(name, keys, self._now, expect=step["expect"]),
            "delete",
        )
        await self._commit(home, trial)

    async def do_transact(
        self, home: str, catch: bool, steps: list[tuple[str, dict[str, Any]]]
    ) -> None:
        """With `catch`, a rejected step leaves nothing behind, and the others continue."""
        trial = self.homes[home].copy()

        async def work(tx: Transaction) -> None:
            nonlocal trial
            trial = self.homes[home].copy()
            for name, step in steps:
                try:
                    await self._step(tx, trial, name, step)
                except PositionTaken:
                    return  # the commit must lose, and the work run again
                except KeyhouseError:
                    if not catch:
                        raise
            done.append(True)

        done: list[bool] = []
        try:
            await self._stores[home].transact(work)
        except KeyhouseError as error:
            if done:  # else it was a step's, and expected
                same(
                    isinstance(error, CounterError),
                    trial.overflows,
                    f"the commit refused with {error!r}",
                )
            return
        same(bool(done), True, "a position that was taken lost the commit")
        same(trial.overflows, False, "the commit refused")
        await self._commit(home, trial)

    async def _step(self, tx: Transaction, trial: Home, name: str, step: dict[str, Any]) -> None:
        """Run one step in the transaction and in the oracle's copy; raise expected errors."""
        now = self._now
        match name:
            case "put":
                record, value = step["record"], self._value(step["value"])
                expect = await self._expected(tx, record, _keys(record, value), step["expect"])
                struct = msgspec.convert(value, TYPES[record])
                await agree(
                    lambda: tx.put(RECORDS[record], struct, ttl=step["ttl"], expect=expect),
                    lambda: trial.put(record, value, now, ttl=step["ttl"], expect=step["expect"]),
                    "put in a transaction",
                    again=True,
                )
            case "delete":
                record, keys = step["record"], tuple(step["keys"])
                expect = await self._expected(tx, record, keys, step["expect"])
                await agree(
                    lambda: tx.delete(RECORDS[record], expect=expect, **_fields(record, keys)),
                    lambda: trial.delete(record, keys, now, expect=step["expect"]),
                    "delete in a transaction",
                    again=True,
                )
            case "append":
                await self._append_in(tx, trial, **step)
            case "get":
                record, keys = step["record"], tuple(step["keys"])
                entry = await tx.entry(RECORDS[record], **_fields(record, keys))
                stored = trial.find(record, keys, now)
                same(shown(entry), stored and stored.value, f"{record} {keys} in a transaction")
                if entry is not None and (record, keys) in trial.touched:
                    same(entry.revision, 0, "the revision of what is not committed")
            case "lookup":
                record, index = DERIVED[step["by"]]
                found = await tx.lookup(
                    record, index_of(index), **{index.template.fields[-1]: step["value"]}
                )
                same(
                    found and found.values,
                    self._owner(trial, **step),
                    f"lookup {step} in a transaction",
                )
            case "add":
                await agree(
                    lambda: tx.add(HITS, step["by"], name=step["name"]),
                    lambda: trial.add("hits", **step),
                    "add in a transaction",
                    again=True,
                )
            case "set":
                await agree(
                    lambda: _set(tx, step["name"], step["value"]),
                    lambda: trial.set_counter("hits", **step),
                    "set in a transaction",
                    again=True,
                )
            case "counted":
                await agree(
                    lambda: tx.get(HITS, name=step["name"]),
                    lambda: trial.counted("hits", step["name"]),
                    "counter in a transaction",
                    again=True,
                )

    async def do_add(self, home: str, name: str, by: int) -> None:
        trial = self.homes[home].copy()

        await agree(
            lambda: self._stores[home].add(HITS, by, name=name),
            lambda: trial.add("hits", name, by, blind=False),
            "add",
        )
        await self._commit(home, trial)

    async def do_set(self, home: str, name: str, value: int | None) -> None:
        trial = self.homes[home].copy()
        await self._stores[home].transact(lambda tx: _set(tx, name, value))
        trial.set_counter("hits", name, value)
        await self._commit(home, trial)

    async def do_append(self, home: str, **step: Any) -> None:
        await self.do_transact(home, False, [("append", step)])

    async def _append_in(
        self, tx: Transaction, trial: Home, log: str, user: str, item: str, ago: int | None
    ) -> None:
        given: dict[str, Any] = {} if ago is None else {"at": ulid_at(self._now - ago)}
        drawn: list[Any] = [given.get("at")]

        async def call() -> None:
            entry = await tx.append(LOGS[log], Played(item), user=user, **given)
            drawn[0] = entry.values[-1]
            is_new = not given and log != "numbered"
            if is_new and tx.rows.may_assume and trial.find(log, (user, drawn[0]), self._now):
                raise PositionTaken

        def expected() -> None:
            state = trial.find(f"{log}-state", (user,), self._now)
            if not given and state is not None and drawn[0] <= state.value["through"]:
                raise Difference(
                    f"{drawn[0]} was drawn, and is not behind {state.value['through']}"
                )
            number = trial.append(log, user, item, self._now, at=drawn[0])
            if number is not None:
                same(drawn[0], number, "the number of an event")

        await agree(call, expected, "append", again=True)

    async def do_prune(self, home: str, log: str, user: str | None, ago: int, keep: int) -> None:
        trial, before = self.homes[home].copy(), self._now - ago
        narrowed = {} if user is None else {"user": user}
        gone = [
            n
            async for n in prune(
                self._stores[home], LOGS[log], before=before, keep=keep, **narrowed
            )
        ]
        expected = trial.prune(log, STREAMS if user is None else [user], before, keep, self._now)
        same(gone[-1] if gone else 0, expected, "prune")
        self._forget(home, trial)

    async def do_sweep(self, limit: int = 500) -> None:
        bounds = [home.sweep(self._now) for home in self.homes.values()]
        gone = 0
        while swept := await sweep(self._engine, rows_max=limit):
            gone += swept
        if not sum(least for least, _ in bounds) <= gone <= sum(most for _, most in bounds):
            raise Difference(
                f"sweep: answered {gone}, expected {bounds}, as least and most of each home"
            )

    async def do_clock(self, by: int) -> None:
        if by < 0:
            await self.do_sweep()
        self._clock.advance(milliseconds=by)

    async def do_reopen(self) -> None:
        """Reopen the engine; for a volatile one, only create the stores again."""
        self._reopened += 1
        if self._engine.capabilities.durable:
            await self._engine.close()
            self._use(await self._opener(self._clock))
        else:
            self._use(self._engine)

    # Reading

    async def do_get(self, home: str, record: str, keys: list[Any]) -> None:
        fields = _fields(record, tuple(keys))
        entry = await self._stores[home].entry(RECORDS[record], **fields)
        self._same_entry(entry, home, record, tuple(keys))
        alone = await self._stores[home].get(RECORDS[record], **fields)
        same(alone, None if entry is None else entry.record, "get")

    async def do_lookup(self, home: str, by: str, value: Any) -> None:
        record, index = DERIVED[by]
        found = await self._stores[home].lookup(
            record, index_of(index), **{index.template.fields[-1]: value}
        )
        owner = self._owner(self.homes[home], by, value)
        same(found and found.values, owner, f"lookup {by} {value!r}")
        if found is not None and owner is not None:
            self._same_entry(found, home, record.name, owner)

    def _owner(self, home: Home, by: str, value: Any) -> Keys | None:
        wanted = folded(value) if by in FOLDED else value
        return next(
            (row.owner for row in home.listed(by, self._now) if row.fields == (wanted,)), None
        )

    async def do_members(self, home: str, of: str, value: Any) -> None:
        summary = SUMMARIES[of]
        found = await self._stores[home].members(summary, **{summary.template.fields[-1]: value})
        shown = f"{value:03d}" if of == "rank" else value
        row = self.homes[home].members(self._now).get(f"m:{of}:{shown}", {summary.under: {}})
        listed = row[summary.under]
        same(
            found,
            listed if isinstance(listed, dict) else dict.fromkeys(listed),
            f"members {of} {value!r}",
        )

    async def do_total(self, home: str, of: str, value: Any) -> None:
        count = COUNTS[of]
        found = await self._stores[home].record_count(count, **{count.template.fields[-1]: value})
        key = f"n:{of}:{folded(value) if of == 'tag' else value}"
        same(found, self.homes[home].counts(self._now).get(key, 0), f"total {of} {value!r}")

    async def do_counted(self, home: str, name: str) -> None:
        found = await self._stores[home].get(HITS, name=name)
        same(found, self.homes[home].counters.get(("hits", name), 0), f"counter {name}")

    async def do_page(self, **scan: Any) -> None:
        await self._scans.page(**scan)

    async def do_more(self, **slot: Any) -> None:
        await self._scans.more(**slot)

    async def do_keys(self, **scan: Any) -> None:
        await self._scans.keys(**scan)

    # The whole content

    async def check(self) -> None:
        """Check that the live rows are exactly the expected ones."""
        page = await self._engine.scan(SPACE, Span(), limit=PAGE_ROWS_MAX)
        same(page.more, False, "more rows than one page")
        found: dict[str, tuple[Any, int | None]] = {}
        for row in page.rows:
            value, key = json.loads(row.value), row.key.partition("/")[2]
            if value == 0 and key.startswith(("n:", "c:", "total:", "number:")):
                continue
            found[row.key] = (ordered(value) if key.startswith("m:") else value, row.expires)
        expected = {
            f"{h}/{key}": row
            for h, home in self.homes.items()
            for key, row in home.rows(self._now).items()
        }
        wrong = {
            key: (found.get(key), expected.get(key))
            for key in found.keys() | expected.keys()
            if found.get(key) != expected.get(key)
        }
        same(wrong, {}, "the rows, each as (found, expected)")

    async def verify(self) -> None:
        for store in self._stores.values():
            same([finding async for finding in verify(store)], [], "verify")

    async def do_check(self) -> None:
        await self.check()

    async def do_verify(self) -> None:
        await self.verify()

    # Between the two

    def _value(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the value to write now: a number in `until` is relative to the current time."""
        if isinstance(value.get("until"), int):
            return value | {"until": time_text(self._now + value["until"])}
        return value

    async def _expected(
        self, at: Store | Transaction, record: str, keys: Keys, word: str, home: str | None = None
    ) -> int | Unset | None:
        """Return the revision that a word stands for."""
        if not word:
            return ANY
        try:
            entry = await at.entry(RECORDS[record], **_fields(record, keys))
        except KeyhouseError:  # an invalid key: the operation itself raises
            return ANY
        if home is not None:
            self._same_entry(entry, home, record, keys)
        found = None if entry is None else entry.revision
        return found if word == "now" else None if word == "absent" else (found or 0) + 1_000_000

    async def _commit(self, home: str, trial: Home) -> None:
        """Replace the home by the copy. Its rows must have one new revision."""
        touched = trial.touched
        trial.touched, trial.rewritten = set(), set()
        self.homes[home] = trial
        revisions = set()
        for name, keys in touched:
            stored = trial.find(name, keys, self._now)
            if stored is not None:
                entry = await self._stores[home].entry(RECORDS[name], **_fields(name, keys))
                found = 0 if entry is None else entry.revision
                revisions.add(found)
                trial.records[name][keys] = stored._replace(revision=found)
        if revisions:
            same(len(revisions), 1, "revisions of one commit")
            same(min(revisions) > self._newest, True, "the commit's revision is newer")
            self._newest = max(revisions)

    def _forget(self, home: str, trial: Home) -> None:
        """Replace the home by the copy, after several commits."""
        trial.touched = set()
        self.homes[home] = trial

    def _same_entry(self, entry: Entry[Any] | None, home: str, name: str, keys: Keys) -> None:
        stored = self.homes[home].find(name, keys, self._now)
        same(shown(entry), stored and stored.value, f"{name} {keys}")
        if entry is None or stored is None:
            return
        same(entry.expires, stored.expires, f"{name} {keys}, expiry")
        same(entry.values, keys, f"{name} {keys}, key")
        if stored.revision is None:
            self.homes[home].records[name][keys] = Stored(
                stored.value, stored.expires, entry.revision
            )
            self._newest = max(self._newest, entry.revision)
        else:
            same(entry.revision, stored.revision, f"{name} {keys}, revision")


async def _set(tx: Transaction, name: str, value: int | None) -> None:
    if value is None:
        await tx.delete(HITS, name=name)
    else:
        await tx.put(HITS, value, name=name)


def _keys(name: str, value: dict[str, Any]) -> Keys:
    return (value["state"], value["id"]) if name == "task" else (value["id"],)


def _fields(name: str, keys: Keys) -> dict[str, Any]:
    return dict(zip(RECORDS[name].template.fields[1:], keys, strict=True))
