"""Stores, transactions and engines for programs without an event loop.

Each verb has the name, the arguments, the result and the errors of the asynchronous one, which its
docstring describes. Any thread may call it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from keyhouse import engine as contract
from keyhouse.clock import Clock, IdSource
from keyhouse.engines import registry
from keyhouse.errors import UsageError
from keyhouse.keyring import KeyRing
from keyhouse.limits import OPEN_WAIT_SECONDS
from keyhouse.opening import open_store as open_async_store
from keyhouse.remote_store import RemoteStore as AsyncRemoteStore
from keyhouse.schema import Schema
from keyhouse.store import Store as AsyncStore
from keyhouse.store import Transaction as AsyncTransaction
from keyhouse.sync.blocking import blocking, blocking_iterator
from keyhouse.sync.loop import run, run_with_calls

__all__ = ["Engine", "RemoteStore", "Store", "Transaction", "open_engine", "open_store"]

R = TypeVar("R")
E = TypeVar("E")


class _Closing(ABC):
    """Closes itself at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class Engine(_Closing):
    """An open engine, for `open_store`. Close it, or use it with `with`."""

    def __init__(self, engine: contract.Engine) -> None:
        self.wrapped = engine

    def close(self) -> None:
        """Close the engine."""
        run(self.wrapped.close())


class Transaction:
    """Reads and buffered writes of one space, committed together. See `keyhouse.Transaction`."""

    def __init__(self, transaction: AsyncTransaction) -> None:
        self.wrapped = transaction

    get = blocking(AsyncTransaction.get)
    entry = blocking(AsyncTransaction.entry)
    lookup = blocking(AsyncTransaction.lookup)
    put = blocking(AsyncTransaction.put)
    update = blocking(AsyncTransaction.update)
    delete = blocking(AsyncTransaction.delete)
    add = blocking(AsyncTransaction.add)
    append = blocking(AsyncTransaction.append)
    restore = blocking(AsyncTransaction.restore)
    rewrite = blocking(AsyncTransaction.rewrite)

    @property
    def now(self) -> int:
        """The time of the transaction, in the clock's milliseconds."""
        return self.wrapped.now


class Store(_Closing):
    """A schema on an engine, bound to one space. See `keyhouse.Store`.

    Use it with `with`, which closes the engine if `open_store` has opened it.
    """

    def __init__(self, store: Any) -> None:
        if not hasattr(store, "transact"):
            raise UsageError("Open a store with `keyhouse.sync.open_store`.", given=store)
        self.wrapped = store

    # Reading

    get = blocking(AsyncStore.get)
    get_many = blocking(AsyncStore.get_many)
    entries = blocking(AsyncStore.entries)
    entry = blocking(AsyncStore.entry)
    lookup = blocking(AsyncStore.lookup)
    members = blocking(AsyncStore.members)
    record_count = blocking(AsyncStore.record_count)
    sum_of_days = blocking(AsyncStore.sum_of_days)
    page = blocking(AsyncStore.page)
    scan = blocking_iterator(AsyncStore.scan)
    keys = blocking(AsyncStore.keys)
    count = blocking(AsyncStore.count)
    watch = blocking_iterator(AsyncStore.watch, chunk_max=1)

    # Writing

    put = blocking(AsyncStore.put)
    put_many = blocking(AsyncStore.put_many)
    update = blocking(AsyncStore.update)
    delete = blocking(AsyncStore.delete)
    add = blocking(AsyncStore.add)
    append = blocking(AsyncStore.append)
    clear = blocking(AsyncStore.clear)
    call = blocking(AsyncStore.call)
    forget = blocking(AsyncStore.forget)

    def transact(self, work: Callable[[Transaction], R], *, batch_id: str | None = None) -> R:
        """Run `work` in a transaction and commit it; run it again from the start when it loses a
        race.

        `work` is a plain function, and runs in this thread. It must only read and write through the
        transaction.
        """
        if not callable(work):
            raise UsageError("A transaction runs a function of one argument.", given=work)

        async def transact(call: Callable[..., Any]) -> Any:
            return await self.wrapped.transact(
                lambda tx: call(_worked, work, tx), batch_id=batch_id
            )

        result: R = run_with_calls(transact)
        return result

    @contextmanager
    def transaction(self, *, batch_id: str | None = None) -> Iterator[Transaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        opened = self.wrapped.transaction(batch_id=batch_id)
        transaction = run(opened.__aenter__())
        try:
            yield Transaction(transaction)
        except BaseException as error:
            if not run(opened.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            run(opened.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the engine, if the store was opened with its URL; else do nothing."""
        run(self.wrapped.close())


class RemoteStore(Store):
    """A schema that a service keeps. See `keyhouse.RemoteStore`."""

    def __init__(
        self, schema: Schema, url: str, token: str | None = None, *, space: str | None = None
    ) -> None:
        super().__init__(AsyncRemoteStore(schema, url, token, space=space))


def _worked(work: Callable[[Transaction], R], tx: AsyncTransaction) -> R:
    result = work(Transaction(tx))
    if hasattr(result, "__await__"):
        if hasattr(result, "close"):
            result.close()
        raise UsageError("A transaction of keyhouse.sync runs a plain function, not an async one.")
    return result


def open_engine(url: str, *, clock: Clock | None = None, create: bool = True) -> Engine:
    """Open the engine that `url` names. See `keyhouse.open_engine`."""

    async def opened() -> contract.Engine:
        return await registry.open_engine(url, clock=clock, create=create)

    return Engine(run(opened()))


def open_store(
    schema: Schema,
    engine: str | Engine,
    space: str,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    key_ring: KeyRing | None = None,
    reindex: bool = False,
    wait_seconds: float = OPEN_WAIT_SECONDS,
    **fixed: str,
) -> Store:
    """Open a store at the version of its schema, migrating it if it is older. See
    `keyhouse.open_store`.

    `engine` is a URL, or what `keyhouse.sync.open_engine` returns.
    """
    if not isinstance(engine, (str, Engine)):
        raise UsageError(
            "Give a URL, or an engine that `keyhouse.sync.open_engine` has opened.", given=engine
        )

    async def opened() -> AsyncStore:
        return await open_async_store(
            schema,
            engine if isinstance(engine, str) else engine.wrapped,
            space,
            clock=clock,
            ids=ids,
            key_ring=key_ring,
            reindex=reindex,
            wait_seconds=wait_seconds,
            **fixed,
        )

    return Store(run(opened()))
