"""`keyhouse explain`: parse a key, and show its record, its derived rows and what is stored."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import msgspec
import typer

from keyhouse.cli.options import Json, Key, SpaceName, StoreName, SystemName, examples
from keyhouse.cli.output import ALARMS, Part, Report, json_text, number, show_json, show_reports
from keyhouse.cli.spaces import Target, schemas_with, space_name
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, find_store_url
from keyhouse.errors import UsageError
from keyhouse.keys import check_key
from keyhouse.schema import Schema, explanation
from keyhouse.schema.explanation import Explanation, Miss
from keyhouse.service.stored_row import StoredRow, read_stored_row


class Reading(msgspec.Struct, frozen=True):
    """One way to parse the key. A system may have several schemas, and a key may be valid in each.

    `space` is the given one, else the one in the key. `looked`: the store was read, so that
    `stored` is None only if the row does not exist.
    """

    explanation: Explanation
    space: str | None
    looked: bool = False
    stored: StoredRow | None = None


@examples(
    "keyhouse explain audiobooks idx:book:tag:fantasy:01HQ3K5V7X9ZB2D4F6G8J0K2M4",
    "keyhouse explain rosey theme --space trivia --store sqlite:bot.db",
)
def explain(
    system: SystemName,
    key: Key,
    space: SpaceName = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Explain a key: its template, fields, record and derived rows.

    With a store, also shows what is stored: revision, TTL, value, and whether each derived row is
    present and correct. For a derived row, shows its records.
    """
    check_key(key)
    loaded, space = load_system(system), space_name(space)
    schemas = schemas_with(loaded.schemas, space)
    url = find_store_url(system, store)
    readings, misses = read_key(schemas, key, space, None)
    if url is not None and (store or all(reading.space for reading in readings)):
        try:
            readings, misses = read_key(schemas, key, space, url)
        except UsageError as error:  # the default folder may have no file of this system yet
            if store is not None or "file" not in error.fields:
                raise
    if not readings:
        misses = misses or explanation.nearest(schemas, key)
    if json:
        show_json({"key": key, "found": readings, "nearest": misses})
    else:
        show_reports([_report(reading) for reading in readings] or [_no_match(key, misses)])
    if not readings:
        raise typer.Exit(1)


def read_key(
    schemas: Iterable[Schema], key: str, space: str | None, url: str | None
) -> tuple[list[Reading], list[Miss]]:
    """Return each reading of the key, with its row if there is a `url`, and the excluded ones."""
    readings: list[Reading] = []
    misses: list[Miss] = []
    for schema in schemas:
        explained = explanation.explain(schema, key)
        if explained is None:
            continue
        fields = {field.name: str(field.value) for field in explained.fields}
        named = schema.space.name or fields.get(schema.space.field or "")
        if space is not None and named is not None and named != space:
            why = f"the key belongs to the space `{named}`, not `{space}`"
            misses.append(Miss(schema.name, explained.template, why))
        elif url is None:
            readings.append(Reading(explained, space or named))
        elif (where := space or named) is None:
            raise UsageError(
                "To read the row, name its space: --space NAME.", space_is=schema.space.description
            )
        else:
            fixed = {name: text for name, text in fields.items() if name in schema.fixed}
            row = asyncio.run(read_stored(Target(schema, where, fixed), url, key))
            readings.append(Reading(explained, where, True, row))
    return readings, misses


# The stored row


async def read_stored(target: Target, url: str, key: str) -> StoredRow | None:
    """Return the row at a key, with the rows related to it; None if it does not exist."""
    async with engine_at(url, existing=True) as engine:
        return await read_stored_row(target.store(engine), key)


# The report


def _report(reading: Reading) -> Report:
    of = reading.explanation
    where = f" in the space `{reading.space}`" if reading.space else ""
    is_record = of.record_key is None
    what = (
        f"The {of.kind} `{of.record}`"
        if is_record
        else f"A derived row ({of.kind}) of the record `{of.record}`"
    )
    parts = [
        Part("Key", [("schema", of.schema), ("template", f"`{of.template}`"), *_current(of)]),
        Part("Fields", [(field.name, _value(field.value), field.type) for field in of.fields]),
    ]
    if reading.stored is None:
        parts.append(Part("Derived rows", [(row.kind, f"`{row.key}`") for row in of.derived]))
        parts.append(Part("Its record", [] if is_record else [_record(of)]))
    if reading.looked and reading.stored is None:
        parts.append(Part("Stored", [("nothing", "no row at this key, or it expired")]))
    if reading.stored is not None:
        parts += _stored_parts(reading.stored, "Derived rows" if is_record else "Its records")
        if any(row.state in ALARMS for row in reading.stored.neighbours):
            repair = ("`keyhouse verify --repair`", "repairs missing and wrong rows")
            parts.append(Part("What to do", [repair]))
    return Report(of.key, f"{what}{where}.", parts)


def _no_match(key: str, misses: list[Miss]) -> Report:
    nearest = Part("Nearest", [(f"`{miss.template}`", miss.why) for miss in misses])
    return Report(key, "The key matches no template.", [nearest])


def _current(of: Explanation) -> list[tuple[str, str]]:
    return [] if of.current_key is None else [("legacy key of", f"`{of.current_key}`")]


def _record(of: Explanation) -> tuple[str, ...]:
    held = ", ".join(f"`{name}`" for name in of.fields_in_value)
    return of.record, f"`{of.record_key}`", f"with {held} from the row's value" if held else ""


def _stored_parts(stored: StoredRow, title: str) -> list[Part]:
    left = "none"
    if stored.seconds_left is not None:
        left = f"{timedelta(seconds=stored.seconds_left)} left, until {stored.expires}"
    rows = [
        ("revision", str(stored.revision)),
        ("TTL", left),
        ("size", number(stored.value_bytes, "byte")),
    ]
    rows.append(
        ("unreadable", stored.unreadable) if stored.unreadable else ("value", _json(stored.value))
    )
    related = [
        (row.kind, f"`{row.key}`", row.state, "" if row.value is None else _json(row.value))
        for row in stored.neighbours
    ]
    return [Part("Stored", rows), Part(title, related)]


def _value(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return f"`{json_text(value)}`"
