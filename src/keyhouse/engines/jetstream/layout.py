"""Names of buckets, keys and subjects: the only place that turns a space or key into a NATS name.

A row is a message at `$KV.<bucket>.<key>`, which any NATS client reads as that key of that bucket.
A key within NATS's alphabet is used as it is, so schema keys look as documented and other programs'
keys are rows under their own names. Any other key, and one that starts with `==`, becomes `==` plus
the escaped key (`keyhouse.keys.escape.NATS_KEY`). The mapping is one to one. Two layouts:

- **One bucket for many spaces** (default): the key is `<space>.<key>`, the space escaped to one
  token.
- **A bucket for each space**: a prefix plus the space's name where NATS allows it. Any other name,
  or one that is too long, becomes its allowed characters, `--` and a digest; the bucket's metadata
  holds the full name. No two spaces share a bucket.

Keyhouse's own messages are at `$KEYHOUSE.<bucket>.…`, in the same stream so that they commit with
the rows, and outside `$KV` so that no client sees them as keys: `check` (carries a condition on a
row that is not written), `id.<space>.<id>` (an applied batch id), `horizon` (the retention floor of
watches), `erased.<digest>` (the messages of a space were purged; see `erasure`).
"""

import re
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from keyhouse.errors import UsageError
from keyhouse.keys.escape import NATS_KEY, Escape

BUCKET_CHARS_MAX: Final = 128
"""Length of a bucket's name: the protocol line with the longest key must fit in 4,096 bytes."""

TOKEN: Final = Escape("=", r"[^-_a-zA-Z0-9]")
"""Escapes a space or a batch id to one token of a subject."""

_ESCAPED: Final = "=="
_ALLOWED = re.compile(r"(?!==)[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_BUCKET = re.compile(r"[-_a-zA-Z0-9]+")
_DIGESTED = re.compile(r"--[0-9a-f]{32}\Z")
_KEPT_CHARS: Final = 40


class Layout(msgspec.Struct, frozen=True):
    """All spaces in one `bucket`; if that is None, one bucket per space, named `prefix` + space."""

    bucket: str | None = "keyhouse"
    prefix: str = ""

    def __post_init__(self) -> None:
        name = self.prefix if self.bucket is None else self.bucket
        fits = (_BUCKET.fullmatch(name) is not None or (self.bucket is None and not name)) and len(
            name
        ) <= _KEPT_CHARS
        if not fits:
            raise UsageError(
                "Invalid bucket name: use up to 40 of the characters a-z A-Z 0-9 - and _.",
                name=name,
            )

    def names(self, space: str) -> "BucketNames":
        if not space:
            raise UsageError("The name of a space must not be empty.")
        if self.bucket is not None:
            return BucketNames(self.bucket)
        return BucketNames(bucket_of(self.prefix, space), space)


class BucketNames:
    """Subjects of one bucket. `space` is its only space, or None if keys include theirs."""

    __slots__ = (
        "_erased",
        "_own",
        "_rows",
        "bucket",
        "check",
        "horizon",
        "ids",
        "space",
        "stream",
    )

    def __init__(self, bucket: str, space: str | None = None) -> None:
        self.bucket = bucket
        self.space = space
        self.stream = f"KV_{bucket}"
        self._rows = f"$KV.{bucket}."
        self._own = f"$KEYHOUSE.{bucket}."
        self.check = f"{self._own}check"
        self.horizon = f"{self._own}horizon"
        self.ids = f"{self._own}id.>"
        self._erased = f"{self._own}erased."

    @property
    def rows(self) -> str:
        """Subject pattern of all rows."""
        return self._rows + ">"

    @property
    def erasures(self) -> str:
        """Subject pattern of the announcements that a space was erased."""
        return self._erased + "*"

    @property
    def followed(self) -> list[str]:
        """Subject patterns of the messages that a mirror needs."""
        return [self.rows, self.horizon, self.erasures]

    @property
    def all(self) -> list[str]:
        """Subject patterns of everything in the stream."""
        return [self._rows + ">", self._own + ">"]

    def row(self, space: str, key: str) -> str:
        name = name_of(key)
        return self._rows + (name if self.space is not None else f"{TOKEN.escape(space)}.{name}")

    def of_space(self, space: str) -> list[str]:
        """Return subject patterns of all messages of a space, those of its rows last."""
        token = TOKEN.escape(space)
        rows = self.rows if self.space is not None else f"{self._rows}{token}.>"
        return [f"{self._own}id.{token}.>", rows]

    def id(self, space: str, batch_id: str) -> str:
        return f"{self._own}id.{TOKEN.escape(space)}.{TOKEN.escape(batch_id)}"

    def erased(self, space: str) -> str:
        return self._erased + digest_of(space)

    def erased_digest(self, subject: str) -> str | None:
        """Return the digest of the space that a message announces as erased."""
        return subject[len(self._erased) :] if subject.startswith(self._erased) else None

    def read(self, subject: str) -> "RowKey | None":
        """Return the row key of a subject, or None if it is not one that Keyhouse would write."""
        if not subject.startswith(self._rows):
            return None
        name = subject[len(self._rows) :]
        space = self.space
        if space is None:
            token, _, name = name.partition(".")
            space = TOKEN.unescape(token)
        key = key_of(name)
        return RowKey(space, key) if space and key else None


class RowKey(NamedTuple):
    space: str
    key: str


def name_of(key: str) -> str:
    """Return the name of a key in its bucket."""
    return key if _ALLOWED.fullmatch(key) else _ESCAPED + NATS_KEY.escape(key)


def key_of(name: str) -> str | None:
    """Return the key with this name in a bucket, or None if it names no key."""
    if not name.startswith(_ESCAPED):
        return name if _ALLOWED.fullmatch(name) else None
    key = NATS_KEY.unescape(name[len(_ESCAPED) :])
    return key if key is not None and not _ALLOWED.fullmatch(key) else None


def bucket_of(prefix: str, space: str) -> str:
    """Return the name of a space's own bucket, unique per space."""
    name = prefix + space
    if _BUCKET.fullmatch(space) and not _DIGESTED.search(space) and len(name) <= BUCKET_CHARS_MAX:
        return name
    kept = "".join(_BUCKET.findall(space))[:_KEPT_CHARS]
    return f"{prefix}{kept}--{digest_of(space)}"


def digest_of(space: str) -> str:
    """Return what stands for a space where its name must not stay, or would not fit."""
    return blake2b(space.encode(), digest_size=16).hexdigest()
