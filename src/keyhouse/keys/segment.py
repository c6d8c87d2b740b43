"""The type of a key field: what templates, ranges, proofs, records and services ask of it.

They ask by attribute, never for a class, so a new type is one subclass with `pattern`,
`description`, `format` and `parse`, and those attributes that differ from the defaults here.
"""

from collections.abc import Callable

from keyhouse.keys.escape import Escape


class Segment:
    """The type of a key field. Each value has one text, so `parse(format(x)) == x`."""

    pattern: str
    """A regular expression that matches every text of the type, and possibly more."""

    description: str
    """The type in words: `a ULID`."""

    length: int | None = None
    """Characters of every text, all of them ASCII: it needs no delimiter, and unless hashed, texts
    sort as their values. None: the length varies."""

    takes: tuple[type, ...] = ()
    """Types of attributes that it holds. Empty: the first write checks them."""

    holds = ""
    """The advice for an attribute of another type, with the field's `name` to fill in. Empty: the
    field is text."""

    is_verbatim = False
    """Valid values are text that `format` and `parse` return as it is."""

    matches: Callable[[str], object] | None = None
    """True for text that `format` returns as it is; raises TypeError for another type."""

    normalizes = False
    """Values that differ may have the same text, so a parsed key has other values than given."""

    is_text = False
    """Values are text, of any length and in the order of its characters: it has `format_prefix`,
    `bound`, `lowest_from` and `highest_to`, for prefixes and ranges."""

    is_digits = False
    """Every text is `length` decimal digits, so it can be in descending order."""

    is_plain_json = True
    """A value that is written as JSON is read back as an equal one."""

    is_hashed = False
    """Its text does not tell the value."""

    is_generated = False
    """The store may fill it with a new id."""

    is_optional = False
    """None is a value."""

    is_descending = False
    """The greatest value sorts first."""

    words: tuple[str, ...] | None = None
    """All its values; None: they are not listed."""

    without: tuple[str, ...] = ()
    """Texts that it does not contain, though the pattern matches them."""

    is_delimited = False
    """It ends at the first of the `without` texts in the key."""

    @property
    def key_pattern(self) -> str:
        """The regular expression that finds it in a key."""
        return self.pattern

    @property
    def non_null(self) -> "Segment":
        """The type of values that are not None."""
        return self

    @property
    def innermost(self) -> "Segment":
        """The type of values that are not None, in ascending order."""
        return self

    def format(self, value: object) -> str:
        """Return the value's text in the key. Raises ValueError, whose message completes the
        sentence "The field …", if it is invalid."""
        raise NotImplementedError

    def parse(self, text: str) -> object:
        """Return the value of a text that the pattern matches; raises ValueError if it has none."""
        raise NotImplementedError

    def followed_by(self, literal: str, escape: Escape) -> "Segment":
        """Return the type as it is when `literal` follows it, in a template of that alphabet."""
        return self

    def with_key(self, key: bytes) -> "Segment":
        """Return the type with the key of HMACs, if it needs one."""
        return self

    def plain_test(self, first: str, text: str) -> str | None:
        """Return the Python expression that is true for text of the pattern that `parse` returns as
        it is; None if there is none. `first` is the text's expression, which names it `text`."""
        return None

    def writes_unchanged(self, source: "Segment") -> bool:
        """Return whether all text that another type has parsed is formatted as it is."""
        return False

    def format_prefix(self, value: str) -> tuple[str, bool]:
        """Return what the text of every value that starts with `value` starts with, and whether
        only theirs does."""
        raise NotImplementedError

    def bound(self, value: str) -> str:
        """Return a bound of a range as values are compared with it."""
        raise NotImplementedError

    def lowest_from(self, character: str) -> str:
        """Return the least first character of any escaped text from `character` on."""
        raise NotImplementedError

    def highest_to(self, character: str) -> str:
        """Return the greatest first character of any escaped text up to `character`."""
        raise NotImplementedError

    def from_text(self, text: str) -> object:
        """Return the value that a path or query has as text; raises ValueError if it has none.
        `format` then checks it."""
        return text
