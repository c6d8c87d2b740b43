"""What a store holds, counted: rows and bytes for each space and template."""

from collections.abc import Callable

import msgspec

from keyhouse.cli.place import named_space, schemas_with
from keyhouse.cli.rows import walked
from keyhouse.engine import Engine
from keyhouse.errors import KeyFieldError
from keyhouse.keys import Span
from keyhouse.schema import Record, Schema
from keyhouse.schema.description import kind_of
from keyhouse.service.system import System

_REPORT_ROWS = 500


class TemplateTally(msgspec.Struct):
    """`what`: the record, or the sort of derived row; `unknown` for keys of no template."""

    template: str
    what: str
    rows: int = 0
    bytes: int = 0
    expiring: int = 0


class SpaceTally(msgspec.Struct):
    space: str
    rows: int
    bytes: int
    templates: list[TemplateTally]


class Tally(msgspec.Struct):
    """`templates` are over all spaces."""

    rows: int
    bytes: int
    spaces: list[SpaceTally]
    templates: list[TemplateTally]


async def tally(
    system: System, engine: Engine, space: str | None, on_progress: Callable[[int], None]
) -> Tally:
    """Of one space, or of all that are this system's."""
    space = named_space(space)
    names = [space] if space is not None else [each async for each in engine.spaces()]
    spaces: list[SpaceTally] = []
    totals: dict[str, TemplateTally] = {}
    for name in names:
        counted = await _count(
            _schema_of(system, name), engine, name, lambda rows: on_progress(_rows(spaces) + rows)
        )
        spaces.append(_space_tally(name, counted))
        for template, each in counted.items():
            total = totals.setdefault(template, TemplateTally(template, each.what))
            total.rows += each.rows
            total.bytes += each.bytes
            total.expiring += each.expiring
    in_order = sorted(totals.values(), key=lambda each: (-each.bytes, each.template))
    return Tally(_rows(spaces), sum(each.bytes for each in spaces), spaces, in_order)


def _schema_of(system: System, space: str) -> Schema | None:
    try:
        return schemas_with(system.schemas, space)[0]
    except KeyFieldError:  # it is no space of this system: all that is in it is unknown
        return None


async def _count(
    schema: Schema | None, engine: Engine, space: str, on_progress: Callable[[int], None]
) -> dict[str, TemplateTally]:
    counted: dict[str, TemplateTally] = {}
    seen = 0
    async for row in walked(engine, space, Span()):
        found = None if schema is None else schema.find(row.key)
        template = "" if found is None else found.declared.template.text
        each = counted.get(template)
        if each is None:
            each = counted[template] = TemplateTally(template, "unknown")
            if found is not None:
                is_record = isinstance(found.declared, Record)
                each.what = (
                    found.record.name
                    if is_record
                    else f"{kind_of(found.declared)} of {found.record.name}"
                )
        each.rows += 1
        each.bytes += len(row.key.encode()) + len(row.value)
        each.expiring += row.expires is not None
        seen += 1
        if seen % _REPORT_ROWS == 0:
            on_progress(seen)
    return counted


def _space_tally(space: str, counted: dict[str, TemplateTally]) -> SpaceTally:
    of = sorted(counted.values(), key=lambda each: (-each.bytes, each.template))
    return SpaceTally(space, sum(each.rows for each in of), sum(each.bytes for each in of), of)


def _rows(spaces: list[SpaceTally]) -> int:
    return sum(each.rows for each in spaces)
