"""What one key is, and what a key of no template is nearest to. Pure: it looks at the key, never at a stored row."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from keyhouse.keys.template import Template
from keyhouse.schema.derived import Derived
from keyhouse.schema.description import FieldText, kind_of
from keyhouse.schema.record import Record
from keyhouse.schema.schema import Schema

__all__ = ["Explanation", "FieldValue", "Miss", "Relation", "explain", "nearest"]


class FieldValue(FieldText, frozen=True, kw_only=True):
    value: Any


class Relation(msgspec.Struct, frozen=True):
    """Another key that belongs with this one. What is not known from this key stands in it as `{name}`."""

    kind: str
    key: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`earns`: the rows derived from it, if it is a record. `record_key`: the key of its record, if it is a derived row;
    fields that the row's value holds are in `held`. `current_key`: the key to which a write moves it, if it is a legacy key."""

    schema: str
    key: str
    kind: str
    record: str
    template: str
    fields: list[FieldValue]
    earns: list[Relation] = []
    record_key: str | None = None
    current_key: str | None = None
    held: list[str] = []


class Miss(msgspec.Struct, frozen=True):
    """A template that the key is not of, and why not."""

    schema: str
    template: str
    why: str


def explain(schema: Schema, key: str) -> Explanation | None:
    """What the key is in this schema, or `None`."""
    found = schema.find(key)
    if found is None:
        return None
    declared, record = found.declared, found.record
    template: Template = declared.template
    explanation = Explanation(
        schema=schema.name,
        key=key,
        kind=kind_of(declared),
        record=record.name,
        template=template.text,
        fields=[
            FieldValue(name, segment.what, value=value)
            for name, segment, value in zip(
                template.fields, template.segments, found.values, strict=True
            )
        ],
    )
    if isinstance(declared, Record):
        earns = [
            Relation(kind_of(derived), _earned_key(derived, found.fields))
            for derived in record.derived
        ]
        current = None if declared is record else record.template.join(found.values)
        return msgspec.structs.replace(explanation, earns=earns, current_key=current)
    carried = declared.carried()
    known = {
        name: value
        for name, value in found.fields.items()
        if name not in declared.fields and name != carried
    }
    held = [carried] if carried is not None and carried in record.template.fields else []
    return msgspec.structs.replace(
        explanation, record_key=_filled(record.template, known), held=held
    )


def _earned_key(derived: Derived, record_fields: Mapping[str, object]) -> str:
    """The key of a row that a record earns, as far as the record's own key tells it."""
    taken = derived.fields.keys() | derived.each.keys()
    return _filled(
        derived.template,
        {name: value for name, value in record_fields.items() if name not in taken},
    )


def nearest(schemas: Iterable[Schema], key: str, *, limit: int = 3) -> list[Miss]:
    """The templates that the key comes closest to, the closest first."""
    misses = [
        (reached, Miss(schema.name, declared.template.text, why))
        for schema in schemas
        for _, declared in schema.declared()
        for reached, why in [_miss(declared.template, key)]
    ]
    misses.sort(key=lambda miss: -miss[0])
    return [miss for reached, miss in misses[:limit] if reached or not misses[0][0]]


def _miss(template: Template, key: str) -> tuple[int, str]:
    """How many characters of the key fit, and what is wrong with the rest."""
    shared = _shared(template.head, key)
    if shared < len(template.head):
        return shared, f"its keys start with `{template.head}`"
    at = shared
    for name, segment, tail in zip(
        template.fields, template.segments, template.literals[1:], strict=True
    ):
        found = re.compile(f"({segment.pattern}){re.escape(tail)}", re.DOTALL).match(key, at)
        if found is None or not _reads(segment, found[1]):
            rest = key[at:].partition(tail)[0] if tail else key[at:]
            if tail and tail not in key[at:]:
                return at + len(rest), f"behind `{name}` it has `{tail}`, which the key does not"
            return (
                at,
                f"its field `{name}` is {segment.what}, and `{rest}` is not"
                if rest
                else f"it goes on with `{name}`",
            )
        at = found.end()
    return at, f"it ends before `{key[at:]}`" if at < len(
        key
    ) else "its fields can't be told apart there"


def _reads(segment: Any, text: str) -> bool:
    try:
        segment.parse(text)
    except ValueError:
        return False
    return True


def _shared(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _filled(template: Template, known: Mapping[str, object]) -> str:
    text = template.head
    for name, segment, tail in zip(
        template.fields, template.segments, template.literals[1:], strict=True
    ):
        text += (segment.format(known[name]) if name in known else "{" + name + "}") + tail
    return text
