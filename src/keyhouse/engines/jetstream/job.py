"""One caller's work, as the messages that do it. Planned against a view of the bucket; nothing here awaits.

Every message carries the sequence that the server must find at its subject, so that what we planned with is what is there
when it is written. A row that is checked and not written has no message of its own: then one of the subject `check` carries
its condition (`Nats-Expected-Last-Subject-Sequence-Subject`), in the same atomic batch. The checked row is not touched.
"""

import asyncio
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from keyhouse.clock import Clock
from keyhouse.counter import sum_of
from keyhouse.engine import Batch, Put
from keyhouse.engines.jetstream.layout import BucketNames, RowKey
from keyhouse.engines.jetstream.message import (
    EXPECTED,
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    FOLLOWING,
    Entry,
    Message,
    delete,
    put,
)
from keyhouse.engines.jetstream.mirror import Expired, Mirror
from keyhouse.errors import CounterError, KeyhouseError, UnreadableError
from keyhouse.limits import BATCH_ID_KEPT_SECONDS

MESSAGES_MAX: Final = 1_000
"""Messages in one atomic batch: the server's limit."""

_NOT_YET: Final = -1
"""The revision of a row that this very group will write: nobody can know it."""

Result = TypeVar("Result")


class CheckFailed(Exception):
    """A check does not hold."""


class ValueNotCached(Exception):
    """A value is needed that has to be fetched first."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


class Applied(msgspec.Struct, frozen=True):
    """The row of a batch id: when it was applied, and how many messages of its commit follow it."""

    at: int
    behind: int

    @classmethod
    def read(cls, subject: str, data: str) -> "Applied":
        """Of a message as the server's API gives it. UnreadableError for what somebody else has written there: nobody knows
        any more whether the batch was applied."""
        try:
            return msgspec.json.decode(b64decode(data), type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UnreadableError(
                "The row of a batch id was not written by Keyhouse; purge its subject, and look who writes there.",
                subject=subject,
            ) from None

    def forgotten(self, now: int) -> bool:
        return self.at <= now - BATCH_ID_KEPT_SECONDS * 1_000


class View:
    """The bucket as a group's next job finds it: the mirror; over it what we have just written and the mirror may not show
    yet (`recent`); and over that what the group's earlier jobs will have written."""

    def __init__(
        self,
        mirror: Mirror,
        recent: Mapping[RowKey, tuple[Entry, bytes]],
        fetched: Mapping[int, bytes],
        names: BucketNames,
        clock: Clock,
    ) -> None:
        self._mirror = mirror
        self._recent = recent
        self._fetched = fetched
        self._written: dict[RowKey, tuple[bytes | None, int | None]] = {}
        self._guarded: set[RowKey] = set()
        self.names = names
        self.clock = clock
        self.now = clock.now()

    @property
    def position(self) -> int:
        return self._mirror.position

    def revision(self, row_key: RowKey) -> int | None:
        """`None`: there is no live row."""
        if row_key in self._written:
            value, expires = self._written[row_key]
            return (
                _NOT_YET if value is not None and (expires is None or expires > self.now) else None
            )
        entry = self._entry(row_key)
        return entry.revision if entry is not None and entry.is_live(self.now) else None

    def counter(self, row_key: RowKey) -> tuple[bytes | None, int | None]:
        """The value and the expiry of a live row; nothing of one that is absent."""
        if self.revision(row_key) is None:
            return None, None
        if row_key in self._written:
            return self._written[row_key]
        entry = self._entry(row_key)
        assert entry is not None
        return self._value(row_key, entry), entry.expires

    def untouched(self, row_key: RowKey) -> bool:
        return row_key not in self._written

    def sequence(self, row_key: RowKey) -> int:
        entry = self._entry(row_key)
        return 0 if entry is None else entry.sequence

    def guard(self, row_key: RowKey) -> dict[str, str]:
        """What a message at the row's subject must expect; nothing where an earlier one of the batch does."""
        if row_key in self._guarded:
            return {}
        self._guarded.add(row_key)
        return {EXPECTED: str(self.sequence(row_key))}

    def write(self, row_key: RowKey, value: bytes | None, expires: int | None) -> Message:
        subject = self.names.row(*row_key)
        message = (
            delete(subject, row_key)
            if value is None
            else put(subject, row_key, value, expires, self.clock)
        )
        message.headers.update(self.guard(row_key))
        self._written[row_key] = (value, expires)
        return message

    def _entry(self, row_key: RowKey) -> Entry | None:
        shown, recent = self._mirror.entry(*row_key), self._recent.get(row_key)
        return (
            shown
            if recent is None or (shown is not None and shown.sequence > recent[0].sequence)
            else recent[0]
        )

    def _value(self, row_key: RowKey, entry: Entry) -> bytes:
        recent = self._recent.get(row_key)
        if recent is not None and recent[0] is entry:
            return recent[1]
        value = self._mirror.values.get(entry.sequence)
        if value is None:
            value = self._fetched.get(entry.sequence)
        if value is None:
            raise ValueNotCached(entry)
        return value


