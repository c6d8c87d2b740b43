"""The usual derived rows, made fast: those whose keys hold nothing but attributes of the record, and to which every record
contributes alike. Any number of them compile to one function of the record."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keyhouse.keys.template import Template, evaluated


class Plain(NamedTuple):
    """One such row. `sources`: for each field of its key, an expression of the record `v`. `trusted`: fields whose text is
    written as it is. `unless`: an expression that holds for a record that does not earn the row; empty, where all do."""

    template: Template
    sources: tuple[str, ...]
    trusted: tuple[str, ...]
    unless: str
    value: object


def compiled(rows: Sequence[Plain]) -> Callable[[Any], dict[str, Any] | None]:
    """A function that gives the keys of all these rows, each with its value; `None` for a record that does not earn one of
    them. It raises a bare ValueError where a field can't be written, or AttributeError where a part is not there."""
    scope: dict[str, object] = {}
    items = []
    for number, row in enumerate(rows):
        key, names = row.template.expression(row.sources, trusted=row.trusted, mark=f"{number}_")
        scope |= names | {f"v{number}": row.value}
        items.append(f"({key}): v{number}")
    unless = " or ".join(row.unless for row in rows if row.unless)
    made: Callable[[Any], dict[str, Any] | None] = evaluated(
        f"lambda v: {f'None if {unless} else ' if unless else ''}{{{', '.join(items)}}}", scope
    )
    return made
