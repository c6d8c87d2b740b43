"""Rows as messages, and messages as rows. The value is the payload; all else is in headers, which KV clients pass over.

- `Keyhouse-Expires`: the row's expiry, in the clock's milliseconds. A row without it, as other programs write them, does
  not expire by us. `Nats-TTL` is only so that the server removes what nobody sweeps, and so that other programs see it go:
  it is sent when the engine runs on the machine's own clock, and ends `TTL_MARGIN_SECONDS` after the row has expired, so
  that clocks that differ, or that are set, do not lose a row that still lives. Of a time that is too far for the server's
  own reckoning it would make one that is past: such a row is left to the sweep.
- `Keyhouse-Behind`: how many messages of the same commit follow. Sequences within a commit have no holes, so a row's
  sequence and this make the sequence of the commit's last message: the revision that all its rows carry.
- `Nats-Expected-Last-Subject-Sequence` is on every message that we write: see `writer`.

A delete is a marker, as every KV client writes it. A marker of the server's own (`Nats-Marker-Reason`: a row's TTL has
ended) is a delete as well.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from keyhouse.clock import Clock, SystemClock
from keyhouse.engines.jetstream.layout import RowKey

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_STREAM: Final = "Nats-Expected-Last-Sequence"
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
EXPIRES: Final = "Keyhouse-Expires"
FOLLOWING: Final = "Keyhouse-Behind"

_TTL: Final = "Nats-TTL"
_OPERATION: Final = "KV-Operation"
_DELETED: Final = frozenset({"DEL", "PURGE"})
_MARKER: Final = "Nats-Marker-Reason"

TTL_MARGIN_SECONDS: Final = 60
"""How much longer than our own clock the server's keeps a row."""

TTL_EXPIRES_MAX: Final = 9_000_000_000_000
"""The last expiry that the server is told of, in the year 2255: it counts nanoseconds in 63 bits, which end in 2262."""


class Message(NamedTuple):
    """One to be written. Its headers are its own: who sends it may add to them. `place`: of the row, if it is one."""

    subject: str
    value: bytes
    headers: dict[str, str]
    row_key: RowKey | None = None

    @property
    def bytes(self) -> int:
        """As the server counts them: the value, and the headers as they are sent."""
        return (
            len(self.value)
            + 12
            + sum([len(name) + len(value) + 4 for name, value in self.headers.items()])
        )


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The newest message of a key, without its value. `gone`: it says that there is no row."""

    sequence: int
    revision: int
    expires: int | None = None
    is_tombstone: bool = False

    def is_live(self, now: int) -> bool:
        return not self.is_tombstone and (self.expires is None or self.expires > now)


def put(subject: str, row_key: RowKey, value: bytes, expires: int | None, clock: Clock) -> Message:
    headers: dict[str, str] = {}
    if expires is not None:
        headers[EXPIRES] = str(expires)
        if isinstance(clock, SystemClock) and expires <= TTL_EXPIRES_MAX:
            left = max(0, expires - clock.now() + 999) // 1_000
            headers[_TTL] = str(left + TTL_MARGIN_SECONDS)
    return Message(subject, value, headers, row_key)


def delete(subject: str, row_key: RowKey) -> Message:
    return Message(subject, b"", {_OPERATION: "DEL"}, row_key)


def entry(sequence: int, headers: Mapping[str, str] | None) -> Entry:
    """What a message that was found at `sequence` says of its row."""
    if not headers:
        return Entry(sequence, sequence)
    is_tombstone = _MARKER in headers or headers.get(_OPERATION) in _DELETED
    behind = _number(headers.get(FOLLOWING)) or 0
    return Entry(
        sequence,
        sequence + behind,
        None if is_tombstone else _number(headers.get(EXPIRES)),
        is_tombstone,
    )


def _number(text: str | None) -> int | None:
    """A number that we wrote; `None` for what somebody else did."""
    return (
        int(text)
        if text is not None and text.isascii() and text.isdigit() and len(text) < 19
        else None
    )
