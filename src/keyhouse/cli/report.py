"""What `explain` found, as a report for people."""

from datetime import timedelta

from keyhouse.cli.output import ALARMS, Part, Report, json_text, number
from keyhouse.cli.reading import Reading
from keyhouse.cli.stored import Stored
from keyhouse.schema.explanation import Explanation, Miss


def reading_report(reading: Reading) -> Report:
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
        parts.append(
            Part("Rows derived from it", [(row.kind, f"`{row.key}`") for row in of.derived])
        )
        parts.append(Part("Its record", [] if is_record else [_record(of)]))
    if reading.looked and reading.stored is None:
        parts.append(Part("Stored", [("nothing", "the key has no row, or it has expired")]))
    if reading.stored is not None:
        parts += _stored(reading.stored, "Rows derived from it" if is_record else "Its records")
        if any(near.state in ALARMS for near in reading.stored.neighbours):
            parts.append(
                Part(
                    "What to do", [("`keyhouse verify --repair`", "mends what is missing or wrong")]
                )
            )
    return Report(of.key, f"{what}{where}.", parts)


def misses_report(key: str, misses: list[Miss]) -> Report:
    nearest = Part("Nearest", [(f"`{miss.template}`", miss.why) for miss in misses])
    return Report(key, "No template builds this key.", [nearest])


def _current(of: Explanation) -> list[tuple[str, str]]:
    return [] if of.current_key is None else [("legacy key of", f"`{of.current_key}`")]


def _record(of: Explanation) -> tuple[str, ...]:
    held = ", ".join(f"`{name}`" for name in of.fields_in_value)
    return of.record, f"`{of.record_key}`", f"with {held} from the row's value" if held else ""


def _stored(stored: Stored, neighbours: str) -> list[Part]:
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
    near = [
        (n.kind, f"`{n.key}`", n.state, "" if n.value is None else _json(n.value))
        for n in stored.neighbours
    ]
    return [Part("Stored", [*rows]), Part(neighbours, [*near])]


def _value(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return f"`{json_text(value)}`"
