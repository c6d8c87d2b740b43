"""One caller's write as the messages that apply it, planned on an overlay of the bucket. No awaits.

Every message carries the sequence that the server must find at its subject, so that a write takes
effect only on the state it was planned on. A row that is checked and not written has no message of
its own: a message of the subject `check` carries its condition
(`Nats-Expected-Last-Subject-Sequence-Subject`) in the same atomic batch. The checked row is not
touched.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Check
from keyhouse.engines.batch_plan import Writes, evaluate, ids_expired_at
from keyhouse.engines.commit_queue import PendingCommit, PendingWrite
from keyhouse.engines.jetstream.layout import BucketNames, RowKey
from keyhouse.engines.jetstream.message import (
    EXPECTED,
    EXPECTED_STREAM,
    EXPECTED_SUBJECT,
    FOLLOWING,
    MESSAGES_MAX,
    Entry,
    Message,
    delete,
    put,
)
from keyhouse.engines.jetstream.mirror import Expired, Mirror
from keyhouse.errors import CounterError, UnreadableError

_UNASSIGNED: Final = -1
"""The revision of a row that the group itself writes: no check can expect it."""


class CheckFailed(Exception):
    """A check of the batch does not hold."""


class ValueNotCached(Exception):
    """Planning needs a value that has to be fetched first."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


