"""`keyhouse stats`: count the rows and bytes of a store by space and template; `keyhouse spaces`:
list its spaces."""

import asyncio
from collections.abc import Callable

import msgspec

from keyhouse import Store
from keyhouse.cli.options import (
    Json,
    JsonLines,
    OptionalSystem,
    SpaceName,
    StoreName,
    SystemName,
    examples,
)
from keyhouse.cli.output import Part, Report, number, one_line, show, show_line
from keyhouse.cli.spaces import Target, find_target, space_name
from keyhouse.cli.systems import load_system
from keyhouse.cli.target import engine_at, store_url
from keyhouse.cli.terminal import ProgressLine
from keyhouse.engine import Engine
from keyhouse.schema import Schema, Space
from keyhouse.service.system import System
from keyhouse.store import stored_spaces

_SPACES_SHOWN = 20
_REPORT_ROWS = 500


class TemplateStats(msgspec.Struct):
    """`what`: the record, or the kind of derived row; `unknown` for keys that match no template."""

    template: str
    what: str
    rows: int = 0
    bytes: int = 0
    expiring: int = 0


class SpaceStats(msgspec.Struct):
    space: str
    rows: int
    bytes: int
    templates: list[TemplateStats]


class StoreStats(msgspec.Struct):
    """`templates` has the sums over all spaces."""

    rows: int
    bytes: int
    spaces: list[SpaceStats]
    templates: list[TemplateStats]


@examples(
    "keyhouse spaces --store sqlite:bot.db",
    "keyhouse spaces rosey",
)
def spaces(
    system: OptionalSystem = None,
    store: StoreName = None,
    json: JsonLines = False,
) -> None:
    """List the spaces that hold rows, in order.

    SYSTEM may be left out with --store, or if the settings of keyhouse serve name only one.
    """
    asyncio.run(_spaces(system, store, json))


async def _spaces(system: str | None, store: str | None, json: bool) -> None:
    async with engine_at(store_url(system, store), existing=True) as engine:
        async for space in stored_spaces(engine):
            if json:
                show_line({"space": space})
            else:
                print(one_line(space))


@examples(
    "keyhouse stats rosey --store sqlite:bot.db",
    "keyhouse stats audiobooks --space main --json",
)
def stats(
    system: SystemName,
    space: SpaceName = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Count rows and bytes by space and template.

    Reads every row, while other programs write. Bytes are those of keys and values, without the
    engine's overhead.
    """
    counted = asyncio.run(_stats(system, space, store))
    show(counted, lambda counted: _report(system, counted), json=json)


def _report(system: str, counted: StoreStats) -> Report:
    spaces = sorted(counted.spaces, key=lambda each: -each.bytes)
    largest = [(f"`{each.space}`", number(each.rows, "row"), _size(each.bytes)) for each in spaces]
    templates = [
        (
            f"`{each.template}`",
            each.what,
            number(each.rows, "row"),
            _size(each.bytes),
            f"{each.expiring:,} expire" if each.expiring else "",
        )
        for each in counted.templates
    ]
    text = (
        f"{number(counted.rows, 'row')} in {number(len(spaces), 'space')}, {_size(counted.bytes)}."
    )
    parts = [Part("Spaces", largest, _SPACES_SHOWN), Part("Templates", templates)]
    return Report(system, text, parts)


def _size(count: int) -> str:
    size, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1_024 and len(units) > 1:
        size /= 1_024
        units.pop(0)
    return f"{size:,.0f} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"


async def _stats(system: str, space: str | None, store: str | None) -> StoreStats:
    loaded = load_system(system)
    with ProgressLine() as line:
        async with engine_at(store_url(system, store), existing=True) as engine:
            return await count_store(
                loaded, engine, space_name(space), lambda rows: line.update(number(rows, "row"))
            )


async def count_store(
    system: System, engine: Engine, space: str | None, on_progress: Callable[[int], None]
) -> StoreStats:
    """Count one space, or all spaces."""
    names = [space] if space is not None else [each async for each in stored_spaces(engine)]
    no_records = Schema("unknown", space=Space("any space"))  # for spaces of other systems
    spaces: list[SpaceStats] = []
    totals: dict[str, TemplateStats] = {}
    for name in names:
        target = find_target(system, name) or Target(no_records, name)
        counted = await _count(target.store(engine), lambda rows: on_progress(_rows(spaces) + rows))
        templates = _by_size(counted)
        spaces.append(
            SpaceStats(
                name,
                sum(each.rows for each in templates),
                sum(each.bytes for each in templates),
                templates,
            )
        )
        for template, each in counted.items():
            total = totals.setdefault(template, TemplateStats(template, each.what))
            total.rows += each.rows
            total.bytes += each.bytes
            total.expiring += each.expiring
    return StoreStats(_rows(spaces), sum(each.bytes for each in spaces), spaces, _by_size(totals))


async def _count(store: Store, on_progress: Callable[[int], None]) -> dict[str, TemplateStats]:
    counted: dict[str, TemplateStats] = {}
    rows = 0
    async for row in store.row_scan():
        match = store.schema.find(row.key)
        template = "" if match is None else match.declared.template.text
        each = counted.get(template)
        if each is None:
            each = counted[template] = TemplateStats(template, "unknown")
            if match is not None:
                is_record = match.is_record
                each.what = (
                    match.record.name
                    if is_record
                    else f"{match.declared.declared.kind} of {match.record.name}"
                )
        each.rows += 1
        each.bytes += len(row.key.encode()) + len(row.value)
        each.expiring += row.expires is not None
        rows += 1
        if rows % _REPORT_ROWS == 0:
            on_progress(rows)
    return counted


def _by_size(counted: dict[str, TemplateStats]) -> list[TemplateStats]:
    return sorted(counted.values(), key=lambda each: (-each.bytes, each.template))


def _rows(spaces: list[SpaceStats]) -> int:
    return sum(each.rows for each in spaces)
