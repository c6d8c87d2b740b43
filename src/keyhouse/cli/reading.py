"""The readings of a key: a system may have several schemas, and a key may be one of each, in spaces of their own."""

from collections.abc import Iterable

import msgspec

from keyhouse.cli.stored import Stored, read_stored
from keyhouse.errors import UsageError
from keyhouse.schema import Schema
from keyhouse.schema.explanation import Explanation, Miss, explain


class Reading(msgspec.Struct, frozen=True):
    """`space`: the one given, else the one that the key names. `looked`: the store was asked, so `stored` is the answer."""

    explanation: Explanation
    space: str | None
    looked: bool = False
    stored: Stored | None = None


def readings(
    schemas: Iterable[Schema], key: str, space: str | None, store: str | None
) -> tuple[list[Reading], list[Miss]]:
    """Each reading of the key, with its row if `store` names an engine; and those that the space rules out."""
    found: list[Reading] = []
    misses: list[Miss] = []
    for schema in schemas:
        explanation = explain(schema, key)
        if explanation is None:
            continue
        named = _space_named(schema, explanation)
        if space is not None and named is not None and named != space:
            misses.append(
                Miss(
                    schema.name,
                    explanation.template,
                    f"it is a key of the space `{named}`, not of `{space}`",
                )
            )
        elif store is None:
            found.append(Reading(explanation, space or named))
        else:
            found.append(_looked_up(schema, explanation, space or named, store))
    return found, misses


def _space_named(schema: Schema, explanation: Explanation) -> str | None:
    fields = {field.name: str(field.value) for field in explanation.fields}
    return schema.space.name or fields.get(schema.space.field or "")


def _looked_up(schema: Schema, explanation: Explanation, space: str | None, store: str) -> Reading:
    if space is None:
        raise UsageError(
            "To read the row, say with --space which space it is in.",
            space_is=schema.space.description,
        )
    fixed = {
        field.name: str(field.value) for field in explanation.fields if field.name in schema.fixed
    }
    return Reading(
        explanation, space, True, read_stored(schema, store, space, explanation.key, fixed)
    )
