"""The types of a key's fields: small objects that write a value as text, read it back, and say what the text looks like.

Each writes every value in one way, so that `parse(format(x)) == x`; what it can't write it refuses with a ValueError whose
text says why. `pattern` is a regular expression that covers all it writes, and may cover more; `fixed` says that all
of it has one length, so that no delimiter is needed to end it.
"""

import re
import unicodedata
from collections.abc import Callable, Hashable
from datetime import date
from decimal import Context, Decimal, Inexact
from typing import Protocol, runtime_checkable

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.keys.escape import PLAIN, Escape


@runtime_checkable
class Segment(Hashable, Protocol):
    @property
    def pattern(self) -> str: ...

    @property
    def fixed(self) -> bool: ...

    @property
    def what(self) -> str:
        """What it holds, in words: `a ULID`."""
        ...

    def format(self, value: object) -> str:
        """The value as it stands in the key; ValueError when it can't."""
        ...

    def parse(self, text: str) -> object:
        """The value that is written so, of text that the pattern covers; ValueError when none is."""
        ...

    def followed_by(self, literal: str, escape: Escape) -> "Segment":
        """The same type, where `literal` ends it in a template of that alphabet."""
        ...


class _Plain:
    """A segment that is written the same wherever it stands."""

    fixed = False

    def followed_by(self, literal: str, escape: Escape) -> "Segment":
        return self  # type: ignore[return-value]  # each subclass is a Segment


def text_of(value: object) -> str:
    """Text that every engine keeps: no lone surrogate, no U+0000, not empty."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {type(value).__name__}")
    if not value:
        raise ValueError("must not be empty")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("holds a lone surrogate, which is not text") from None
    if "\0" in value:
        raise ValueError("can't hold the character U+0000")
    return value


_ANY_LENGTH = 2**63


class Text:
    """Any text, escaped so that it can't hold the delimiter that follows. Last in a template it stands as it is."""

    fixed = False
    what = "text"

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
                    "Text in a key has room for one character at least.", chars_max=chars_max
                )
            self.what = f"{self.what} of at most {chars_max} characters"
        self._ends = ends
        if ends and ends in escape.mark + "0123456789ABCDEF":
            raise DeclarationError(
                "Text can't be followed by a character that its own escapes are made of.", ends=ends
            )
        self._escape = escape.and_also(ends)
        self._verbatim = last and escape is PLAIN
        self.pattern = (
            f"[^\\x00{re.escape(ends)}]+" if escape.alphabet is None else f"[{escape.alphabet}]+"
        )

    def followed_by(self, literal: str, escape: Escape) -> "Text":
        return type(self)(
            chars_max=self._chars_max, escape=escape, ends=literal[:1], last=not literal
        )

    def format(self, value: object) -> str:
        if (
            type(value) is str
            and value.isascii()
            and 0 < len(value) <= self._most
            and "\0" not in value
        ):
            return (
                value if self._verbatim else self._escape.escape(value)
            )  # the usual case, without a call
        return self._finished(text_of(value))

    def _finished(self, text: str) -> str:
        if len(text) > self._most:
            raise ValueError(f"has {len(text)} characters; {self._most} are allowed")
        return text if self._verbatim else self._escape.escape(text)

    def parse(self, text: str) -> str:
        plain = text if self._verbatim else self._escape.unescape(text)
        if not plain:
            raise ValueError("is not escaped as this template does")
        if self.format(plain) != text:
            raise ValueError("is not in its one form")
        return plain

    def begin(self, value: str) -> str:
        """How every text that starts with `value` is written up to there."""
        if self._escape.looks_around:
            raise ValueError("can't be searched by its first characters in this alphabet")
        if not value:
            return ""
        return text_of(value) if self._verbatim else self._escape.escape(text_of(value))


def normal(text: str) -> str:
    """The normal form of names: NFKC, casefolded, trimmed, each run of white space one space. Normal text stays as it is."""
    if not isinstance(text, str):
        raise UsageError("Only text has a normal form.", given=text)
    if text.isascii():
        return " ".join(text.lower().split())
    while True:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        if folded == text:
            return text
        text = folded


