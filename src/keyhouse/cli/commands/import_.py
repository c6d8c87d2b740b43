"""`keyhouse import`: write the rows of an export to a store."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from keyhouse import open_engine
from keyhouse.cli.files import open_file
from keyhouse.cli.options import DryRun, Json, StoreName, SystemName, Yes, examples
from keyhouse.cli.output import Report, number, show
from keyhouse.cli.systems import check_system
from keyhouse.cli.target import engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, confirm, interruptible
from keyhouse.engine import Engine
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.store import ImportResult, import_rows, is_complete_export, stored_spaces

PREFLIGHT_BYTES: Final = 1_024 * 1_024
"""Bytes of a pipe that are checked before a store is created for it."""


@examples(
    "keyhouse import audiobooks rows.jsonl --store rocksdb:library",
    "keyhouse import audiobooks rows.jsonl --store sqlite:library.db --dry-run",
    "keyhouse export rosey -s sqlite:a.db | keyhouse import rosey -s sqlite:b.db",
)
def import_(
    system: SystemName,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The export. Default: standard input.")
    ] = None,
    allow_truncated: Annotated[
        bool,
        typer.Option(
            "--allow-truncated",
            help="Accept an export without its last line, which proves it complete.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Write the rows of an export to a store.

    Existing rows with the same keys are replaced, after confirmation; other rows are unchanged.
    Derived rows of a replaced record are unchanged too: keyhouse verify --repair removes them. A
    damaged or truncated file is rejected before anything is written. If interrupted, run it again:
    it writes only missing rows. From standard input, a store with rows needs --yes.
    """
    check_system(system)
    with interruptible(
        "Interrupted: rows already written stay."
        " Run the same command again: it writes only missing rows."
    ):
        done = asyncio.run(
            _import(store_url(system, store), file, allow_truncated, dry_run=dry_run, yes=yes)
        )
    show(done, lambda done: _report(done, dry_run=dry_run), json=json)


def _report(done: ImportResult, *, dry_run: bool) -> Report:
    unchanged = done.rows - done.written - done.expired
    replaced = f" ({done.replaced:,} replaced)" if done.replaced else ""
    others = f"{unchanged:,} already present, {done.expired:,} expired"
    rows = f"{done.written:,} of {number(done.rows, 'row')}"
    if dry_run:
        text = f"{rows} would be written{replaced}; {others}. Nothing was written."
        return Report("To import", text)
    return Report("Imported", f"{rows} written{replaced}; {others}.")


async def _import(
    url: str, path: Path | None, allow_truncated: bool, *, dry_run: bool, yes: bool
) -> Any:
    with (
        ProgressLine() as line,
        nullcontext(sys.stdin.buffer) if path is None else open_file(path, "rb") as lines,
    ):
        is_file = path is not None and lines.seekable()
        source = _Source(lines, allow_truncated, is_file=is_file, line=line)
        async with engine_at(
            url, existing=dry_run, preflight=None if dry_run else source.preflight
        ) as engine:
            if source.is_file and not dry_run:
                await source.check()
            if not (dry_run or yes):
                await _confirm(engine, url, source)
            return await import_rows(
                engine,
                source.lines(),
                allow_truncated=allow_truncated,
                dry_run=dry_run,
                on_progress=lambda rows: line.update(number(rows, "row")),
            )


class _Source:
    """The export to import.

    A file is checked to its end before anything is written or a store is created. A pipe can be
    read only once, so that only its first lines are checked before a store is created.
    """

    def __init__(
        self, lines: Any, allow_truncated: bool, *, is_file: bool, line: ProgressLine
    ) -> None:
        self.is_file = is_file
        self._lines = lines
        self._allow_truncated = allow_truncated
        self._line = line
        self._first: list[bytes] = []
        self._is_checked = False

    async def check(self) -> None:
        """Reject an invalid file. One whose last line proves it complete is not read."""
        if not self._is_checked:
            is_complete = is_complete_export(self._lines)
            self._lines.seek(0)
            if not is_complete:
                await self.compare(await open_engine("memory:"), "checking")
            self._is_checked = True

    async def preflight(self) -> None:
        if self.is_file:
            await self.check()
        else:
            self._first = self._lines.readlines(PREFLIGHT_BYTES)
            is_all = sum(map(len, self._first)) < PREFLIGHT_BYTES
            await import_rows(
                await open_engine("memory:"),
                self._first,
                allow_truncated=self._allow_truncated or not is_all,
                dry_run=True,
            )

    async def compare(self, engine: Engine, phase: str) -> Any:
        """Return what the import would do to a store."""
        result = await import_rows(
            engine,
            self._lines,
            allow_truncated=self._allow_truncated,
            dry_run=True,
            on_progress=lambda rows: self._line.update(f"{phase}: {number(rows, 'row')}"),
        )
        self._lines.seek(0)
        self._line.clear()
        return result

    def lines(self) -> Iterator[bytes]:
        return chain(self._first, self._lines)


async def _confirm(engine: Engine, url: str, source: _Source) -> None:
    """Ask before existing rows are replaced. An empty store needs no comparison."""
    if not [space async for space in stored_spaces(engine)]:
        return
    if not source.is_file:
        raise UsageError(
            "The store holds rows, which standard input may replace: add --yes, or give a FILE.",
            store=public_url(url),
        )
    result = await source.compare(engine, "comparing")
    if result.replaced:
        confirm(
            f"Replace {number(result.replaced, 'row')} of {public_url(url)} and add "
            f"{result.written - result.replaced:,}? Other rows are unchanged. Only a backup can "
            "undo this.",
            yes=False,
        )
