"""Key validation and key spans: all that engines need to know about keys."""

import msgspec

from keyhouse.errors import KeyFieldError
from keyhouse.limits import KEY_BYTES_MAX


class Span(msgspec.Struct, frozen=True, gc=False):
    """The keys from `start` (included) to `stop` (excluded); None: no upper bound."""

    start: str = ""
    stop: str | None = None

    @staticmethod
    def prefix(text: str) -> "Span":
        """Return the span of all keys that start with `text`, taken literally."""
        if not isinstance(text, str):
            raise KeyFieldError("A key must be text.", key=text)
        return Span(text, _after_all_with_prefix(text))

    @staticmethod
    def only(key: str) -> "Span":
        """Return the span of a single key."""
        return Span(key, key + "\0")

    def after(self, key: str) -> "Span":
        """Return the part of this span after `key`: the next page of a forward scan."""
        return Span(max(self.start, key + "\0"), self.stop)

    def before(self, key: str) -> "Span":
        """Return the part of this span before `key`: the next page of a reverse scan."""
        return Span(self.start, key if self.stop is None else min(self.stop, key))

    def rest(self, key: str, *, reverse: bool) -> "Span":
        """Return the part of this span behind `key`: the next page of a scan in either order."""
        return self.before(key) if reverse else self.after(key)

    def __contains__(self, key: str) -> bool:
        return self.start <= key and (self.stop is None or key < self.stop)


def _after_all_with_prefix(text: str) -> str | None:
    """Return the smallest text after all that start with `text`, or None if there is none."""
    while text:
        last = ord(text[-1])
        if last < 0x10FFFF:
            # Skip the surrogates: they are not text.
            return text[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        text = text[:-1]
    return None


def check_key(key: str) -> int:
    """Return the key's length in bytes.

    Raises KeyFieldError if it is empty, too long, or not text that every engine stores.
    """
    if not isinstance(key, str):
        raise KeyFieldError("A key must be text.", key=key)
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError as error:
        raise KeyFieldError(
            "A key must be text: this one contains a lone surrogate.", key=key
        ) from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise KeyFieldError(
            "A key has 1 to 1,024 bytes of UTF-8.", key=key, bytes=size, limit=KEY_BYTES_MAX
        )
    if "\0" in key:
        raise KeyFieldError("A key cannot contain U+0000.", key=key)
    return size
