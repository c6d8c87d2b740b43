"""Reversible escaping: text that must not hold some characters, written so that it can be read back.

An escaped character is its UTF-8 bytes, each as a mark and two upper-case hexadecimal digits: `%3A` for `:`, and `%25`
for the mark itself. Each text has exactly one escaped form: `unescape` refuses every other, so that a key never has two
spellings.
"""

import re

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError

NOTHING = r"(?!)"


class Escape:
    """What is escaped (a regular expression of one character, which may look around itself), and by which mark.

    `alphabet` is a regular expression's class of what escaped text is made of; `None`: all that isn't escaped.
    """

    __slots__ = ("_bad", "_finds", "alphabet", "bad", "looks_around", "mark")

    @checked(DeclarationError)
    def __init__(
        self, mark: str, bad: str, *, alphabet: str | None = None, looks_around: bool = False
    ) -> None:
        self.mark = mark
        self.bad = bad
        self.alphabet = alphabet
        self.looks_around = looks_around
        try:
            self._bad = re.compile(f"{bad}|{re.escape(mark)}")
        except re.error as error:
            raise DeclarationError(
                "Not a regular expression.", pattern=bad, reason=str(error)
            ) from None
        self._finds = self._bad.search

    def and_also(self, characters: str) -> "Escape":
        """The same, and these characters too."""
        if not characters:
            return self
        bad = (
            f"{self.bad}|[{re.escape(characters)}]"
            if self.bad != NOTHING
            else f"[{re.escape(characters)}]"
        )
        return Escape(self.mark, bad, alphabet=self.alphabet, looks_around=self.looks_around)

    def escape(self, text: str) -> str:
        return self._bad.sub(self._escaped, text) if self._finds(text) else text

    def unescape(self, text: str) -> str | None:
        """The text that `escape` wrote so; `None` when it writes no text so."""
        if self.mark not in text:
            plain = text
        else:
            runs = rf"(?:{re.escape(self.mark)}[0-9A-F]{{2}})+"
            try:
                plain = re.sub(runs, self._unescaped, text)
            except UnicodeDecodeError:
                return None
        return plain if self.escape(plain) == text else None

    def _escaped(self, match: re.Match[str]) -> str:
        return "".join(f"{self.mark}{byte:02X}" for byte in match[0].encode())

    def _unescaped(self, match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace(self.mark, "")).decode()


PLAIN = Escape("%", NOTHING)
"""Escapes only what a template needs: the character that ends a segment, and the mark."""

NATS_KEY = Escape(
    "=", r"[^-/_.a-zA-Z0-9]|(?<![^.])\.|\.(?![^.])", alphabet="-/_=.a-zA-Z0-9", looks_around=True
)
"""A whole key in the alphabet of NATS, `[-/_=.a-zA-Z0-9]`; a dot neither first, nor last, nor beside another."""

NATS = Escape(
    "=", r"[^-_.a-zA-Z0-9]|(?<![^.])\.|\.(?![^.])", alphabet="-_=.a-zA-Z0-9", looks_around=True
)
"""One field of a template whose fields are divided by `/`, in that alphabet."""
