"""Sizes of what is stored, and the quota of a tenant."""

from typing import Final

import msgspec

from keyhouse.errors import QuotaError

__all__ = ["COUNT_PAUSE_FACTOR", "EMPTY", "Quota", "Size"]

COUNT_PAUSE_FACTOR: Final = 20
"""A count is not repeated before this many times the time it took: it includes the turns of other
long reads, so counts give way under load."""

_RETRY_AFTER_SECONDS: Final = 3_600
"""Sent with a rejection: space is freed by deleting, or by rows that expire, and neither is a
matter of seconds."""


class Size(msgspec.Struct, frozen=True):
    """A number of keys, and of the bytes of keys and values."""

    keys: int = 0
    bytes: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.keys + other.keys, self.bytes + other.bytes)

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.keys - other.keys, self.bytes - other.bytes)

    @property
    def growth(self) -> "Size":
        """The size with negative numbers set to 0."""
        return Size(max(self.keys, 0), max(self.bytes, 0))

    @property
    def shrinkage(self) -> "Size":
        """The growth of the opposite."""
        return Size(max(-self.keys, 0), max(-self.bytes, 0))


EMPTY: Final = Size()


class Quota(msgspec.Struct, frozen=True):
    """Keys and bytes that one tenant may store; 0 means unlimited. `is_shared`: other processes may
    write for the tenant too."""

    keys: int = 0
    bytes: int = 0
    is_shared: bool = False

    def __bool__(self) -> bool:
        return bool(self.keys or self.bytes)

    @property
    def size(self) -> Size:
        return Size(self.keys, self.bytes)

    def is_near(self, used: Size) -> bool:
        """True if nine tenths of it are used."""
        return (0 < self.keys * 9 <= used.keys * 10) or (0 < self.bytes * 9 <= used.bytes * 10)

    def limited(self, size: Size) -> Size:
        """Return the size without what is unlimited."""
        return Size(size.keys if self.keys else 0, size.bytes if self.bytes else 0)

    def check(self, used: Size, added: Size) -> None:
        """Raise QuotaError if `added` does not fit. A write that does not grow is always
        allowed."""
        for unit in ("keys", "bytes"):
            limit, more = getattr(self, unit), getattr(added, unit)
            if limit and more > 0 and getattr(used, unit) + more > limit:
                raise QuotaError(
                    f"The quota of {unit} is used up: delete something first.",
                    quota=unit,
                    used=getattr(used, unit),
                    needed=more,
                    limit=limit,
                    retry_after=_RETRY_AFTER_SECONDS,
                )
