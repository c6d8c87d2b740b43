"""The text of a cursor: bytes in the alphabet of URLs. Only its scan knows their meaning."""

import base64
import binascii

from keyhouse.errors import CursorError

__all__ = ["decode_cursor", "encode_cursor", "invalid_cursor"]


def encode_cursor(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_cursor(cursor: str) -> bytes:
    """Raises CursorError for any other text."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, b"-_", validate=True)
    except (binascii.Error, ValueError, AttributeError):  # a caller's argument, of any type
        raise invalid_cursor(cursor) from None


def invalid_cursor(cursor: str) -> CursorError:
    return CursorError("Invalid cursor: pass one exactly as a page returned it.", cursor=cursor)
