"""A key as text, and a span of keys: the two things about keys that engines need to know."""

import msgspec

from keyhouse.errors import KeyFieldError
from keyhouse.limits import KEY_BYTES_MAX


class Span(msgspec.Struct, frozen=True, gc=False):
    """The keys from `start` up to, and without, `stop`; `None`: without end."""

    start: str = ""
    stop: str | None = None

    @staticmethod
    def prefix(text: str) -> "Span":
        """All keys that start with `text`, literally: no character has a meaning of its own."""
        if not isinstance(text, str):
            raise KeyFieldError("A key must be text.", key=text)
        return Span(text, _after_all_with_prefix(text))

    @staticmethod
    def only(key: str) -> "Span":
        """That key and no other."""
        return Span(key, key + "\0")

    def after(self, key: str) -> "Span":
        """What is left of this span behind `key`, going forward."""
        return Span(max(self.start, key + "\0"), self.stop)

    def before(self, key: str) -> "Span":
        """What is left of this span in front of `key`, going backward."""
        return Span(self.start, key if self.stop is None else min(self.stop, key))

    def __contains__(self, key: str) -> bool:
        return self.start <= key and (self.stop is None or key < self.stop)


def _after_all_with_prefix(text: str) -> str | None:
    """The least text greater than all that start with `text`; `None` where there is no such text."""
    while text:
        last = ord(text[-1])
        if last < 0x10FFFF:
            return text[:-1] + chr(
                0xE000 if last == 0xD7FF else last + 1
            )  # surrogates are not text
        text = text[:-1]
    return None


def check_key(key: str) -> int:
    """The key's length in bytes; refused when it is empty, too long, or not text that every engine keeps."""
    if not isinstance(key, str):
        raise KeyFieldError("A key must be text.", key=key)
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError as error:
        raise KeyFieldError(
            "A key must be text: this one holds a lone surrogate.", key=key
        ) from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise KeyFieldError(
            "A key has 1 to 1,024 bytes of UTF-8.", key=key, bytes=size, limit=KEY_BYTES_MAX
        )
    if "\0" in key:
        raise KeyFieldError("A key can't hold the character U+0000.", key=key)
    return size
