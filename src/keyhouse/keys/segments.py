"""Types of key fields: small objects that format a value as text, parse it, and describe the text.

Each value has one text, so `parse(format(x)) == x`. An invalid value raises a ValueError whose
message completes the sentence "The field …".
"""

import hashlib
import re
from collections.abc import Callable

from keyhouse.advice.arguments import checked
from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError, KeyFieldError, UsageError
from keyhouse.keys.escape import PLAIN, Escape
from keyhouse.keys.hmac_segment import Hmac
from keyhouse.keys.number_segments import (
    Day,
    Descending,
    FixedPoint,
    Integer,
    Timestamp,
)
from keyhouse.keys.segment import Segment
from keyhouse.limits import NORMALIZED_CHARS_MAX
from keyhouse.normalization import normal_form, normalized


def text_of(value: object) -> str:
    """Return the value if it is text that every engine stores; else raise ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {type(value).__name__}")
    if not value:
        raise ValueError("must not be empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("contains a lone surrogate, which is not text") from None
    if "\0" in value:
        raise ValueError("cannot contain U+0000")
    return value


_ANY_LENGTH = 2**63


class TextSegment(Segment):
    """Any text. The delimiter that follows is escaped; at the end of a template nothing is."""

    description = "text"
    takes = (str,)
    is_text = True

    @checked(DeclarationError)
    def __init__(
        self,
        *,
        chars_max: int | None = None,
        escape: Escape = PLAIN,
        ends: str = "",
        last: bool = True,
    ) -> None:
        self._chars_max = chars_max
        self._most = _ANY_LENGTH if chars_max is None else chars_max
        if chars_max is not None:
            if chars_max < 1:
                raise DeclarationError(
                    "Text in a key needs a maximum of at least 1 character.", chars_max=chars_max
                )
            self.description = f"{self.description} of at most {chars_max} characters"
        self._formats_plainly = type(self).format is TextSegment.format
        if ends and ends in escape.mark + "0123456789ABCDEF":
            raise DeclarationError(
                "Text cannot be followed by a character that its escapes consist of.", ends=ends
            )
        self._escape = escape.and_also(ends)
        self._verbatim = last and escape is PLAIN
        self._plain_max = self._most
        """Longest text that is written unescaped if it contains neither `_ends` nor `_mark`."""
        self._ends, self._mark = (
            ("\0", "\0") if self._verbatim else (self._escape.ends, self._escape.mark)
        )
        self.pattern = (
            f"[^\\x00{re.escape(ends)}]+" if escape.alphabet is None else f"[{escape.alphabet}]+"
        )

    def followed_by(self, literal: str, escape: Escape) -> "TextSegment":
        return type(self)(
            chars_max=self._chars_max, escape=escape, ends=literal[:1], last=not literal
        )

    def format(self, value: object) -> str:
        if (  # the common case, without a further call
            type(value) is str
            and value.isascii()
            and 0 < len(value) <= self._most
            and "\0" not in value
        ):
            return value if self._verbatim else self._escape.escape(value)
        return self._escaped(text_of(value))

    def _escaped(self, text: str) -> str:
        if len(text) > self._most:
            raise ValueError(f"has {len(text)} characters; {self._most} are allowed")
        return text if self._verbatim else self._escape.escape(text)

    def parse(self, text: str) -> str:
        if (  # the common case: text that is its own escaped form
            self._formats_plainly
            and text.isascii()
            and 0 < len(text) <= self._most
            and "\0" not in text
            and (self._verbatim or not self._escape.changes(text))
        ):
            return text
        plain = text if self._verbatim else self._escape.unescape(text)
        if not plain:
            raise ValueError("is not escaped in the template's way")
        if self.format(plain) != text:
            raise ValueError("is not in its canonical form")
        return plain

    def plain_test(self, first: str, text: str) -> str | None:
        if type(self) is not TextSegment or self._escape.alphabet is not None:
            return None
        if not self._verbatim and not self._escape.ends:
            return None
        tests = [f"{first}.isascii()"]
        if not self._verbatim:  # the pattern excludes the delimiter
            tests.append(f"{self._escape.mark!r} not in {text}")
        if self._chars_max is not None:
            tests.append(f"len({text}) <= {self._chars_max}")
        return " and ".join(tests)

    def writes_unchanged(self, source: Segment) -> bool:
        return (
            self._verbatim
            and type(self) is TextSegment
            and type(source) is TextSegment
            and source._most <= self._most
        )

    def format_prefix(self, value: str) -> tuple[str, bool]:
        if not value:
            return "", True
        return (
            (text_of(value), True) if self._verbatim else self._escape.escape_prefix(text_of(value))
        )

    def bound(self, value: str) -> str:
        return value

    def lowest_from(self, character: str) -> str:
        if self._verbatim or not self._escape.escapes_from(character):
            return character
        return min(character, self._escape.mark)

    def highest_to(self, character: str) -> str:
        return character if self._verbatim else max(character, self._escape.mark)


def normal(text: str) -> str:
    """Return the normalized form of a name: NFKC, case-folded, trimmed, single spaces.

    Idempotent: normalized text is returned unchanged. Raises KeyFieldError for text that takes long
    to normalize: too many characters, or too many combining marks in a row.
    """
    if not isinstance(text, str):
        raise UsageError("Only text can be normalized.", given=text)
    try:
        return _normal(text)
    except ValueError as error:
        raise KeyFieldError(f"The text {error}.") from None


def _normal(text: str) -> str:
    """Return `normal(text)`, or raise ValueError."""
    if text.isascii() and len(text) <= NORMALIZED_CHARS_MAX:
        return " ".join(text.lower().split())
    folded = " ".join(normalized("NFKC", text).casefold().split())
    while folded != text:  # some text folds into text that is not in its normal form
        bounded = normalized if len(folded) > len(text) else normal_form
        text = folded
        folded = " ".join(bounded("NFKC", text).casefold().split())
    return text


class NormalizedText(TextSegment):
    """Normalized text: names that differ only in case, width or spacing have the same key."""

    description = "text in its normal form"
    normalizes = True

    def format(self, value: object) -> str:
        if type(value) is str and value.isascii() and "\0" not in value:
            folded = " ".join(value.lower().split())  # the common case, without a further call
            if (
                0 < len(folded) <= self._plain_max
                and self._ends not in folded
                and self._mark not in folded
            ):
                return folded
        return self._formatted(value)

    def _formatted(self, value: object) -> str:
        folded = _normal(text_of(value))
        if not folded:
            raise ValueError("is only white space")
        return self._escaped(folded)

    def format_prefix(self, value: str) -> tuple[str, bool]:
        return super().format_prefix(self.bound(value))

    def bound(self, value: str) -> str:
        return _normal(value) + (" " if value.strip() and value[-1:].isspace() else "")


class CutText(NormalizedText):
    """Normalized text that may be long, cut to a number of bytes in the key: `{title:norm900}`.

    A longer one is cut there, and ends with `~` and 32 digits of the SHA-256 of the whole normal
    form, so that texts with the same start have different keys. A parsed key yields the cut text:
    compare the whole one in the record. So does a prefix that is longer than the cut.
    """

    def __init__(
        self,
        bytes_max: int,
        *,
        chars_max: int | None = None,
        escape: Escape = PLAIN,
        ends: str = "",
        last: bool = True,
    ) -> None:
        super().__init__(chars_max=chars_max, escape=escape, ends=ends, last=last)
        if bytes_max <= 2 * _CUT_TAIL_BYTES:
            raise DeclarationError("Text cannot be cut to so few bytes.", bytes_max=bytes_max)
        self._bytes_max = bytes_max
        self._plain_max = min(self._most, bytes_max // 4)
        self.description = f"{NormalizedText.description}, cut to {bytes_max} bytes"

    def followed_by(self, literal: str, escape: Escape) -> "CutText":
        return type(self)(
            self._bytes_max,
            chars_max=self._chars_max,
            escape=escape,
            ends=literal[:1],
            last=not literal,
        )

    def _escaped(self, text: str) -> str:
        escaped = super()._escaped(text)
        if len(escaped.encode()) <= self._bytes_max:
            return escaped
        digest = hashlib.sha256(text.encode()).hexdigest()[:_CUT_DIGITS]
        return super()._escaped(f"{self._cut(text)}~{digest}")

    def format_prefix(self, value: str) -> tuple[str, bool]:
        return super().format_prefix(self._cut(self.bound(value)))

    def _cut(self, text: str) -> str:
        """Return the longest start of a text that leaves room for the digest."""
        most = self._bytes_max - _CUT_TAIL_BYTES
        text = text[:most]
        while text and (beyond := len(super()._escaped(text).encode()) - most) > 0:
            text = text[: -max(1, beyond // _ESCAPED_BYTES_MAX)]
        return text


_CUT_DIGITS = 32
_CUT_TAIL_BYTES = 1 + _CUT_DIGITS
_ESCAPED_BYTES_MAX = 12
"""Of one character: four bytes of UTF-8, each as a mark and two digits."""


class Regex(Segment):
    """Text that matches a pattern, never escaped.

    `without` lists texts that it must not contain, not even together with the first characters of
    the literal that follows. `requirement` completes the sentence "The field …" in errors.
    """

    takes = (str,)

    @checked(DeclarationError)
    def __init__(
        self,
        pattern: str,
        *,
        without: tuple[str, ...] = (),
        requirement: str | None = None,
        tail: str = "",
    ) -> None:
        self.pattern = pattern
        self.without = without
        self.requirement = requirement or f"must match {pattern}"
        self.description = self.requirement.replace(
            "must match ", "text that matches ", 1
        ).removeprefix("must be ")
        self.is_delimited = any(tail.startswith(text) for text in without)
        self._tail = tail
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise DeclarationError(
                "Not a regular expression.", pattern=pattern, reason=str(error)
            ) from None
        if compiled.groups:
            raise DeclarationError(
                "A pattern must not have capturing groups: write (?:…).", pattern=pattern
            )
        self._match = compiled.fullmatch
        if not without:
            self.matches = re.compile(f"(?![^\0]*\0)(?:{pattern})").fullmatch

    @property
    def key_pattern(self) -> str:
        """`pattern` alone could match too much."""
        return (
            f"(?:(?!{'|'.join(map(re.escape, self.without))}).)+"
            if self.is_delimited
            else self.pattern
        )

    def followed_by(self, literal: str, escape: Escape) -> "Regex":
        return Regex(self.pattern, without=self.without, requirement=self.requirement, tail=literal)

    def format(self, value: object) -> str:
        if not isinstance(value, str) or not self._match(value):
            raise ValueError(self.requirement)
        if "\0" in value:
            raise ValueError("cannot contain U+0000")
        for text in self.without:
            if 0 <= (value + self._tail).find(text) < len(value):
                raise ValueError(f"cannot contain {text!r}, alone or with the text after it")
        return value

    def parse(self, text: str) -> str:
        return self.format(text)


class Ulid(Segment):
    """A canonical ULID: 26 characters of upper-case Crockford base 32, ordered by time."""

    pattern = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
    description = "a ULID"
    length = 26
    takes = (str,)
    matches = re.compile(pattern).fullmatch
    is_verbatim = True
    is_generated = True

    def format(self, value: object) -> str:
        try:
            if self.matches(value):  # type: ignore[call-overload]  # TypeError if it is not text
                return value  # type: ignore[return-value]
        except TypeError:
            pass
        raise ValueError("must be a ULID: 26 upper-case characters of Crockford base 32")

    def parse(self, text: str) -> str:
        return text

    def writes_unchanged(self, source: Segment) -> bool:
        return isinstance(source, Ulid)


class Choice(Segment):
    """One of a closed list of words. A word may contain the delimiter: the list is closed."""

    words: tuple[str, ...]
    takes = (str,)
    is_verbatim = True

    @checked(DeclarationError)
    def __init__(self, *words: str) -> None:
        if not words or not all(words) or len(set(words)) < len(words):
            raise DeclarationError(
                "An enumeration needs words, without empty or duplicate ones.", words=words
            )
        try:
            for word in words:
                text_of(word)
        except ValueError as error:
            raise DeclarationError(f"A word of the enumeration {error}.", words=words) from None
        self.words = words
        self.description = "one of " + ", ".join(words)
        self.pattern = (
            "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"
        )

    def format(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return value + ""  # an Enum that is a str becomes a plain str
        raise ValueError("must be one of " + ", ".join(self.words))

    def parse(self, text: str) -> str:
        return text


class OptionalSegment(Segment):
    """A field that may be absent: None is written `null`, which sorts after digits and capitals."""

    is_optional = True
    _NULL = "null"

    @checked(DeclarationError)
    def __init__(self, inner: Segment) -> None:
        self.inner = inner
        self.description = f"{inner.description}, or null"
        self.pattern = f"(?:{inner.pattern}|{self._NULL})"
        self.normalizes = inner.normalizes

    @property
    def non_null(self) -> Segment:
        return self.inner

    @property
    def innermost(self) -> Segment:
        return self.inner.innermost

    def followed_by(self, literal: str, escape: Escape) -> "OptionalSegment":
        return OptionalSegment(self.inner.followed_by(literal, escape))

    def format(self, value: object) -> str:
        if value is None:
            return self._NULL
        text = self.inner.format(value)
        if text == self._NULL:
            raise ValueError("cannot be the text 'null', which means absent here")
        return text

    def parse(self, text: str) -> object:
        return None if text == self._NULL else self.inner.parse(text)

    def from_text(self, text: str) -> object:
        return None if text == self._NULL else self.inner.from_text(text)


NAMED: dict[str, Callable[[], Segment]] = {
    "": TextSegment,
    "text": TextSegment,
    "norm": NormalizedText,
    "ulid": Ulid,
    "date": Day,
    "time": Timestamp,
    "hmac": Hmac,
}
OF_PYTHON = {
    "int": "06d",
    "d": "06d",
    "float": "010.3f",
    "str": "text",
    "string": "text",
    "datetime": "time",
    "day": "date",
}
"""The types of Python, and the short names that were meant."""
_INTEGER = re.compile(r"0(\d+)d")
_SCALED = re.compile(r"0(\d+)\.(\d+)f")
_CUT = re.compile(r"norm([1-9]\d+)")


@checked(DeclarationError)
def segment(spec: str) -> Segment:
    """Return the type with this short name: `ulid`, `010d`, `-010d`, `a|b|c`, `ulid?`, …"""
    if spec.endswith("?"):
        return OptionalSegment(segment(spec[:-1]))
    if spec.startswith("-"):
        return Descending(segment(spec[1:]))
    if named := NAMED.get(spec):
        return named()
    if match := _INTEGER.fullmatch(spec):
        return Integer(int(match[1]))
    if match := _SCALED.fullmatch(spec):
        return FixedPoint(int(match[1]), int(match[2]))
    if match := _CUT.fullmatch(spec):
        return CutText(int(match[1]))
    if "|" in spec:
        return Choice(*spec.split("|"))
    known = [*sorted(filter(None, NAMED)), "normN", "0Nd", "0N.Mf", "-…", "a|b|c", "…?"]
    meant = {"nearest": OF_PYTHON[spec]} if spec in OF_PYTHON else {}
    if spec.isdecimal():
        meant = {"nearest": f"0{spec.lstrip('0')}d"}
    raise DeclarationError("No such segment type.", spec=spec, **{**nearest(spec, known), **meant})