class NormalizedText(Text):
    """Text in its normal form: names that differ only in case, width or spacing are one key."""

    what = "text in its normal form"

    def format(self, value: object) -> str:
        text = text_of(value)
        folded = (
            " ".join(text.lower().split()) if text.isascii() else normal(text)
        )  # the usual case, without a call
        if not folded:
            raise ValueError("holds only white space")
        return self._finished(folded)

    def begin(self, value: str) -> str:
        return super().begin(
            normal(value) + (" " if value.strip() and value[-1:].isspace() else "")
        )


class Regex(_Plain):
    """Text of a closed shape, never escaped: what does not match is refused. `without` names texts it can't hold, not even
    together with the first characters of what follows it in the key."""

    @checked(DeclarationError)
    def __init__(
        self,
        pattern: str,
        *,
        without: tuple[str, ...] = (),
        says: str | None = None,
        tail: str = "",
    ) -> None:
        self.pattern = pattern
        self.without = without
        self.says = says or f"must match {pattern}"
        self.what = self.says.replace("must match ", "text that matches ", 1).removeprefix(
            "must be "
        )
        self.ended = any(tail.startswith(text) for text in without)
        """Whether it ends where one of these texts first stands in the key."""
        self.reading = f"(?:(?!{'|'.join(map(re.escape, without))}).)+" if self.ended else pattern
        """The regular expression that finds it in a key: `pattern` alone would run on into what follows."""
        self._tail = tail
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise DeclarationError(
                "Not a regular expression.", pattern=pattern, reason=str(error)
            ) from None
        if compiled.groups:
            raise DeclarationError(
                "A pattern can't have groups of its own: write (?:…).", pattern=pattern
            )
        self._match = compiled.fullmatch

    def followed_by(self, literal: str, escape: Escape) -> "Regex":
        return Regex(self.pattern, without=self.without, says=self.says, tail=literal)

    def format(self, value: object) -> str:
        if not isinstance(value, str) or not self._match(value):
            raise ValueError(self.says)
        if "\0" in value:
            raise ValueError("can't hold the character U+0000")
        for text in self.without:
            if 0 <= (value + self._tail).find(text) < len(value):
                raise ValueError(f"can't hold {text!r}, alone or with what follows it")
        return value

    def parse(self, text: str) -> str:
        return self.format(text)


class Ulid(_Plain):
    """A ULID in its canonical form: 26 characters of upper-case Crockford base 32, ordered by time."""

    pattern = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
    fixed = True
    what = "a ULID"

    def format(self, value: object) -> str:
        try:
            if _ULID(value):  # type: ignore[call-overload]  # refuses what is not text by itself
                return value  # type: ignore[return-value]
        except TypeError:
            pass
        raise ValueError("must be a ULID: 26 upper-case characters of Crockford base 32")

    def parse(self, text: str) -> str:
        return text


_ULID = re.compile(Ulid.pattern).fullmatch


_DIGITS_MAX = 100
"""Digits of a number in a key: the largest is still printed in an error."""


class Integer(_Plain):
    """A whole number from 0, padded with zeros so that it sorts as a number."""

    fixed = True

    @checked(DeclarationError)
    def __init__(self, width: int) -> None:
        if not 1 <= width <= _DIGITS_MAX:
            raise DeclarationError("A number has 1 to 100 digits.", width=width)
        self._width = width
        self.what = f"a whole number in {width} digits"
        self._stop = 10**width
        self.pattern = f"[0-9]{{{width}}}"

    def format(self, value: object) -> str:
        if type(value) is not int:
            raise ValueError("must be a whole number")
        if not 0 <= value < self._stop:
            raise ValueError(f"must be from 0 to {self._stop - 1}")
        return str(value).zfill(self._width)

    def parse(self, text: str) -> int:
        return int(text)


_FLOAT_DIGITS = 15
"""Decimal digits that a float keeps exactly."""

_EXACT = Context(prec=50, traps=[Inexact])
"""Arithmetic that refuses to round; its precision is beyond any number that is in bounds."""


