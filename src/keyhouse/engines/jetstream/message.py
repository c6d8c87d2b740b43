"""Encodes rows as messages and decodes messages. The payload is the value; headers hold the rest.

- `Keyhouse-Expires`: the row's expiry in milliseconds. Rows without it, such as those of other
  programs, do not expire. `Nats-TTL` only makes the server remove rows that nobody sweeps, visibly
  to other programs. It is sent when the engine runs on the system clock, and ends
  `TTL_MARGIN_SECONDS` after the expiry, so that clock differences do not lose a live row. An expiry
  beyond the server's time range would overflow into the past: such a row is left to the sweep.
- `Keyhouse-Behind`: how many messages of the same commit follow. Sequences within a commit have no
  gaps, so sequence + following is the sequence of the commit's last message: the revision of all
  its rows.
- `Nats-Expected-Last-Subject-Sequence` is on every message that Keyhouse writes: see `writer`.

A delete is a KV delete marker, as every KV client writes it. The server's own markers
(`Nats-Marker-Reason`: the TTL ended) are deletes as well.
"""

import re
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
_DELETED: Final = frozenset({b"DEL", b"PURGE"})
_FIELDS: Final = re.compile(
    rb"\n(Keyhouse-Expires|Keyhouse-Behind|KV-Operation|Nats-Marker-Reason):([^\r\n]*)"
)

MESSAGES_MAX: Final = 1_000
"""Messages in one atomic batch: the server's limit."""

TTL_MARGIN_SECONDS: Final = 60
"""Time that the server keeps a row after its expiry."""

TTL_EXPIRES_MAX: Final = 9_000_000_000_000
"""The last expiry sent as TTL, in 2255: the server counts nanoseconds in 63 bits, up to 2262."""


class Message(NamedTuple):
    """A message to publish. The sender may add headers. `row_key` is None for internal messages."""

    subject: str
    value: bytes
    headers: dict[str, str]
    row_key: RowKey | None = None

    @property
    def bytes(self) -> int:
        """Size as the server counts it: value plus encoded headers."""
        return (
            len(self.value)
            + 12
            + sum([len(name) + len(value) + 4 for name, value in self.headers.items()])
        )

    def entry(self, sequence: int) -> "Entry":
        """Return the entry of the message once it is written at `sequence`."""
        headers = self.headers
        expires = headers.get(EXPIRES)
        return Entry(
            sequence,
            sequence + int(headers.get(FOLLOWING, 0)),
            None if expires is None else int(expires),
            _OPERATION in headers,
        )


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The newest message of a key, without its value. A tombstone marks a deleted row."""

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


def entry(sequence: int, headers: bytes) -> Entry:
    """Decode the headers of the message at `sequence`."""
    fields: dict[bytes, bytes] = dict(_FIELDS.findall(headers))
    if not fields:
        return Entry(sequence, sequence)
    following = _number(fields.get(b"Keyhouse-Behind")) or 0
    operation = fields.get(b"KV-Operation", b"").strip()
    is_tombstone = b"Nats-Marker-Reason" in fields or operation in _DELETED
    return Entry(
        sequence,
        sequence + following if following < MESSAGES_MAX else sequence,
        None if is_tombstone else _number(fields.get(b"Keyhouse-Expires")),
        is_tombstone,
    )


def _number(text: bytes | None) -> int | None:
    """Parse a number as Keyhouse writes it; None for anything else."""
    digits = b"" if text is None else text.strip()
    return int(digits) if digits.isdigit() and len(digits) < 19 else None