class Job(ABC, Generic[Result]):
    """`messages` are at most how many it takes, `bytes` how large they are."""

    def __init__(self, *, messages: int, bytes: int) -> None:
        self.messages = messages
        self.bytes = bytes
        self.future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def plan(self, view: View) -> list[Message]:
        """What to write. Raises `CheckFailed`, `ValueNotCached` or `CounterError` before it has changed the view."""
        ...

    @abstractmethod
    def row_keys(self) -> list[RowKey]:
        """The rows that it checks or writes."""
        ...

    @abstractmethod
    def _answer(self, sequence: int | None) -> Result: ...

    def settle(self, sequence: int | None) -> None:
        """Its messages are written, the last at `sequence`; or it had none. `None`: a check of it does not hold."""
        if not self.future.done():
            self.future.set_result(self._answer(sequence))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error.copy() if isinstance(error, KeyhouseError) else error)


class CommitJob(Job[int | None]):
    def __init__(self, space: str, batch: Batch) -> None:
        rows = len(batch.puts) + len(batch.deletes) + len(batch.adds)
        size = sum([len(put.value) + len(put.key) for put in batch.puts])
        super().__init__(messages=rows + len(batch.checks) + (batch.id is not None), bytes=size)
        self.space = space
        self.batch = batch
        self.id_sequence = 0
        """Where the server must find the row of its id: it has none, or one that is forgotten."""

    def plan(self, view: View) -> list[Message]:
        for check in self.batch.checks:
            if view.revision(RowKey(self.space, check.key)) != check.revision:
                raise CheckFailed
        puts = [*self.batch.puts, *self._sums(view)]
        if not puts and not self.batch.deletes:
            return []
        messages = self._conditions(view, {put.key for put in puts}.union(self.batch.deletes))
        for each in puts:
            messages.append(view.write(RowKey(self.space, each.key), each.value, each.expires))
        for key in self.batch.deletes:
            messages.append(view.write(RowKey(self.space, key), None, None))
        return self._numbered(view, messages)

    def row_keys(self) -> list[RowKey]:
        keys = [check.key for check in self.batch.checks] + [put.key for put in self.batch.puts]
        keys += [*self.batch.deletes, *(add.key for add in self.batch.adds)]
        return [RowKey(self.space, key) for key in dict.fromkeys(keys)]

    def _answer(self, sequence: int | None) -> int | None:
        return sequence

    def _sums(self, view: View) -> list[Put]:
        sums = []
        for add in self.batch.adds:
            value, expires = view.counter(RowKey(self.space, add.key))
            sums.append(Put(add.key, sum_of(add.key, value, add.by), expires))
        return sums

    def _conditions(self, view: View, written: set[str]) -> list[Message]:
        """For the checks of rows that are not written. Where there are too many, the stream as a whole must be as it was."""
        if self.messages > MESSAGES_MAX:
            return []
        conditions = []
        for check in self.batch.checks:
            row_key = RowKey(self.space, check.key)
            if check.key not in written and (headers := view.guard(row_key)):
                headers[EXPECTED_SUBJECT] = view.names.row(*row_key)
                conditions.append(Message(view.names.check, b"", headers))
        return conditions

    def _numbered(self, view: View, messages: list[Message]) -> list[Message]:
        if self.batch.id is not None:
            applied = msgspec.json.encode(Applied(view.now, len(messages)))
            subject = view.names.id(self.space, self.batch.id)
            messages.insert(0, Message(subject, applied, {EXPECTED: str(self.id_sequence)}))
        if self.messages > MESSAGES_MAX:
            messages[0].headers[EXPECTED_STREAM] = str(view.position)
        return numbered(messages)


class SweepJob(Job[int]):
    """Removes rows of one bucket that have expired, if they are still the same; answers how many."""

    def __init__(self, expired: Sequence[Expired]) -> None:
        super().__init__(messages=len(expired), bytes=0)
        self._expired = expired
        self._count = 0

    def plan(self, view: View) -> list[Message]:
        due = [
            row_key for row_key, sequence in self._expired if self._is_due(view, row_key, sequence)
        ]
        self._count = len(due)
        messages: list[Message] = []
        for space in dict.fromkeys(row_key.space for row_key in due):
            messages += numbered(
                [view.write(row_key, None, None) for row_key in due if row_key.space == space]
            )
        return messages

    def row_keys(self) -> list[RowKey]:
        return [row_key for row_key, _ in self._expired]

    def _answer(self, sequence: int | None) -> int:
        return self._count

    def _is_due(self, view: View, row_key: RowKey, sequence: int) -> bool:
        return view.sequence(row_key) == sequence and view.untouched(row_key)


def numbered(messages: list[Message]) -> list[Message]:
    """As one commit: each says how many follow it."""
    for behind, message in enumerate(reversed(messages)):
        if behind:
            message.headers[FOLLOWING] = str(behind)
    return messages


REFUSALS: Final = (CheckFailed, CounterError)
