"""Reversible escaping of characters that a key must not contain.

An escaped character is written as its UTF-8 bytes, each as a mark and two upper-case hexadecimal
digits: `%3A` for `:`, and `%25` for the mark itself. Each text has exactly one escaped form and
`unescape` rejects every other, so a key never has two spellings.
"""

import re

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError

NOTHING = r"(?!)"


class Escape:
    """The characters to escape, and the mark to escape them with.

    `bad` is a regular expression of one character; with `looks_around` it uses lookaround, to tell
    whether a dot is escaped by what stands next to it.
    `alphabet` is the regular expression class of escaped text; None: every character that is not
    escaped.
    """

    __slots__ = ("_bad", "_finds", "_runs", "alphabet", "bad", "ends", "looks_around", "mark")

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
        self._runs = re.compile(rf"(?:{re.escape(mark)}[0-9A-F]{{2}})+")
        self.ends = ""
        """The one character to escape besides the mark; empty if there may be others."""

    def and_also(self, characters: str) -> "Escape":
        """Return an Escape that also escapes these characters."""
        if not characters:
            return self
        bad = (
            f"{self.bad}|[{re.escape(characters)}]"
            if self.bad != NOTHING
            else f"[{re.escape(characters)}]"
        )
        escape = Escape(self.mark, bad, alphabet=self.alphabet, looks_around=self.looks_around)
        if self.bad == NOTHING and len(characters) == 1:
            escape.ends = characters
        return escape

    def changes(self, text: str) -> bool:
        """Return whether the text differs from its escaped form."""
        return self._finds(text) is not None

    def escape(self, text: str) -> str:
        if self.ends and self.ends not in text and self.mark not in text:
            return text  # the common case, without a regular expression
        return self._bad.sub(self._escaped, text) if self._finds(text) else text

    def escape_prefix(self, text: str) -> tuple[str, bool]:
        """Return what the escaped form of every text that starts with `text` starts with, and
        whether only theirs does."""
        if self.looks_around and text.endswith(".") and not text.endswith("..") and text != ".":
            return self.escape(text[:-1]), False  # the dot is escaped or not, by what follows it
        return self.escape(text), True

    def escapes_from(self, character: str) -> bool:
        """Return whether this character, or a greater one, may be escaped."""
        if self.alphabet is not None or self.looks_around:
            return True
        return any(
            self._finds(chr(code)) is not None
            for code in range(ord(character), max(128, ord(character) + 1))
        )

    def unescape(self, text: str) -> str | None:
        """Return the text whose escaped form this is, or None if there is none."""
        if self.mark not in text:
            plain = text
        else:
            try:
                plain = self._runs.sub(self._unescaped, text)
            except UnicodeDecodeError:
                return None
        return plain if self.escape(plain) == text else None

    def _escaped(self, match: re.Match[str]) -> str:
        return "".join(f"{self.mark}{byte:02X}" for byte in match[0].encode())

    def _unescaped(self, match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace(self.mark, "")).decode()


PLAIN = Escape("%", NOTHING)
"""Escapes only the character that ends a segment, and the mark."""

NATS_KEY = Escape(
    "=", r"[^-/_.a-zA-Z0-9]|(?<![^.])\.|\.(?![^.])", alphabet="-/_=.a-zA-Z0-9", looks_around=True
)
"""Escapes a whole key to the NATS alphabet, `[-/_=.a-zA-Z0-9]`. A dot is escaped at the start, at
the end and next to another dot."""

NATS = Escape(
    "=", r"[^-_.a-zA-Z0-9]|(?<![^.])\.|\.(?![^.])", alphabet="-_=.a-zA-Z0-9", looks_around=True
)
"""Escapes one field to the NATS alphabet, for templates whose fields are separated by `/`."""
