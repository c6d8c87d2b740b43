"""`keyhouse explain`: which template a key is of, its fields, and what belongs with it; with a store, what is there."""

import typer

from keyhouse.cli.options import DataFolder, Json, Key, SpaceName, StoreUrl, SystemName, examples
from keyhouse.cli.output import show_json, show_reports
from keyhouse.cli.target import target


@examples(
    "keyhouse explain audiobooks idx:book:tag:fantasy:01HQ3K5V7X9ZB2D4F6G8J0K2M4",
    "keyhouse explain rosey theme --space trivia --store sqlite:bot.db",
)
def explain(
    system: SystemName,
    key: Key,
    space: SpaceName = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Say what a key is, and what belongs with it.

    Its template and fields, its record, and the rows that follow from it. With a store, also what is there:
    revision, TTL, value, and for each row that belongs with it whether it is there and right. Of a derived row, it
    leads back to the records.
    """
    from keyhouse.cli.place import named_space, named_url, schemas_with
    from keyhouse.cli.reading import readings
    from keyhouse.cli.report import misses_report, reading_report
    from keyhouse.keys import check_key
    from keyhouse.schema.explanation import nearest

    check_key(key)
    chosen, space = target(system), named_space(space)
    schemas = schemas_with(chosen.schemas, space)
    url = named_url(system, store, data)
    found, misses = readings(schemas, key, space, None)
    if url is not None and (store or data or all(reading.space for reading in found)):
        found, misses = readings(schemas, key, space, url)
    if not found:
        misses = misses or nearest(schemas, key)
    if json:
        show_json({"key": key, "found": found, "nearest": misses})
    else:
        show_reports([reading_report(reading) for reading in found] or [misses_report(key, misses)])
    if not found:
        raise typer.Exit(1)
