"""Explain a key: its template and fields, or the templates it is closest to.

Pure: it sees only the key, never a stored row.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from keyhouse.keys.template import Template
from keyhouse.schema.derived import BoundDerived
from keyhouse.schema.description import FieldText
from keyhouse.schema.record import BoundRecord
from keyhouse.schema.schema import Schema

__all__ = ["Explanation", "FieldValue", "Miss", "RelatedKey", "explain", "nearest"]


class FieldValue(FieldText, frozen=True, kw_only=True):
    value: Any


class RelatedKey(msgspec.Struct, frozen=True):
    """Another key that belongs to this one. Fields not determined by this key are `{name}`."""

    kind: str
    key: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a key.

    derived            the derived rows of a record
    record_key         the record of a derived row
    current_key        the key to which a write moves the record, if it is another
    fields_in_value    fields of `record_key` that only the row's value has
    """

    schema: str
    key: str
    kind: str
    record: str
    template: str
    fields: list[FieldValue]
    derived: list[RelatedKey] = []
    record_key: str | None = None
    current_key: str | None = None
    fields_in_value: list[str] = []


class Miss(msgspec.Struct, frozen=True):
    """A template that does not match the key, and the reason."""

    schema: str
    template: str
    why: str


def explain(schema: Schema, key: str) -> Explanation | None:
    """Explain a key of this schema; None if no template matches it."""
    match = schema.find(key)
    if match is None:
        return None
    declared, record = match.declared, match.record
    template: Template = declared.template
    explanation = Explanation(
        schema=schema.name,
        key=key,
        kind=declared.declared.kind,
        record=record.name,
        template=template.text,
        fields=[
            FieldValue(name, segment.description, value=value)
            for name, segment, value in zip(
                template.fields, template.segments, match.values, strict=True
            )
        ],
    )
    if isinstance(declared, BoundRecord):
        related = [
            RelatedKey(derived.declared.kind, _derived_key(derived, match.fields))
            for derived in record.derived
        ]
        current = None if declared is record else record.template.join(match.values)
        return msgspec.structs.replace(explanation, derived=related, current_key=current)
    carried = declared.declared.carried()
    known = {
        name: value
        for name, value in match.fields.items()
        if name not in declared.declared.fields and name != carried
    }
    in_value = [carried] if carried is not None and carried in record.template.fields else []
    return msgspec.structs.replace(
        explanation, record_key=_fill(record.template, known), fields_in_value=in_value
    )


def _derived_key(derived: BoundDerived, record_fields: Mapping[str, object]) -> str:
    """Return the key of a derived row, as far as the record's key determines it."""
    from_value = derived.declared.fields.keys() | derived.declared.each.keys()
    return _fill(
        derived.template,
        {name: value for name, value in record_fields.items() if name not in from_value},
    )


def nearest(schemas: Iterable[Schema], key: str, *, limit: int = 3) -> list[Miss]:
    """Return the templates that match the most characters of the key, the closest first."""
    misses = [
        (matched, Miss(schema.name, declared.template.text, why))
        for schema in schemas
        for _, declared in schema.declared()
        for matched, why in [_miss(declared.template, key)]
    ]
    misses.sort(key=lambda miss: -miss[0])
    return [miss for matched, miss in misses[:limit] if matched or not misses[0][0]]


def _miss(template: Template, key: str) -> tuple[int, str]:
    """Return the number of matching characters, and the reason why the rest does not match."""
    shared = _common_prefix(template.head, key)
    if shared < len(template.head):
        return shared, f"its keys start with `{template.head}`"
    at = shared
    for name, segment, tail in zip(
        template.fields, template.segments, template.literals[1:], strict=True
    ):
        match = re.compile(f"({segment.pattern}){re.escape(tail)}", re.DOTALL).match(key, at)
        if match is None or not _parses(segment, match[1]):
            rest = key[at:].partition(tail)[0] if tail else key[at:]
            if tail and tail not in key[at:]:
                return at + len(rest), f"after `{name}` it has `{tail}`, which the key does not"
            return (
                at,
                f"its field `{name}` is {segment.description}, and `{rest}` is not"
                if rest
                else f"it continues with `{name}`",
            )
        at = match.end()
    rest = key[at:]
    return at, f"it ends before `{rest}`" if rest else "its fields cannot be separated there"


def _parses(segment: Any, text: str) -> bool:
    try:
        segment.parse(text)
    except ValueError:
        return False
    return True


def _common_prefix(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _fill(template: Template, known: Mapping[str, object]) -> str:
    text = template.head
    for name, segment, tail in zip(
        template.fields, template.segments, template.literals[1:], strict=True
    ):
        text += (segment.format(known[name]) if name in known else "{" + name + "}") + tail
    return text
