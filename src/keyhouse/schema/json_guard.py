"""Check JSON text before it is parsed: its nesting depth and its longest integer.

Theory of operation. The checks run on the event loop over text that anyone may send, so they must
not run Python code for each byte. A window of the text is reduced to its structural characters by
`bytes.translate` and `bytes.replace`; each bracket becomes a bit, eight brackets one byte, and
tables give the depth change of each such byte. The text need not be JSON: the results are then
valid up to the point where a parser would stop.
"""

import operator
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from keyhouse.errors import DocumentError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, INTEGER_DIGITS_MAX

WINDOW_BYTES: Final = 64 * 1_024
"""Bytes checked at a time. At most a few windows of the text are copied at once."""

_AS_BITS: Final = bytes.maketrans(b"[{]}", b"1100")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_DIGITS: Final = re.compile(rb"[0-9]*+")


def _depths(eight: int) -> list[int]:
    """Return the depth after each of eight brackets; the first one is the highest bit."""
    return list(accumulate(1 if eight >> bit & 1 else -1 for bit in reversed(range(8))))


_DEPTH_CHANGE: Final = bytes(_depths(eight)[-1] % 256 for eight in range(256))
_PEAK: Final = bytes(max(_depths(eight)) - _depths(eight)[-1] for eight in range(256))
"""Difference between the greatest depth within eight brackets and the depth after them."""


def check_depth(text: bytes, *, envelope_levels: int = 0) -> None:
    """Raise DocumentError if the text is nested too deep. Brackets in strings do not count.

    `envelope_levels` are allowed in addition, for an envelope around the document.
    """
    # Almost no text is deep, and starting the generator costs as much as this test.
    if _may_be_deeper(text, DOCUMENT_DEPTH_MAX + envelope_levels):
        for _ in depth_checks(text, envelope_levels=envelope_levels):
            pass


def depth_checks(text: bytes, *, envelope_levels: int = 0) -> Iterator[None]:
    """Check the depth in steps of about a millisecond, so that other tasks can run between them."""
    depth_max = DOCUMENT_DEPTH_MAX + envelope_levels
    if not _may_be_deeper(text, depth_max):
        return
    depth = 0
    for brackets in outside(text, _NO_BRACKETS, _AS_BITS):
        opened = brackets.count(b"1")
        if depth + opened > depth_max and depth + _peak(brackets) > depth_max:
            raise DocumentError("The document is nested too deep.", limit=DOCUMENT_DEPTH_MAX)
        depth += 2 * opened - len(brackets)
        yield


def _may_be_deeper(text: bytes, depth_max: int) -> bool:
    return len(text) > depth_max and text.count(b"[") + text.count(b"{") > depth_max


def check_digits(text: bytes) -> None:
    """Raise DocumentError if an integer has too many digits.

    Only every 4,001st byte is looked at: any longer run of digits contains such a byte.
    """
    inside, seen = False, 0
    for at in range(INTEGER_DIGITS_MAX, len(text), INTEGER_DIGITS_MAX + 1):
        if at < seen or not _is_among_digits(text, at):
            continue
        start, end = _digits_around(text, at)
        if end - start > INTEGER_DIGITS_MAX:
            inside ^= _quotes(text[seen:start]) % 2 == 1
            if not inside:
                raise DocumentError("An integer has too many digits.", limit=INTEGER_DIGITS_MAX)
            seen = end


def outside(text: bytes, dropped: bytes, table: bytes | None = None) -> Iterator[bytes]:
    """Yield the text outside of strings, window by window, translated as `bytes.translate` does."""
    inside, start = 0, 0
    while start < len(text):
        window = text[start : start + WINDOW_BYTES]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:  # do not cut an escape in two
            window = text[start : start + WINDOW_BYTES + 1]
        start += len(window)
        structure = _without_escapes(window).translate(table, dropped).replace(b'""', b"")
        parts = structure.split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) % 2


def _peak(brackets: bytes) -> int:
    """Return the greatest depth within the brackets (at least one), relative to the start."""
    whole = brackets + b"0" * (-len(brackets) % 8)
    eights = int(whole, 2).to_bytes(len(whole) // 8, "big")
    ends: Iterator[int] = accumulate(array("b", eights.translate(_DEPTH_CHANGE)))
    peaks: Iterator[int] = map(operator.add, ends, eights.translate(_PEAK))
    return max(peaks)


def _without_escapes(text: bytes) -> bytes:
    """Return the text without escapes of quotes: every quote left starts or ends a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _quotes(text: bytes) -> int:
    """Return the number of quotes that start or end a string."""
    return _without_escapes(text).count(b'"')


def _is_among_digits(text: bytes, at: int) -> bool:
    """Return True if half the maximum of digits is right before this byte, or right after it."""
    half = INTEGER_DIGITS_MAX // 2
    return text[at : at + 1].isdigit() and (
        text[at - half : at + 1].isdigit() or text[at : at + half + 1].isdigit()
    )


def _digits_around(text: bytes, at: int) -> tuple[int, int]:
    """Return start and end of the digits around this one, looking back no further than needed."""
    before = text[max(at - INTEGER_DIGITS_MAX - 1, 0) : at]
    digits = _DIGITS.match(text, at)
    assert digits is not None
    return at - (len(before) - len(before.rstrip(b"0123456789"))), digits.end()
