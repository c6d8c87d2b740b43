"""What is told of a JSON text before a parser sees it: how deep it is, how many values it has, whether its numbers end.

It runs on the one event loop, over whatever anyone sends, so no byte of a text costs a step of Python: a window of it is
brought down to its signs by passes of the library, eight brackets become one byte, and tables know how far each such byte
rises. The text may be no JSON: then what is told of it holds up to the place where a parser stops.
"""

import operator
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from keyhouse.errors import DocumentError, LimitError
from keyhouse.limits import DOCUMENT_DEPTH_MAX, INTEGER_DIGITS_MAX

_WINDOW_BYTES: Final = 64 * 1_024
"""Looked at in one go. What has to be copied of a text is never more than a few of these."""

_AS_BITS: Final = bytes.maketrans(b"[{]}", b"1100")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_NO_BEGINNINGS: Final = bytes(set(range(256)) - set(b'[{,"'))
_DIGITS: Final = re.compile(rb"[0-9]*+")


def _rises(eight: int) -> list[int]:
    """How far eight brackets have risen after each of them; the first is the highest bit."""
    return list(accumulate(1 if eight >> bit & 1 else -1 for bit in reversed(range(8))))


_RISE: Final = bytes(_rises(eight)[-1] % 256 for eight in range(256))
_PEAK: Final = bytes(max(_rises(eight)) - _rises(eight)[-1] for eight in range(256))
"""How far the highest of eight brackets is above the last of them."""


def check_depth(text: bytes, *, beneath: int = 0) -> None:
    """Refuse text nested too deep. Brackets within strings don't count. `beneath`: the levels of an envelope around it."""
    if _may_be_deeper(
        text, DOCUMENT_DEPTH_MAX + beneath
    ):  # nearly none is, and a generator costs as much as this
        for _ in depth_checks(text, beneath=beneath):
            pass


def depth_checks(text: bytes, *, beneath: int = 0) -> Iterator[None]:
    """The same in steps of a millisecond or so, for who has others to answer meanwhile."""
    most = DOCUMENT_DEPTH_MAX + beneath
    if not _may_be_deeper(text, most):
        return
    depth = 0
    for brackets in _outside(text, _NO_BRACKETS, _AS_BITS):
        opened = brackets.count(b"1")
        if depth + opened > most and depth + _peak(brackets) > most:
            raise DocumentError("The document is nested too deep.", limit=DOCUMENT_DEPTH_MAX)
        depth += 2 * opened - len(brackets)
        yield


def _may_be_deeper(text: bytes, most: int) -> bool:
    return len(text) > most and text.count(b"[") + text.count(b"{") > most


def value_checks(text: bytes, most: int) -> Iterator[None]:
    """Refuse text of more values, in steps too: each takes many times the memory of its text. Each begins behind a bracket
    or a comma, so what is counted is those."""
    if sum(map(text.count, (b"[", b"{", b","))) <= most:
        return
    values = 0
    for beginnings in _outside(text, _NO_BEGINNINGS):
        values += len(beginnings)
        if values > most:
            raise LimitError("The document holds too many values: send several.", limit=most)
        yield


def check_digits(text: bytes) -> None:
    """Refuse an integer of more digits than may be. So many in a row are found by a look at every so manieth byte."""
    inside, seen = False, 0
    for at in range(INTEGER_DIGITS_MAX, len(text), INTEGER_DIGITS_MAX + 1):
        if at < seen or not _is_amid_digits(text, at):
            continue
        start, end = _run(text, at)
        if end - start > INTEGER_DIGITS_MAX:
            inside ^= _quotes(text[seen:start]) % 2 == 1
            if not inside:
                raise DocumentError("An integer has too many digits.", limit=INTEGER_DIGITS_MAX)
            seen = end


def _outside(text: bytes, dropped: bytes, table: bytes | None = None) -> Iterator[bytes]:
    """What is outside of strings, window by window, without the bytes to be dropped, and by the table."""
    inside, start = 0, 0
    while start < len(text):
        window = text[start : start + _WINDOW_BYTES]
        if (
            len(window) - len(window.rstrip(b"\\"))
        ) % 2:  # the end of an escape belongs to its beginning
            window = text[start : start + _WINDOW_BYTES + 1]
        start += len(window)
        signs = _unescaped(window).translate(table, dropped).replace(b'""', b"")
        parts = signs.split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) % 2


def _peak(brackets: bytes) -> int:
    """How far above its beginning the highest of them is; there is one at least."""
    whole = brackets + b"0" * (-len(brackets) % 8)
    eights = int(whole, 2).to_bytes(len(whole) // 8, "big")
    lasts: Iterator[int] = accumulate(array("b", eights.translate(_RISE)))
    tops: Iterator[int] = map(operator.add, lasts, eights.translate(_PEAK))
    return max(tops)


def _unescaped(text: bytes) -> bytes:
    """Without the escapes that a quote could be a part of: what is left of quotes begins and ends a string."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text


def _quotes(text: bytes) -> int:
    """Those that begin or end a string."""
    return _unescaped(text).count(b'"')


def _is_amid_digits(text: bytes, at: int) -> bool:
    """Whether so many stand there that a half of them is before this byte, or behind it."""
    half = INTEGER_DIGITS_MAX // 2
    return text[at : at + 1].isdigit() and (
        text[at - half : at + 1].isdigit() or text[at : at + half + 1].isdigit()
    )


def _run(text: bytes, at: int) -> tuple[int, int]:
    """Where the digits around this one begin and end, as far as it matters how many are before it."""
    before = text[max(at - INTEGER_DIGITS_MAX - 1, 0) : at]
    found = _DIGITS.match(text, at)
    assert found is not None
    return at - (len(before) - len(before.rstrip(b"0123456789"))), found.end()
