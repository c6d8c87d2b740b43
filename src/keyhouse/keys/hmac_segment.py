"""Key fields that hold an HMAC instead of their value: for indexes of sealed members."""

import hmac

from keyhouse.keys.segment import Segment

INDEX_KEY = ""
"""The name under which a binding gives the key of all HMACs. No field has it."""

_DIGEST_CHARS = 32


class HmacText(str):
    """The HMAC of a value, as it is parsed from a key. It formats to itself."""

    __slots__ = ()


class Hmac(Segment):
    """The HMAC-SHA-256 of a text in 32 hexadecimal digits, half of its bits: `{email:hmac}`.

    It finds a record by the exact text, and tells nothing of it without the key, which comes from
    the store's key ring. A parsed key yields an `HmacText`, since the text cannot be recovered.
    """

    length = _DIGEST_CHARS
    takes = (str,)
    normalizes = True
    is_hashed = True
    pattern = f"[0-9a-f]{{{_DIGEST_CHARS}}}"
    description = "the HMAC of a text"

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def with_key(self, key: bytes) -> "Hmac":
        return Hmac(key)

    def format(self, value: object) -> str:
        if isinstance(value, HmacText):
            return str(value)
        if not isinstance(value, str) or not value:
            raise ValueError("must be text that is not empty")
        if self._key is None:
            raise ValueError("is stored as an HMAC: open the store with its key ring")
        try:
            return hmac.digest(self._key, value.encode(), "sha256").hex()[:_DIGEST_CHARS]
        except UnicodeEncodeError:
            raise ValueError("contains a lone surrogate, which is not text") from None

    def parse(self, text: str) -> HmacText:
        return HmacText(text)
