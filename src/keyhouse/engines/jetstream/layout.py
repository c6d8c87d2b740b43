"""What buckets, keys and subjects are called. The only place where a space or a key becomes a name that NATS reads.

A row is a message of the subject `$KV.<bucket>.<key>`, which any NATS client knows as that key of that bucket. A key that
NATS allows is written as it is, so that keys which a schema has put into NATS's alphabet look as its document says, and
keys of other programs are rows under their own names. Any other, and one that starts with `==`, is `==` and the key in
NATS's alphabet (`keyhouse.keys.escape.NATS_KEY`). So each key has one name, and each name at most one key. Two layouts:

- **One bucket for many spaces**: the key is `<space>.<key>`, the space escaped to one token. The default.
- **A bucket for each space**: its name is a prefix and the space's own where NATS allows it. Any other name, and one that
  is too long, becomes what can be kept of it, `--`, and a digest; the bucket's metadata keeps the whole. No space can be
  called so that its bucket is another's.

What Keyhouse keeps beside the rows are messages of `$KEYHOUSE.<bucket>.…`, in the same stream, so that they commit with
the rows, and outside of `$KV`, so that no client sees a key of them: `check` (written to carry a condition on a row that is
not written), `id.<space>.<id>` (a batch id that was applied), `horizon` (how far back a watch can go).
"""

import re
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from keyhouse.errors import UsageError
from keyhouse.keys.escape import NATS_KEY, Escape

BUCKET_CHARS_MAX: Final = 128
"""A bucket's name. The line of the protocol that names the longest key of the longest space must still fit: 4,096 bytes."""

TOKEN: Final = Escape("=", r"[^-_a-zA-Z0-9]")
"""A space, or a batch id, as one token of a subject."""

_ESCAPED: Final = "=="
_ALLOWED = re.compile(r"(?!==)[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*")
_BUCKET = re.compile(r"[-_a-zA-Z0-9]+")
_DIGESTED = re.compile(r"--[0-9a-f]{32}\Z")
_KEPT_CHARS: Final = 40


class Layout(msgspec.Struct, frozen=True):
    """All spaces in one `bucket`; or, where that is `None`, a bucket for each, called by `prefix` and the space."""

    bucket: str | None = "keyhouse"
    prefix: str = ""

    def __post_init__(self) -> None:
        name = self.prefix if self.bucket is None else self.bucket
        fits = (_BUCKET.fullmatch(name) is not None or (self.bucket is None and not name)) and len(
            name
        ) <= _KEPT_CHARS
        if not fits:
            raise UsageError(
                "A bucket's name has up to 40 of the characters a-z A-Z 0-9 - and _.", name=name
            )

    def names(self, space: str) -> "BucketNames":
        if not space:
            raise UsageError("A space has a name.")
        if self.bucket is not None:
            return BucketNames(self.bucket)
        return BucketNames(bucket_of(self.prefix, space), space)


class BucketNames:
    """The subjects of one bucket. `space` is the one it holds; `None`: many, each key starting with its own."""

    __slots__ = ("_own", "_rows", "bucket", "check", "horizon", "ids", "space", "stream")

    def __init__(self, bucket: str, space: str | None = None) -> None:
        self.bucket = bucket
        self.space = space
        self.stream = f"KV_{bucket}"
        self._rows = f"$KV.{bucket}."
        self._own = f"$KEYHOUSE.{bucket}."
        self.check = f"{self._own}check"
        self.horizon = f"{self._own}horizon"
        self.ids = f"{self._own}id.>"

    @property
    def rows(self) -> str:
        """All rows, as a pattern."""
        return self._rows + ">"

    @property
    def all(self) -> list[str]:
        """All that the stream holds, as patterns."""
        return [self._rows + ">", self._own + ">"]

    def row(self, space: str, key: str) -> str:
        name = name_of(key)
        return self._rows + (name if self.space is not None else f"{TOKEN.escape(space)}.{name}")

    def id(self, space: str, batch_id: str) -> str:
        return f"{self._own}id.{TOKEN.escape(space)}.{TOKEN.escape(batch_id)}"

    def read(self, subject: str) -> "RowKey | None":
        """Which row a subject is; `None` where it is none of ours: a key that another program spells as we don't."""
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
    """How a key is called in its bucket."""
    return key if _ALLOWED.fullmatch(key) else _ESCAPED + NATS_KEY.escape(key)


def key_of(name: str) -> str | None:
    """The key that is called so; `None`: there is none."""
    if not name.startswith(_ESCAPED):
        return name if _ALLOWED.fullmatch(name) else None
    key = NATS_KEY.unescape(name[len(_ESCAPED) :])
    return key if key is not None and not _ALLOWED.fullmatch(key) else None


def bucket_of(prefix: str, space: str) -> str:
    """The name of a space's own bucket. No two spaces have the same."""
    name = prefix + space
    if _BUCKET.fullmatch(space) and not _DIGESTED.search(space) and len(name) <= BUCKET_CHARS_MAX:
        return name
    kept = "".join(_BUCKET.findall(space))[:_KEPT_CHARS]
    return f"{prefix}{kept}--{blake2b(space.encode(), digest_size=16).hexdigest()}"