class Applied(msgspec.Struct, frozen=True):
    """The row of a batch id: its time, and the number of messages of its commit that follow it."""

    at: int
    following: int = msgspec.field(name="behind")

    @classmethod
    def read(cls, subject: str, data: str) -> "Applied":
        """Decode a message as the server's API returns it.

        Raises UnreadableError for a message of another program: it is no longer known whether the
        batch was applied.
        """
        try:
            return msgspec.json.decode(b64decode(data), type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UnreadableError(
                "The row of a batch id was not written by Keyhouse;"
                " purge its subject, and find out which program writes there.",
                subject=subject,
            ) from None

    def expired(self, now: int) -> bool:
        return self.at <= ids_expired_at(now)


class Overlay:
    """The bucket as the next write of a group finds it, in three layers.

    The mirror; over it `recent`, the rows this process has just written and the mirror may not show
    yet; over that the rows that earlier writes of the group will have written.
    """

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
    def revision(self) -> int:
        return self._mirror.position

    def applied(self, space: str, batch_id: str) -> int | None:
        """The writer has settled the batches that it knows were applied."""
        return None

    def holds(self, space: str, check: Check) -> bool:
        return self._live(RowKey(space, check.key)) == check.revision

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        row_key = RowKey(space, key)
        if self._live(row_key) is None:
            return None, None
        if row_key in self._written:
            return self._written[row_key]
        entry = self._entry(row_key)
        assert entry is not None
        return self._value(row_key, entry), entry.expires

    def is_unwritten(self, row_key: RowKey) -> bool:
        return row_key not in self._written

    def sequence(self, row_key: RowKey) -> int:
        entry = self._entry(row_key)
        return 0 if entry is None else entry.sequence

    def guard(self, row_key: RowKey) -> dict[str, str]:
        """Return the condition of a message for the row; none after the first of a batch."""
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

    def _live(self, row_key: RowKey) -> int | None:
        """Return the revision of a live row; None if there is none."""
        if row_key in self._written:
            value, expires = self._written[row_key]
            is_live = value is not None and (expires is None or expires > self.now)
            return _UNASSIGNED if is_live else None
        entry = self._entry(row_key)
        return entry.revision if entry is not None and entry.is_live(self.now) else None

    def _entry(self, row_key: RowKey) -> Entry | None:
        mirrored, recent = self._mirror.entry(*row_key), self._recent.get(row_key)
        if recent is None or (mirrored is not None and mirrored.sequence > recent[0].sequence):
            return mirrored
        return recent[0]

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


class JetstreamCommit(PendingCommit):
    __slots__ = ("id_sequence",)

    def __init__(self, space: str, batch: Batch) -> None:
        rows = len(batch.puts) + len(batch.deletes) + len(batch.adds)
        super().__init__(
            space,
            batch,
            rows=rows + len(batch.checks) + (batch.id is not None),
            bytes=sum([len(put.value) + len(put.key) for put in batch.puts]),
        )
        self.id_sequence = 0
        """The sequence that the row of the batch id must have: 0, or that of an expired one."""

    def stage(self, sequence: int | None) -> None:
        """Its last message is at `sequence`, or it had none; None: a check failed."""
        self.result = sequence

    def plan(self, overlay: Overlay) -> list[Message]:
        """Return the messages to write.

        Raises CheckFailed, ValueNotCached or CounterError before it changes the overlay.
        """
        writes = evaluate(self.space, self.batch, overlay)
        if writes is None:
            raise CheckFailed
        if not isinstance(writes, Writes):
            return []
        puts, deletes = writes.puts, writes.deletes
        messages = self._conditions(overlay, {put.key for put in puts}.union(deletes))
        for each in puts:
            messages.append(overlay.write(RowKey(self.space, each.key), each.value, each.expires))
        for key in deletes:
            messages.append(overlay.write(RowKey(self.space, key), None, None))
        return self._numbered(overlay, messages)

    def row_keys(self) -> list[RowKey]:
        keys = [check.key for check in self.batch.checks] + [put.key for put in self.batch.puts]
        keys += [*self.batch.deletes, *(add.key for add in self.batch.adds)]
        return [RowKey(self.space, key) for key in dict.fromkeys(keys)]

    def _conditions(self, overlay: Overlay, written: set[str]) -> list[Message]:
        """Return the conditions on rows that are checked and not written.

        If there are too many, the condition is instead that the whole stream is unchanged.
        """
        if self.rows > MESSAGES_MAX:
            return []
        conditions = []
        for check in self.batch.checks:
            row_key = RowKey(self.space, check.key)
            if check.key not in written and (headers := overlay.guard(row_key)):
                headers[EXPECTED_SUBJECT] = overlay.names.row(*row_key)
                conditions.append(Message(overlay.names.check, b"", headers))
        return conditions

    def _numbered(self, overlay: Overlay, messages: list[Message]) -> list[Message]:
        if self.batch.id is not None:
            applied = msgspec.json.encode(Applied(overlay.now, len(messages)))
            subject = overlay.names.id(self.space, self.batch.id)
            messages.insert(0, Message(subject, applied, {EXPECTED: str(self.id_sequence)}))
        if self.rows > MESSAGES_MAX:
            messages[0].headers[EXPECTED_STREAM] = str(overlay.revision)
        return numbered(messages)


class JetstreamSweep(PendingWrite[int]):
    """Removes expired rows of one bucket that have not changed. Its result is their number."""

    __slots__ = ("_count", "_expired")

    def __init__(self, expired: Sequence[Expired]) -> None:
        super().__init__(rows=len(expired))
        self._expired = expired
        self._count = 0

    def stage(self, sequence: int | None) -> None:
        self.result = self._count

    def plan(self, overlay: Overlay) -> list[Message]:
        due = [
            row_key
            for row_key, sequence in self._expired
            if self._is_due(overlay, row_key, sequence)
        ]
        self._count = len(due)
        messages: list[Message] = []
        for space in dict.fromkeys(row_key.space for row_key in due):
            messages += numbered(
                [overlay.write(row_key, None, None) for row_key in due if row_key.space == space]
            )
        return messages

    def row_keys(self) -> list[RowKey]:
        return [row_key for row_key, _ in self._expired]

    def _is_due(self, overlay: Overlay, row_key: RowKey, sequence: int) -> bool:
        return overlay.sequence(row_key) == sequence and overlay.is_unwritten(row_key)


def numbered(messages: list[Message]) -> list[Message]:
    """Mark the messages as one commit: each carries the number of those that follow it."""
    for following, message in enumerate(reversed(messages)):
        if following:
            message.headers[FOLLOWING] = str(following)
    return messages


JetstreamWrite = JetstreamCommit | JetstreamSweep
OWN_ERRORS: Final = (CheckFailed, CounterError)
"""Outcomes of one write that leave the others of its group untouched."""
