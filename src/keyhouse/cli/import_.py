"""`keyhouse import`: the rows of an export, into a store."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyhouse.cli.options import DataFolder, DryRun, Json, StoreUrl, Yes, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable

LOOK_BYTES: Final = 1_024 * 1_024
"""How much of a pipe is looked at before a store is made for it."""


@examples(
    "keyhouse import --store rocksdb:library --from rows.jsonl",
    "keyhouse import --store sqlite:library.db --from rows.jsonl --dry-run",
    "keyhouse export --store sqlite:a.db | keyhouse import --store sqlite:b.db",
)
def import_(
    system: SystemOrNone = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="The file to read; without it, standard input."
        ),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="The last line, which proves it whole, may be missing."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Put the rows of an export into a store.

    They go over those that are there; rows that the export does not have stay. Before a row that differs is replaced, it
    says how many there are, and asks. Rows derived from a record that was replaced stay too: keyhouse verify --repair
    takes them away. Of a file that is damaged or cut short nothing is written. Cut off, it is run again, and writes only
    what is not there. From standard input into a store that holds rows, it needs --yes.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports

    with stoppable(
        "Cut off: what was written stays. Run the same command again: it writes only what is not there."
    ):
        done = asyncio.run(_import(system, store, data, source, partial, dry_run, yes))
    if json:
        show_json(done)
        return
    there = done.rows - done.written - done.expired
    over = f", {done.replaced:,} of them over others" if done.replaced else ""
    others = f"{there:,} there already, {done.expired:,} expired"
    if dry_run:
        text = f"{done.written:,} of {number(done.rows, 'row')} would be written{over}; {others}. Nothing was written."
        show_reports([Report("To import", text)])
    else:
        text = f"{done.written:,} of {number(done.rows, 'row')} written{over}; {others}."
        show_reports([Report("Imported", text)])


async def _import(
    system: str | None,
    url: str | None,
    data: Any,
    source: Path | None,
    partial: bool,
    dry_run: bool,
    yes: bool,
) -> Any:
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.store import import_rows

    place = url_of(system, url, data)
    with (
        Line() as line,
        nullcontext(sys.stdin.buffer) if source is None else opened_file(source, "rb") as lines,
    ):
        given = _Given(lines, partial, is_file=source is not None and lines.seekable(), line=line)
        async with opened(
            place, existing=dry_run, rehearse=None if dry_run else given.rehearse
        ) as engine:
            if given.is_file and not dry_run:
                await given.check()
            if not (dry_run or yes):
                await _agree(engine, place, given)
            return await import_rows(
                engine,
                given.rest(),
                allow_truncated=partial,
                dry_run=dry_run,
                on_progress=lambda rows: line.say(number(rows, "row")),
            )


class _Given:
    """What is to be imported: a file, of which nothing is written, and for which no store is made, before it is known to be
    good to its end; or a pipe, which is read once, so that only its first lines are looked at, before a store is made."""

    def __init__(self, lines: Any, partial: bool, *, is_file: bool, line: Line) -> None:
        self.is_file = is_file
        self._lines = lines
        self._partial = partial
        self._line = line
        self._first: list[bytes] = []
        self._is_checked = False

    async def check(self) -> None:
        """Refuse a file that is wrong anywhere. One whose last line proves it whole is not looked into."""
        from keyhouse import open_engine
        from keyhouse.store import is_complete_export

        if not self._is_checked:
            whole = is_complete_export(self._lines)
            self._lines.seek(0)
            if not whole:
                await self.compare(await open_engine("memory:"), "checking")
            self._is_checked = True

    async def rehearse(self) -> None:
        from keyhouse import open_engine
        from keyhouse.store import import_rows

        if self.is_file:
            await self.check()
        else:
            self._first = self._lines.readlines(LOOK_BYTES)
            is_all = sum(map(len, self._first)) < LOOK_BYTES
            await import_rows(
                await open_engine("memory:"),
                self._first,
                allow_truncated=self._partial or not is_all,
                dry_run=True,
            )

    async def compare(self, engine: Any, doing: str) -> Any:
        """What the file would do to this store."""
        from keyhouse.cli.output import number
        from keyhouse.store import import_rows

        would = await import_rows(
            engine,
            self._lines,
            allow_truncated=self._partial,
            dry_run=True,
            on_progress=lambda rows: self._line.say(f"{doing}: {number(rows, 'row')}"),
        )
        self._lines.seek(0)
        self._line.clear()
        return would

    def rest(self) -> Iterator[bytes]:
        return chain(self._first, self._lines)


async def _agree(engine: Any, place: str, given: _Given) -> None:
    """Ask, where rows that are there would be replaced by others. A store without rows is not looked at twice."""
    from keyhouse.cli.asking import ask
    from keyhouse.cli.output import number
    from keyhouse.engines.registry import public_url
    from keyhouse.errors import UsageError

    if not [space async for space in engine.spaces()]:
        return
    if not given.is_file:
        raise UsageError(
            "The store holds rows, and those of standard input may go over them: add --yes, or give a file by --from.",
            store=public_url(place),
        )
    would = await given.compare(engine, "comparing")
    if would.replaced:
        ask(
            f"{number(would.replaced, 'row')} of {public_url(place)} will be replaced by those of the file, and "
            f"{would.written - would.replaced:,} are new; other rows stay. There is no way back but a backup. Go on?",
            yes=False,
        )