class FixedPoint(_Plain):
    """A number with a few decimals, such as a position of 1.5, times a power of ten, padded: 1.5 is `0000001500`.

    It reads as a float where it has decimals: so it has no more digits than a float keeps.
    """

    fixed = True

    @checked(DeclarationError)
    def __init__(self, width: int, decimals: int) -> None:
        if width > _FLOAT_DIGITS:
            raise DeclarationError("A number with decimals has 15 digits at most.", width=width)
        if not 0 <= decimals <= width:
            raise DeclarationError(
                "The decimals are some of a number's digits.", decimals=decimals, width=width
            )
        self._whole = Integer(width)
        self._decimals = decimals
        self._stop = Decimal(1).scaleb(width - decimals)
        self._least = Decimal(1).scaleb(-decimals)
        self.what = f"a number in {width} digits, the last {decimals} of them decimals"
        self._scale: int = 10**decimals
        self.pattern = self._whole.pattern

    def format(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise ValueError("must be a number")
        number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            raise ValueError("must be a finite number")
        if not 0 <= number < self._stop:
            raise ValueError(f"must be from 0, and less than {self._stop}")
        try:
            exact = number.quantize(self._least, context=_EXACT)
        except Inexact:
            raise ValueError(f"can have {self._decimals} decimals at most") from None
        return self._whole.format(int(exact * self._scale))

    def parse(self, text: str) -> int | float:
        whole, rest = divmod(int(text), self._scale)
        return whole if not rest else int(text) / self._scale


class Choice(_Plain):
    """One of a closed list of words. Words may hold the delimiter: the list says where they end."""

    @checked(DeclarationError)
    def __init__(self, *words: str) -> None:
        if not words or not all(words) or len(set(words)) < len(words):
            raise DeclarationError(
                "An enumeration has words, none of them empty or twice there.", words=words
            )
        try:
            for word in words:
                text_of(word)
        except ValueError as error:
            raise DeclarationError(f"A word of the enumeration {error}.", words=words) from None
        self.words = words
        self.what = "one of " + ", ".join(words)
        self.pattern = (
            "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"
        )

    def format(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return value + ""  # an Enum that is text becomes that text
        raise ValueError("must be one of " + ", ".join(self.words))

    def parse(self, text: str) -> str:
        return text


class Day(_Plain):
    """A calendar day, `2026-01-18`."""

    pattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    fixed = True
    what = "a day"

    def format(self, value: object) -> str:
        if type(value) is not date:
            raise ValueError("must be a datetime.date")
        return value.isoformat()

    def parse(self, text: str) -> date:
        return date.fromisoformat(text)


class OptionalSegment:
    """A field that may be absent: `None` is written `null`, which sorts behind digits and upper-case letters."""

    fixed = False
    _NULL = "null"

    @checked(DeclarationError)
    def __init__(self, inner: Segment) -> None:
        self.inner = inner
        self.what = f"{inner.what}, or null"
        self.pattern = f"(?:{inner.pattern}|{self._NULL})"

    def followed_by(self, literal: str, escape: Escape) -> "OptionalSegment":
        return OptionalSegment(self.inner.followed_by(literal, escape))

    def format(self, value: object) -> str:
        if value is None:
            return self._NULL
        text = self.inner.format(value)
        if text == self._NULL:
            raise ValueError("can't be the text 'null', which means absent here")
        return text

    def parse(self, text: str) -> object:
        return None if text == self._NULL else self.inner.parse(text)


_NAMED: dict[str, Callable[[], Segment]] = {
    "": Text,
    "text": Text,
    "norm": NormalizedText,
    "ulid": Ulid,
    "date": Day,
}
_INTEGER = re.compile(r"0(\d+)d")
_SCALED = re.compile(r"0(\d+)\.(\d+)f")


@checked(DeclarationError)
def segment(spec: str) -> Segment:
    """The type that a template names behind a field's colon: `ulid`, `010d`, `010.3f`, `a|b|c`, `ulid?`, …"""
    if spec.endswith("?"):
        return OptionalSegment(segment(spec[:-1]))
    if named := _NAMED.get(spec):
        return named()
    if match := _INTEGER.fullmatch(spec):
        return Integer(int(match[1]))
    if match := _SCALED.fullmatch(spec):
        return FixedPoint(int(match[1]), int(match[2]))
    if "|" in spec:
        return Choice(*spec.split("|"))
    raise DeclarationError(
        "No such segment type.",
        spec=spec,
        known=[*sorted(filter(None, _NAMED)), "0Nd", "0N.Mf", "a|b|c", "…?"],
    )
