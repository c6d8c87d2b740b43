"""Limits of tokens, secrets and key sets."""

from typing import Final

TOKEN_BYTES_MAX: Final = 8_192
"""A token as it is sent: about the longest header that HTTP servers accept."""

TOKENS_CACHED_MAX: Final = 10_000
"""Verified tokens in the cache."""

SECRET_BYTES_MIN: Final = 32
"""A secret that signs tokens: the length of the HS256 hash (RFC 7518, 3.2)."""

SECRET_CHARS_MIN: Final = 8
"""Different characters of such a secret. A random one of 32 hexadecimal digits has 9 or more in all
but one of 50,000."""

JWKS_BYTES_MAX: Final = 1_024 * 1_024
"""A fetched JWKS document. Real ones have a few KB."""

JWKS_TIMEOUT_SECONDS: Final = 5.0
"""Timeout of a JWKS fetch, and of requests that wait for it."""
