"""Keys: templates, the typed segments they consist of, and the proofs that keys do not collide.

Pure: no I/O, no clock, no async.
"""

from keyhouse.keys.escape import NATS, NATS_KEY, PLAIN, Escape
from keyhouse.keys.key import Span, check_key
from keyhouse.keys.segments import (
    Choice,
    Day,
    FixedPoint,
    Integer,
    NormalizedText,
    OptionalSegment,
    Regex,
    Segment,
    Text,
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
    "Day",
    "Escape",
    "FixedPoint",
    "Integer",
    "NormalizedText",
    "OptionalSegment",
    "Regex",
    "Segment",
    "Span",
    "Template",
    "Text",
    "Ulid",
    "check_key",
    "normal",
    "segment",
]
