"""A transaction that has ended rejects writes: they would not reach the store."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    Counter,
    Log,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    Transaction,
    open_engine,
    sync,
)
from keyhouse.errors import RevisionError, UsageError
from keyhouse.remote_store import RemoteTransaction


class Clip(Struct, kw_only=True):
    id: str
    title: str = ""


CLIP = Record(Clip, "clip:{id}")
VIEWS = Counter("views:{id}")
PLAYED = Log(Clip, "played:{id}:{at:ulid}", name="played")
BOARD = Schema("clips", CLIP, VIEWS, PLAYED, space=Space("a channel"))

WRITES: dict[str, Callable[[Any], Any]] = {
    "put": lambda tx: tx.put(CLIP, Clip(id="b")),
    "update": lambda tx: tx.update(CLIP, {"title": "b"}, id="a"),
    "delete": lambda tx: tx.delete(CLIP, id="a"),
    "add": lambda tx: tx.add(VIEWS, 1, id="a"),
    "append": lambda tx: tx.append(PLAYED, Clip(id="a")),
    "restore": lambda tx: tx.restore(CLIP, Clip(id="b")),
    "put_document": lambda tx: tx.put_document(CLIP, Clip(id="b"), None),
    "delete_alone": lambda tx: tx.delete_alone(CLIP, id="a"),
}
"""Every verb of a transaction that writes a record."""
READS = {"get", "entry", "get_each", "lookup", "row", "check_links"}
INSIDE = {"apply", "commit", "delete_record", "discard", "merge", "one_write", "operations"}
"""Steps of a write and of a commit."""
OF_JOBS = {"rewrite", "still_listed", "write"}


def test_the_table_has_every_verb_of_a_transaction() -> None:
    for kind in (Transaction, RemoteTransaction, sync.Transaction):
        verbs = {name for name, each in vars(kind).items() if callable(each) and name[0] != "_"}
        assert verbs <= WRITES.keys() | READS | INSIDE | OF_JOBS, kind


@contextmanager
def rejected(verb: str) -> Iterator[None]:
    with pytest.raises(UsageError, match=r"^The transaction has ended"):
        yield
        pytest.fail(f"{verb} was accepted, and would have been lost")


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_write_after_the_end_is_rejected_by_every_verb(is_empty: bool) -> None:
    """A put below the block of `async with store.transaction()`, or on a transaction that the
    function of `transact` had returned, was accepted and lost."""

    async def work(tx: Transaction) -> Transaction:
        if not is_empty:
            await tx.put(CLIP, Clip(id="a"))
        return tx

    async def run() -> None:
        async with open_engine("memory:") as engine:
            store = Store(BOARD, engine, "ann")
            await store.put(CLIP, Clip(id="a"))
            async with store.transaction() as tx:
                await work(tx)
            for ended in (tx, await store.transact(work)):
                for verb, write in WRITES.items():
                    with rejected(verb):
                        await write(ended)
                assert await ended.get(CLIP, id="a") == Clip(id="a")  # reads are harmless
            assert await store.count(CLIP) == 1 and await store.get(VIEWS, id="a") == 0

    asyncio.run(run())


def test_so_it_is_without_an_event_loop() -> None:
    with sync.open_store(BOARD, "memory:", "ann") as store:
        store.put(CLIP, Clip(id="a"))
        with store.transaction() as tx:
            tx.put(CLIP, Clip(id="b"))
        for verb in vars(sync.Transaction).keys() & WRITES.keys():
            with rejected(verb):
                WRITES[verb](tx)


def test_a_remote_transaction_rejects_it_too() -> None:
    async def run() -> None:
        async with RemoteStore(BOARD, "http://127.0.0.1:9", "a.b.c") as store:
            async with store.transaction() as tx:
                pass  # nothing to send
            for verb in ("put", "add", "append"):
                with rejected(verb):
                    await WRITES[verb](tx)

    asyncio.run(run())


@pytest.mark.parametrize("expect", ["1", 1.0, True, (), {"revision": 1}])
def test_a_precondition_of_another_type_is_an_error_of_the_caller(expect: Any) -> None:
    """`expect="1"`, as it comes from a form or a header, was a RevisionError: as if another program
    had changed the record, which a caller tries again."""

    async def run() -> None:
        async with open_engine("memory:") as engine:
            store = Store(BOARD, engine, "ann")
            entry = await store.put(CLIP, Clip(id="a"))
            for verb in ("put", "update", "delete"):
                given = {"put": (Clip(id="a"),), "update": ({"title": "b"},), "delete": ()}[verb]
                fields = {} if verb == "put" else {"id": "a"}
                call = getattr(store, verb)
                if expect != entry.revision:
                    with pytest.raises(UsageError, match="a whole number, or None"):
                        await call(CLIP, *given, expect=expect, **fields)
                with pytest.raises(RevisionError):
                    await call(CLIP, *given, expect=entry.revision + 7, **fields)

    asyncio.run(run())
