"""Key fields without their names: every verb of every store says how to write the call."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import (
    Index,
    Record,
    RemoteStore,
    Schema,
    Space,
    Store,
    Transaction,
    open_engine,
    sync,
)
from keyhouse.errors import KeyFieldError, RecordError, UsageError
from keyhouse.remote_store import RemoteTransaction
from keyhouse.store.writes.transaction import Transaction as StoreTransaction


class Clip(Struct):
    id: str
    title: str = ""


BY_TITLE = Index("title:{title:norm}:{id}")
CLIP = Record(Clip, "clip:{id}", BY_TITLE)
BOARD = Schema("clips", CLIP, space=Space("a channel"))

INTERNAL = {"record_row", "record_rows", "record_changes", "span", "put_document", "delete_alone"}
"""Verbs for the package's own use."""

KINDS: list[type] = [
    *(Store, Transaction, RemoteStore, RemoteTransaction),
    *(sync.Store, sync.Transaction, sync.RemoteStore),
]


def verbs() -> Iterator[Any]:
    """Return every verb that takes key fields."""
    for kind in KINDS:
        for name, function in inspect.getmembers(kind, callable):
            if name.startswith("_") or name in INTERNAL:
                continue
            parameters = inspect.signature(function).parameters
            if any(
                each.kind is each.VAR_KEYWORD and each.name == "fields"
                for each in parameters.values()
            ):
                places = [
                    each.name
                    for each in parameters.values()
                    if each.kind is each.POSITIONAL_ONLY and each.name != "self"
                ]
                yield pytest.param(
                    kind, name, places, id=f"{kind.__module__}.{kind.__name__}.{name}"
                )


async def finished(result: Any) -> None:
    if hasattr(result, "__aiter__"):
        async for _ in result:
            raise AssertionError("it was accepted")
    elif inspect.isawaitable(result):
        await result
    else:
        list(result)


@pytest.mark.parametrize(("kind", "verb", "places"), [*verbs()])
def test_an_error_names_the_fields_that_were_given_without_names(
    kind: Any, verb: str, places: list[str]
) -> None:
    """`store.get(CLIP, "a")` was "RecordReads.get() takes 2 positional arguments but 3 were given":
    an inner class, and no advice."""
    values = {"by": BY_TITLE, "value": Clip("a"), "patch": {}, "event": Clip("a"), "days": 1}
    given = [values.get(name, CLIP) for name in places]
    if verb in ("add", "restore"):
        given[1:] = [1] if verb == "add" else [Clip("a"), *given[2:]]
    store = kind.__new__(kind)  # the call is rejected before anything of the store is used
    if kind.__module__.startswith("keyhouse.sync"):
        inner: Any = {sync.Store: Store, sync.Transaction: StoreTransaction}.get(kind, RemoteStore)
        store.wrapped = inner.__new__(inner)
    with pytest.raises(UsageError, match=r"^Fields go by name: (title=…, )?id=…\.") as rejected:
        asyncio.run(finished(getattr(store, verb)(*given, "goal")))
    assert rejected.value.fields == {"given": "goal"}


def test_an_unknown_field_beside_a_missing_one_is_named() -> None:
    async def run() -> None:
        store = Store(BOARD, await open_engine("memory:"), "a")
        with pytest.raises(KeyFieldError) as rejected:
            await store.get(CLIP, key="a")
        fields = rejected.value.public().fields
        assert fields == {"field": "id", "unknown": ["key"], "known": ["id"]}
        with pytest.raises(RecordError, match=r"record's type: pass Clip\(…\)\.") as wrong:
            value: Any = {"id": "a"}
            await store.put(CLIP, value)
        assert wrong.value.fields == {"record": "clip", "found": "dict"}

    asyncio.run(run())


def test_with_in_place_of_async_with_names_both_ways_to_open() -> None:
    """It was "'Opening' object does not support the context manager protocol", and a warning that
    a coroutine was never awaited."""
    opening: Any = open_engine("memory:")
    with pytest.raises(TypeError, match=r"`async with`.*`keyhouse\.sync`"), opening:
        pass
