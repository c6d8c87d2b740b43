"""Functions on a whole store or engine, for programs without an event loop."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from keyhouse import store as asynchronous
from keyhouse.errors import UsageError
from keyhouse.schema import JobState, Log, Record
from keyhouse.store import Entry, Finding, MigrationResult
from keyhouse.sync.blocking import items
from keyhouse.sync.loop import run, run_with_calls
from keyhouse.sync.store import Engine, Store, Transaction

__all__ = ["fold", "migrate", "prune", "run_job", "sweep", "verify"]

T = TypeVar("T")


def fold(store: Store, log: Log[Any], /, **named: Any) -> int:
    """Fold the pending events of a log. See `keyhouse.fold`."""
    return run(asynchronous.fold(_wrapped(store), log, **named))


def prune(
    store: Store, log: Log[Any], /, *, before: int, keep: int = 0, **fields: Any
) -> Iterator[int]:
    """Delete old events of a log, and yield their number so far. See `keyhouse.prune`."""
    return items(asynchronous.prune(_wrapped(store), log, before=before, keep=keep, **fields))


def migrate(store: Store, **named: Any) -> list[MigrationResult]:
    """Apply the pending migrations of the space. See `keyhouse.migrate`."""
    return run(asynchronous.migrate(_wrapped(store), **named))


def sweep(engine: Engine, **named: Any) -> int:
    """Delete expired rows of an engine. See `keyhouse.sweep`."""
    if not isinstance(engine, Engine):
        raise UsageError("Open the engine with `keyhouse.sync.open_engine`.", given=engine)
    return run(asynchronous.sweep(engine.wrapped, **named))


def verify(store: Store, **named: Any) -> Iterator[Finding]:
    """Compare the rows of a space with its records. See `keyhouse.verify`."""
    return items(asynchronous.verify(_wrapped(store), **named))


def run_job(
    store: Store,
    name: str,
    over: Record[T],
    step: Callable[[Transaction, Entry[T]], None],
    **named: Any,
) -> JobState | None:
    """Run `step(tx, entry)` for every record, in commits that are checkpoints. See
    `keyhouse.run_job`.

    `step` is a plain function, and runs in this thread.
    """

    async def job(call: Callable[..., Any]) -> JobState | None:
        async def stepped(tx: Any, entry: Entry[T]) -> None:
            await call(step, Transaction(tx), entry)

        return await asynchronous.run_job(_wrapped(store), name, over, stepped, **named)

    return run_with_calls(job)


def _wrapped(store: Store) -> Any:
    if not isinstance(store, Store):
        raise UsageError("Open the store with `keyhouse.sync.open_store`.", given=store)
    return store.wrapped
