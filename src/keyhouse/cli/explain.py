"""`keyhouse explain`: which template a key is of, its fields, and what belongs with it; with a store, what is there."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from keyhouse.cli.output import Part, Report, show_json, show_reports
from keyhouse.cli.target import SYSTEM_HELP, system_names, target


def explain(
    system: Annotated[str, typer.Argument(help=SYSTEM_HELP, autocompletion=system_names)],
    key: Annotated[str, typer.Argument(help="The key, as it is stored.")],
    space: Annotated[str | None, typer.Option(help="The space that the key is in.")] = None,
    store: Annotated[str | None, typer.Option(help="Read the row too, from this engine: sqlite:data.db")] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Say what a key is: its template and fields, its record, and the rows that belong with it."""
    from keyhouse.cli.reading import readings, schemas_with
    from keyhouse.keys import check_key
    from keyhouse.schema.explanation import nearest

    check_key(key)
    schemas = schemas_with(target(system).schemas, space)
    found, misses = readings(schemas, key, space, store)
    if not found:
        misses = misses or nearest(schemas, key)
    if json:
        show_json({"key": key, "found": found, "nearest": misses})
    else:
        show_reports([_report(reading) for reading in found] or [_no_report(key, misses)])
    if not found:
        raise typer.Exit(1)


def _no_report(key: str, misses: Any) -> Report:
    return Report(key, "No template builds this key.", [Part("Nearest", [(f"`{m.template}`", m.why) for m in misses])])


def _report(reading: Any) -> Report:
    of = reading.explanation
    where = f" in the space `{reading.space}`" if reading.space else ""
    if of.record_key is None:
        what = f"The {of.kind} `{of.record}`{where}."
    else:
        what = f"A derived row ({of.kind}) of the record `{of.record}`{where}."
    parts = [
        Part("Key", [("schema", of.schema), ("template", f"`{of.template}`")]),
        Part("Fields", [(field.name, _shown(field.value), field.type) for field in of.fields]),
        Part("Rows derived from it", [(row.kind, f"`{row.key}`") for row in of.earns if not reading.stored]),
        Part("Its record", _record_rows(of) if not reading.stored else []),
    ]
    return Report(of.key, what, parts + _stored_parts(reading))


def _record_rows(of: Any) -> list[tuple[str, ...]]:
    if of.record_key is None:
        return []
    held = ", ".join(f"`{name}`" for name in of.held)
    return [(of.record, f"`{of.record_key}`", f"with {held} from the row's value" if held else "")]


def _stored_parts(reading: Any) -> list[Part]:
    if not reading.looked:
        return []
    stored = reading.stored
    if stored is None:
        return [Part("Stored", [("nothing", "the key has no row, or it has expired")])]
    until = "" if stored.expires is None else f"{timedelta(seconds=stored.seconds_left)} left, until {stored.expires}"
    rows = [("revision", str(stored.revision)), ("TTL", until or "none"), ("size", f"{stored.value_bytes:,} bytes")]
    rows.append(("unreadable", stored.unreadable) if stored.unreadable else ("value", _json(stored.value)))
    title = "Its records" if reading.explanation.record_key is not None else "Rows derived from it"
    near = [(n.kind, f"`{n.key}`", n.state, "" if n.value is None else _json(n.value)) for n in stored.neighbours]
    return [Part("Stored", list(rows)), Part(title, list(near))]


def _shown(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"
