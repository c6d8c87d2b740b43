"""A simulated library: several processes with clients that act at random, and every promise of a
store as an invariant.

| promise | checked by |
|---|---|
| compare-and-set, updates and reads of a record are linearizable | the history of each book |
| a record and its derived rows appear together | `verify`, at the end and beside the clients |
| one title, one book | `verify`, and each lookup |
| what has expired is invisible | each list of loans |
| a retry with its batch id applies once | the visits that were folded |
| a watch has no gap | a copy that follows, compared at the end |
| a page covers its span and no more | each walk by an index |
| no space shows in another | ids that name their space |
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from random import Random
from typing import Any

from keyhouse.errors import (
    ContentionError,
    PreparingError,
    RevisionError,
    UnavailableError,
    UniqueError,
    UnknownOutcomeError,
    WatchExpiredError,
)
from keyhouse.remote_store import RemoteStore
from keyhouse.store import Entry, Store, Transaction, migrate, sweep, verify
from keyhouse.testing.linearizability import Recorded, check
from keyhouse.testing.simulation import SimulatedProcess, World
from tests.store.support.planted_bug_checks import (
    BOOK,
    BY_READER,
    BY_SHELF,
    BY_TITLE,
    LIBRARY,
    LOAN,
    MINUTES,
    ON_SHELF,
    PER_SHELF,
    VISIT,
    VISITS,
    Book,
    Loan,
    Visit,
)

SPACES = ("l", "m")
BOOKS, TITLES, SHELVES = 4, 5, ("s", "s:t", "t")
STEPS = 12

REJECTED = (UnavailableError, PreparingError, UniqueError, RevisionError, ContentionError)
"""Nothing is written."""

Value = tuple[str, str, int]


class Client:
    """One client, in one space, with the history of what it saw."""

    def __init__(
        self,
        world: World,
        name: str,
        store: Store | RemoteStore,
        space: str,
        history: list[Recorded],
    ) -> None:
        self.world = world
        self.name = name
        self.space = space
        self.store: Any = store
        self.history = history
        self.visits_started = 0
        self.visits = 0

    async def run(self, name: str) -> None:
        verbs = (
            self.put,
            self.put_expected,
            self.buy_copy,
            self.delete,
            self.get,
            self.look_up,
            self.walk,
            self.lend,
            self.loans,
            self.visit,
            self.members,
        )
        for random in self.world.steps(name, STEPS):
            verb = random.choice(verbs)
            try:
                await verb(random)
            except (*REJECTED, UnknownOutcomeError) as error:
                self.world.note(self.name, f"{verb.__name__}: {type(error).__name__}")
            await asyncio.sleep(random.expovariate(4))

    # Books

    def _id(self, random: Random) -> str:
        return f"{self.space}{random.randrange(BOOKS)}"

    def _book(self, random: Random) -> Book:
        return Book(
            id=self._id(random),
            title=f"t{random.randrange(TITLES)}",
            shelf=random.choice(SHELVES),
            copies=random.randrange(100),
        )

    async def put(self, random: Random) -> None:
        book = self._book(random)
        with Recording(self, book.id, f"put {value_of(book)}") as recording:
            recording.effect = lambda state: value_of(book)
            await self.store.put(BOOK, book)

    async def put_expected(self, random: Random) -> None:
        book = self._book(random)
        entry = await self.store.entry(BOOK, id=book.id)
        await asyncio.sleep(random.uniform(0, 0.1))
        expected = None if entry is None else entry.revision
        before = None if entry is None else value_of(entry.record)
        with Recording(self, book.id, f"put {value_of(book)} over {before}") as recording:
            recording.effect = lambda state: value_of(book) if state == before else IMPOSSIBLE
            await self.store.put(BOOK, book, expect=expected)

    async def buy_copy(self, random: Random) -> None:
        id = self._id(random)

        async def work(tx: Transaction) -> None:
            book = await tx.get(BOOK, id=id)
            recording.effect = lambda state: state if state is None else IMPOSSIBLE
            if book is not None:
                before = value_of(book)
                book.copies += 1
                after = value_of(book)
                recording.text = f"one more copy: {after}"
                recording.effect = lambda state: after if state == before else IMPOSSIBLE
                await tx.put(BOOK, book)

        with Recording(self, id, "no copy of an absent book") as recording:
            await self.store.transact(work)

    async def delete(self, random: Random) -> None:
        id = self._id(random)
        with Recording(self, id, "delete") as recording:
            recording.effect = lambda state: None
            await self.store.delete(BOOK, id=id)

    async def get(self, random: Random) -> None:
        id = self._id(random)
        with Recording(self, id, "get") as recording:
            book = await self.store.get(BOOK, id=id)
            seen = None if book is None else value_of(book)
            recording.text = f"get {seen}"
            recording.effect = lambda state: state if state == seen else IMPOSSIBLE

    async def look_up(self, random: Random) -> None:
        title = f"t{random.randrange(TITLES)}"
        entry = await self.store.lookup(BOOK, BY_TITLE, title=title)
        if entry is not None:
            self.world.check(entry.record.title == title, f"a lookup of {title} shows {entry}")
            self._own(entry)

    async def walk(self, random: Random) -> None:
        shelf = random.choice(SHELVES)
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.store.page(BOOK, by=BY_SHELF, shelf=shelf, limit=2, cursor=cursor)
            for entry in page.entries:
                self._own(entry)
                self.world.check(entry.record.shelf == shelf, f"shelf {shelf} shows {entry}")
                seen.append(entry.record.id)
            cursor = page.cursor
            if cursor is None:
                break
        self.world.check(seen == sorted(set(seen)), f"a walk by shelf shows {seen}")

    async def members(self, random: Random) -> None:
        ids = await self.store.members(ON_SHELF, shelf=random.choice(SHELVES))
        for id in ids:
            self.world.check(id.startswith(self.space), f"{self.space} shows {id}")

    def _own(self, entry: Entry[Any]) -> None:
        self.world.check(entry.record.id.startswith(self.space), f"{self.space} shows {entry}")

    # Loans and visits

    async def lend(self, random: Random) -> None:
        id = f"{self.space}{random.randrange(BOOKS)}"
        await self.store.put(LOAN, Loan(id=id, reader=f"r{random.randrange(2)}"))

    async def loans(self, random: Random) -> None:
        clock = self.world.clock
        called, offset = clock.now(), clock.offset_ms
        by = random.choice((None, BY_READER))
        entries = [entry async for entry in self.store.scan(LOAN, by=by)]
        if offset == clock.offset_ms:
            for entry in entries:
                self.world.check(
                    entry.expires is not None and entry.expires > called,
                    f"an expired loan is listed: {entry}",
                )

    async def visit(self, random: Random) -> None:
        """Add an event until its outcome is known: with a batch id it counts once."""
        batch_id = f"visit-{random.getrandbits(64):x}"
        self.visits_started += 1

        async def work(tx: Transaction) -> None:
            await tx.append(VISIT, Visit(10), door="d")

        while True:
            try:
                await self.store.transact(work, batch_id=batch_id)
            except (UnknownOutcomeError, UnavailableError, PreparingError, ContentionError):
                await asyncio.sleep(1)
                continue
            self.visits += 1
            return


IMPOSSIBLE = object()


def value_of(book: Book) -> Value:
    return book.title, book.shelf, book.copies


class Recording:
    """Adds an operation on one book to the history when it ends.

    `effect` is what it does to the book, or IMPOSSIBLE. An operation that may have been applied has
    no return; one that is known not to have been, or only reads, is left out.
    """

    def __init__(self, client: Client, id: str, text: str) -> None:
        self._client = client
        self._key = f"{client.space}/{id}"
        self._called = client.world.seconds
        self.text = text
        self.effect: Callable[[Any], Any] | None = None

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self.effect is None or isinstance(error, REJECTED):
            return
        key, effect = self._key, self.effect

        def apply(state: Any) -> Any:
            after = effect(state.get(key))
            return None if after is IMPOSSIBLE else {key: after}

        returned = self._client.world.seconds if error is None else None
        text = f"{self._client.name}: {self.text}"
        self._client.history.append(Recorded((key,), self._called, returned, apply, text))


async def follow(client: Client, copy: dict[str, Book]) -> None:
    """Keep a copy of the books by a watch; start again from a page when it has expired."""
    while True:
        try:
            page = await client.store.page(BOOK, limit=100)
            copy.clear()
            copy.update({entry.key: entry.record for entry in page.entries})
            async with aclosing(client.store.watch(BOOK, since=page.revision)) as changes:
                async for change in changes:
                    if change.record is None:
                        copy.pop(change.key, None)
                    else:
                        copy[change.key] = change.record
        except (UnavailableError, PreparingError, WatchExpiredError):
            await asyncio.sleep(1)


async def library(world: World) -> None:
    """Run clients in three processes, some of which are killed and started again; then let
    everything settle, and compare."""
    history: list[Recorded] = []
    clients: list[Client] = []
    copies: dict[str, dict[str, Book]] = {}

    async def live(name: str, space: str) -> None:
        for life in range(3):
            process = world.process(name)
            client = Client(world, name, Store(LIBRARY, process.engine, space), space, history)
            clients.append(client)
            copies[name] = {}
            process.spawn(follow(client, copies[name]))
            process.spawn(sweep_now_and_then(world, process))
            working = [process.spawn(client.run(f"{name}.{life}.{at}")) for at in range(2)]
            await asyncio.wait(working)
            if process.is_alive:
                return
            await asyncio.sleep(1)

    for space in SPACES:
        await migrate(Store(LIBRARY, world.server.rows, space))
    places = [("p1", "l"), ("p2", "l"), ("p3", "m")]
    async with asyncio.TaskGroup() as living:
        for name, space in places:
            living.create_task(live(name, space))
    await world.settle(200)  # every loan has expired, though the clock was set back over it
    for name, space in places:
        await compare(world, space, copies[name] if world.processes[name].is_alive else None)
    for space in SPACES:
        of_space = [client for client in clients if client.space == space]
        await compare_visits(world, space, of_space)
    world.note("checker", f"{len(history)} operations on books")
    verdict = check(history)
    world.check(verdict.is_linearizable, f"{verdict}")


async def sweep_now_and_then(world: World, process: SimulatedProcess) -> None:
    while True:
        await asyncio.sleep(20)
        with suppress(UnavailableError, UnknownOutcomeError):
            await sweep(process.engine)


async def compare(world: World, space: str, copy: dict[str, Book] | None) -> None:
    """Compare what is derived with the records of a space, and a follower's copy with both."""
    store = Store(LIBRARY, world.process("checker").engine, space)
    findings = [f"{each.kind} {each.key}" async for each in verify(store)]
    world.check(not findings, f"verify of {space}: {findings}")
    books = {entry.key: entry.record async for entry in store.scan(BOOK)}
    world.check(copy is None or copy == books, f"a follower of {space} has {copy}, not {books}")
    for shelf in SHELVES:
        ids = sorted(book.id for book in books.values() if book.shelf == shelf)
        listed = [entry.record.id async for entry in store.scan(BOOK, by=BY_SHELF, shelf=shelf)]
        counted = await store.record_count(PER_SHELF, shelf=shelf)
        members = sorted(await store.members(ON_SHELF, shelf=shelf))
        world.check(
            (listed, counted, members) == (ids, len(ids), ids),
            f"shelf {shelf} has {ids}: listed {listed}, counted {counted}, members {members}",
        )


async def compare_visits(world: World, space: str, clients: list[Client]) -> None:
    store = Store(LIBRARY, world.server.rows, space)
    state, minutes = await store.get(VISITS, door="d"), await store.get(MINUTES)
    count = 0 if state is None else state.count
    started = sum(client.visits_started for client in clients)
    acknowledged = sum(client.visits for client in clients)
    world.check(
        acknowledged <= count <= started,
        f"{count} visits are counted, {started} were started, {acknowledged} acknowledged",
    )
    world.check(minutes == 10 * count, f"{count} visits of 10 minutes are {minutes} minutes")
