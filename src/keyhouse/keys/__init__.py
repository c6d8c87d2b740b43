"""Keys: templates, the typed segments they consist of, and the proofs that keys do not collide.

Pure: no I/O, no clock, no async.
"""

from keyhouse.keys.escape import NATS, NATS_KEY, PLAIN, Escape
from keyhouse.keys.hmac_segment import Hmac, HmacText
from keyhouse.keys.key import Span, check_key
from keyhouse.keys.number_segments import Day, Descending, FixedPoint, Integer, Timestamp
from keyhouse.keys.segment import Segment
from keyhouse.keys.segments import (
    Choice,
    CutText,
    NormalizedText,
    OptionalSegment,
    Regex,
    TextSegment,
    Ulid,
    normal,
    segment,
)
from keyhouse.keys.template import Template

__all__ = [
    "NATS",
    "NATS_KEY",
    "PLAIN",
    "Choice",
    "CutText",
    "Day",
    "Descending",
    "Escape",
    "FixedPoint",
    "Hmac",
    "HmacText",
    "Integer",
    "NormalizedText",
    "OptionalSegment",
    "Regex",
    "Segment",
    "Span",
    "Template",
    "TextSegment",
    "Timestamp",
    "Ulid",
    "check_key",
    "normal",
    "segment",
]
