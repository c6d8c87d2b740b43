"""`keyhouse explain`: which template a key is of, its fields, and what belongs with it; with a store, what is there."""

from typing import Annotated

import typer

from keyhouse.cli.output import show_json, show_reports
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
    from keyhouse.cli.report import misses_report, reading_report
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
        show_reports([reading_report(reading) for reading in found] or [misses_report(key, misses)])
    if not found:
        raise typer.Exit(1)
