"""What waits for its turn to write in a space, and how it is decided against the state that a plan has come to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from keyhouse.engine import Batch
from keyhouse.errors import KeyhouseError

Answer = TypeVar("Answer")


class Job(Generic[Answer]):
    """Something that is answered once. `failure` and `answer` are set by a plan; nobody hears of them before `settle`."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answer: Answer | None = None
        self.failure: KeyhouseError | None = None

    def settle(self, failure: BaseException | None = None) -> None:
        if self.future.done():
            return
        if failure is None:
            failure = self.failure
        if failure is None:
            self.future.set_result(self.answer)  # type: ignore[arg-type]
        else:
            self.future.set_exception(failure)


class Commit(Job[int | None]):
    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch
        self.written = {*(put.key for put in batch.puts), *batch.deletes, *(add.key for add in batch.adds)}
        self.touched = self.written | {check.key for check in batch.checks}

    def reads(self, careful: bool) -> set[str]:
        """The keys whose rows must be known: those that are added to, and when careful also those that are checked."""
        added = {add.key for add in self.batch.adds}
        return added | {check.key for check in self.batch.checks} if careful else added


class Removal(Job[int]):
    """Of rows that have expired, if they still are there and have: the answer is how many were."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self.keys = keys
        self.touched = set(keys)

    def reads(self, careful: bool) -> set[str]:
        return self.touched


class Alone(Job[Any]):
    """Any work during which this engine writes nothing in the space."""

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.work = work
