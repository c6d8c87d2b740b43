"""What waits for its turn to write in a space, and how it is decided against the state that a plan has come to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from keyhouse.engine import Batch
from keyhouse.errors import KeyhouseError

Answer = TypeVar("Answer")


class Job(Generic[Answer]):
    """Something that is answered once. `failure` and `answer` are set by a plan; nobody hears of them before `settle`.

    `together`: it must be decided on what stands together at one moment, and goes alone.
    """

    def __init__(self) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answer: Answer | None = None
        self.failure: KeyhouseError | None = None
        self.together = False

    def settle(self, failure: BaseException | None = None) -> None:
        if self.future.done():
            return
        if failure is None:
            failure = self.failure
        if failure is None:
            self.future.set_result(self.answer)  # type: ignore[arg-type]
        else:
            self.future.set_exception(
                failure.copy() if isinstance(failure, KeyhouseError) else failure
            )


class Commit(Job[int | None]):
    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch
        self.added = {add.key for add in batch.adds}
        self.checked = {check.key for check in batch.checks}
        self.touched = (
            self.added | self.checked | {put.key for put in batch.puts} | set(batch.deletes)
        )

    def reads(self, careful: bool) -> set[str]:
        """The keys whose rows must be known: those that are added to; then, or when careful, those that are checked too."""
        return self.added | self.checked if careful or self.added else self.added

    @property
    def is_doubtful(self) -> bool:
        """Decided on rows of several moments, it might be another answer at each of them: a lost check may be due to this
        very batch, sent twice; a counter that can't be added to may come with a check that is lost."""
        if self.failure is not None:
            return bool(self.checked) or self.batch.id is not None
        return self.answer is None and self.batch.id is not None


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
