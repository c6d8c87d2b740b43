"""Ranges of keys by a part of their values: the next field starts with a text, or lies between two
values.

A range is a span, and where a span cannot say it exactly, also a test of the field's value.
Numbers, days, times and ULIDs need none: their texts have one length, and sort as their values.
Text needs one, because a key sorts by escaped text and by the delimiter after it: `a!` comes before
`a:`. The span then covers the values that share the leading characters of both bounds.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from keyhouse.keys.key import Span
from keyhouse.keys.segment import Segment
from keyhouse.keys.segments import text_of

NULL = "null"


class KeyRange(msgspec.Struct, frozen=True):
    """A span of keys, and the test that the value of `field` must pass; None: every one does."""

    span: Span
    field: str = ""
    accepts: Callable[[Any], bool] | None = None


def with_prefix(name: str, segment: Segment, lead: str, prefix: object) -> KeyRange:
    """Return the keys that start with `lead` and whose next field starts with `prefix`."""
    if not segment.is_text:
        raise ValueError("is not text, so it cannot be searched by prefix")
    if not isinstance(prefix, str):
        raise ValueError("is text: its prefix must be text too")
    text, exact = segment.format_prefix(prefix)
    span = Span.prefix(lead + text)
    if exact:
        return KeyRange(span)
    wanted = segment.bound(prefix)
    return KeyRange(span, name, lambda value: value.startswith(wanted))


def within(
    name: str, segment: Segment, lead: str, tail: str, between: tuple[object, object]
) -> KeyRange:
    """Return the keys that start with `lead` and whose next field is at least the first value and
    less than the second; None means no bound. A field that is null lies in no range."""
    try:
        low, high = between
    except (TypeError, ValueError):
        raise ValueError("needs two bounds: between=(low, high), either may be None") from None
    inner = segment.non_null
    if inner.length is not None and not inner.is_hashed:
        return KeyRange(_fixed_span(lead, inner, low, high, segment.is_optional))
    if inner.is_text:
        return _text_range(name, inner, lead, tail, low, high)
    raise ValueError("has no order: a range is of numbers, days, times, ULIDs or text")


def _fixed_span(lead: str, segment: Segment, low: object, high: object, optional: bool) -> Span:
    """Return the span of values whose texts all have the same length."""
    least = None if low is None else lead + segment.format(low)
    end = None if high is None else lead + segment.format(high)
    if segment.is_descending:  # the greatest first, and `high` is excluded
        least, end = (_after(end), _after(least))
    # Null sorts after digits and capitals, so after every text of such a type.
    whole = Span(lead, lead + NULL) if optional else Span.prefix(lead)
    return _span(whole.start if least is None else least, whole.stop if end is None else end)


def _after(text: str | None) -> str | None:
    """Return the end of all keys that start with this text."""
    return None if text is None else Span.prefix(text).stop


def _text_range(
    name: str, segment: Segment, lead: str, tail: str, low: object, high: object
) -> KeyRange:
    for bound in (low, high):
        if bound is not None and not isinstance(bound, str):
            raise ValueError("is text: the bounds of its range must be text too")
        if bound:
            text_of(bound)
    least = segment.bound(low) if isinstance(low, str) else ""
    end = segment.bound(high) if isinstance(high, str) else None

    def accepts(value: str | None) -> bool:
        return value is not None and least <= value and (end is None or value < end)

    shared = "" if end is None else _shared_start(least, end)
    start, stop = lead, Span.prefix(lead).stop
    if shared:
        lead += segment.format_prefix(shared)[0]
        start, stop = lead, Span.prefix(lead).stop
        if not segment.format_prefix(shared)[1]:
            return KeyRange(Span(start, stop), name, accepts)
    if len(least) > len(shared):
        start = lead + segment.lowest_from(least[len(shared)])
    if end is not None:
        if end <= least:
            return KeyRange(_span(lead, lead))
        highest = segment.highest_to(end[len(shared)])
        stop = _after(lead + max(highest, tail[:1]))
    return KeyRange(_span(start, stop), name, accepts)


def _shared_start(one: str, other: str) -> str:
    """Return the characters that both texts start with."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:index]
    return min(one, other, key=len)


def _span(start: str, stop: str | None) -> Span:
    """Return the span; an empty one if it ends before it starts."""
    return Span(start, start) if stop is not None and stop < start else Span(start, stop)
