"""The type of a key field: what templates, ranges and proofs need of it."""

from collections.abc import Hashable
from typing import Protocol, runtime_checkable

from keyhouse.keys.escape import Escape


@runtime_checkable
class Segment(Hashable, Protocol):
    @property
    def pattern(self) -> str: ...

    @property
    def fixed(self) -> bool: ...

    @property
    def description(self) -> str:
        """The type in words: `a ULID`."""
        ...

    def format(self, value: object) -> str:
        """Return the value's text in the key; raises ValueError if it is invalid."""
        ...

    def parse(self, text: str) -> object:
        """Return the value of a text that the pattern matches; raises ValueError if it has none."""
        ...

    def followed_by(self, literal: str, escape: Escape) -> "Segment":
        """Return the type as it is when `literal` follows it, in a template of that alphabet."""
        ...


class PlainSegment:
    """Base of the types whose text does not depend on the delimiter that follows."""

    fixed = False

    def followed_by(self, literal: str, escape: Escape) -> Segment:
        return self  # type: ignore[return-value]  # each subclass is a Segment
