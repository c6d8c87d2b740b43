"""The synchronous façade: the verbs of a store without an event loop, from any thread."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import keyhouse
from keyhouse import (
    Counter,
    Index,
    Log,
    ManualClock,
    Meta,
    Record,
    Schema,
    Space,
    Unique,
    per_write,
    sync,
)
from keyhouse.errors import (
    ClosedError,
    ContentionError,
    NotFoundError,
    UniqueError,
    UnreadableError,
    UsageError,
)
from keyhouse.sync import loop
from keyhouse.sync.store import Store
from tests.support.program import run


class Clip(Struct, kw_only=True):
    id: str
    title: str
    tags: list[str] = []


class Play(Struct, kw_only=True):
    clip: str


BY_TAG = Index("tag:{tag}:{id}", each={"tag": "tags"})
ONE_TITLE = Unique("title:{title:norm}", value="id")
CLIP = Record(Clip, "clip:{id}", BY_TAG, ONE_TITLE)
LOCK = Record(str, "lock:{name}", name="lock", expiry=per_write())
VIEWS = Counter("views:{id}")
PLAY = Log(Play, "play:{clip}:{at:ulid}")
CLIPS = Schema("clips", CLIP, LOCK, VIEWS, PLAY, meta=Meta(), space=Space("a channel"))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/clips.db"
    with sync.open_store(CLIPS, url, "mine") as opened:
        yield opened


def test_the_verbs_of_a_store(store: Store) -> None:
    entry = store.put(CLIP, Clip(id="a", title="Goal", tags=["x"]))
    assert store.get(CLIP, **entry.fields) == entry.record
    store.put_many(CLIP, [Clip(id=id, title=id, tags=["x"]) for id in "bc"])
    assert store.update(CLIP, {"title": "Own goal"}, id="a").record.title == "Own goal"
    assert [each.record.id for each in store.scan(CLIP, by=BY_TAG, tag="x")] == ["a", "b", "c"]
    assert [each.key for each in store.page(CLIP, limit=2).entries] == ["clip:a", "clip:b"]
    found = store.lookup(CLIP, ONE_TITLE, title="own GOAL")
    assert found is not None and found.key == "clip:a"
    store.add(VIEWS, 2, id="a")
    assert store.get(VIEWS, id="a") == 2 and store.count(CLIP) == 3
    with pytest.raises(UniqueError):
        store.put(CLIP, Clip(id="d", title="b"))
    with pytest.raises(NotFoundError):
        store.update(CLIP, {"title": "x"}, id="none")
    store.append(PLAY, Play(clip="a"))
    assert store.count(PLAY) == 1 and list(sync.verify(store)) == []
    assert store.delete(CLIP, id="a") and not store.delete(CLIP, id="a")
    assert store.clear() == 4


def test_a_scan_reads_every_record_in_order(store: Store) -> None:
    store.put_many(CLIP, [Clip(id=f"{n:04}", title=str(n)) for n in range(700)])
    assert [entry.record.title for entry in store.scan(CLIP)] == [str(n) for n in range(700)]
    first = store.scan(CLIP)
    assert next(first).record.id == "0000"
    first.close()  # type: ignore[attr-defined]  # it is a generator
    del first
    assert [entry.record.id for entry in store.scan(CLIP, limit=2, reverse=True)] == [
        "0699",
        "0698",
    ]


def test_an_unreadable_row_raises_as_in_the_asynchronous_store() -> None:
    wide: Record[Any] = Record(Any, "n:{id}", name="wide")
    narrow = Record(int, "n:{id}", name="narrow")
    seen: list[int] = []
    with sync.open_engine("memory:") as engine:
        written = sync.open_store(Schema("wide", wide, space=Space("x")), engine, "mine")
        for id, value in (("a", 1), ("b", 2), ("c", "three")):
            written.put(wide, value, id=id)
        read = sync.open_store(Schema("narrow", narrow, space=Space("x")), engine, "mine")
        with pytest.raises(UnreadableError):
            for entry in read.scan(narrow):
                seen.append(entry.record)
    assert seen == []  # all rows of one page are decoded before the first is yielded


def test_the_work_of_a_transaction_runs_in_the_thread_of_the_caller(store: Store) -> None:
    threads = []

    def work(tx: sync.Transaction) -> int:
        threads.append(threading.current_thread())
        found = tx.get(VIEWS, id="a")
        assert found is not None
        tx.put(VIEWS, found + 1, id="a")
        return found + 1

    assert store.transact(work) == 1
    assert threads == [threading.current_thread()]


def test_transactions_of_many_threads_lose_nothing(store: Store) -> None:
    def work(tx: sync.Transaction) -> None:
        found = tx.get(VIEWS, id="a")
        assert found is not None
        tx.put(VIEWS, found + 1, id="a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.transact(work), range(64)))
        list(pool.map(lambda _: store.add(VIEWS, 1, id="a"), range(64)))
    assert store.get(VIEWS, id="a") == 128


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration, KeyboardInterrupt, Stopped])
def test_work_that_raises_writes_nothing(store: Store, error: type[BaseException]) -> None:
    def work(tx: sync.Transaction) -> None:
        tx.put(CLIP, Clip(id="a", title="a"))
        raise error

    with pytest.raises(error):
        store.transact(work)
    with pytest.raises((error, RuntimeError)), store.transaction() as tx:
        tx.put(CLIP, Clip(id="a", title="a"))
        raise error
    assert store.count(CLIP) == 0


def test_a_transaction_as_a_block(store: Store) -> None:
    with store.transaction() as tx:
        tx.put(CLIP, Clip(id="a", title="a"))
        tx.add(VIEWS, 1, id="a")
    assert store.get(VIEWS, id="a") == 1
    with pytest.raises(ContentionError), store.transaction() as tx:
        tx.update(CLIP, {"title": "b"}, id="a")
        store.update(CLIP, {"title": "c"}, id="a")


def test_async_work_is_named(store: Store) -> None:
    async def work(tx: sync.Transaction) -> None: ...

    with pytest.raises(UsageError, match="plain function"):
        _ = store.transact(work)
    junk: object = 3
    with pytest.raises(UsageError, match="function of one argument"):
        store.transact(junk)  # type: ignore[arg-type]


def test_a_watch_yields_each_change_at_once(store: Store) -> None:
    before = store.put(CLIP, Clip(id="a", title="a")).revision
    changes = store.watch(CLIP, since=before)
    store.put(CLIP, Clip(id="b", title="b"))
    event = next(changes)
    assert event.fields == {"id": "b"} and not event.gone
    store.delete(CLIP, id="b")
    assert next(changes).gone


def test_a_job_calls_a_plain_function(store: Store) -> None:
    store.put_many(CLIP, [Clip(id=id, title=id) for id in "abc"])

    def step(tx: sync.Transaction, entry: keyhouse.Entry[Clip]) -> None:
        tx.update(CLIP, {"tags": ["new"]}, **entry.fields)

    state = sync.run_job(store, "tag", CLIP, step)
    assert state is not None and state.done == 3
    assert len(list(store.scan(CLIP, by=BY_TAG, tag="new"))) == 3


def test_a_program_with_an_event_loop_may_call_it_too(store: Store) -> None:
    """As a notebook does: its cells run inside a loop."""

    async def cell() -> Clip | None:
        store.put(CLIP, Clip(id="a", title="a"))
        return store.get(CLIP, id="a")

    assert asyncio.run(cell()) == Clip(id="a", title="a")


def test_the_loop_itself_may_not_wait_for_itself(store: Store) -> None:
    async def work(tx: object) -> None:
        store.get(CLIP, id="a")

    with pytest.raises(UsageError, match="asynchronous names"):
        loop.run(store.wrapped.transact(work))


def test_engines_are_shared_and_closed(tmp_path: Path) -> None:
    with sync.open_engine(f"sqlite:{tmp_path}/x.db", clock=ManualClock()) as engine:
        with sync.open_store(CLIPS, engine, "a") as one:
            one.put(LOCK, "x", name="x", ttl=5)
        two = sync.open_store(CLIPS, engine, "b")
        assert one.get(LOCK, name="x") == "x" and two.get(LOCK, name="x") is None
        assert sync.sweep(engine) == 0
    with pytest.raises(ClosedError):
        two.get(LOCK, name="x")
    with pytest.raises(UsageError, match=r"keyhouse\.sync\.open_engine"):
        sync.open_store(CLIPS, object(), "a")  # type: ignore[arg-type]


PROGRAM = """
import os
from keyhouse import Record, Schema, Space, sync

NOTE = Record(str, "note:{id}", name="note")
NOTES = Schema("notes", NOTE, space=Space("a desk"))
store = sync.open_store(NOTES, "sqlite:notes.db", "mine")
store.put(NOTE, "x", id="a")
store.close()
child = os.fork()
if child == 0:
    with sync.open_store(NOTES, "sqlite:notes.db", "mine") as store:
        store.put(NOTE, "y", id="b")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
left_open = sync.open_store(NOTES, "sqlite:notes.db", "mine")
print([entry.record for entry in left_open.scan(NOTE)])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_process_has_another_loop_and_a_script_ends(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(PROGRAM)
    assert run(program=("notes.py",), cwd=tmp_path).stdout == "['x', 'y']\n"
