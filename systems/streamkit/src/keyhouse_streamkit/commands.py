"""`keyhouse streamkit`: its key migration, and files for Cloudflare's wrangler."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from keyhouse.cli.files import open_file
from keyhouse.cli.options import DryRun, Json, StoreName, Yes, examples
from keyhouse.cli.output import Report, number, show_json, show_line, show_reports
from keyhouse.cli.target import engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, confirm

NAME = "streamkit"
CONFLICTS = 1
"""Exit code when a row was left at its v1 key."""

Customers = Annotated[
    list[str] | None,
    typer.Option("--customer", "-c", metavar="ID", help="Only this customer; repeatable."),
]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def streamkit() -> None:
    """Key migration, and files for Cloudflare's wrangler."""


@app.command("migrate-keys")
@examples(
    "keyhouse streamkit migrate-keys --store sqlite:streamkit.db --dry-run",
    "keyhouse streamkit migrate-keys --customer 12345",
)
def migrate_keys(
    customer: Customers = None,
    dry_run: DryRun = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Move every row from its v1 key to its v2 key.

    Copies, verifies, then deletes. The service may run meanwhile. If interrupted, run it again: it
    resumes, and a second run changes nothing. Rows with different values at both keys are left and
    listed. Exit code 1: some were left.
    """
    moved = asyncio.run(_migrate_keys(customer, dry_run, store))
    if json:
        show_json(moved)
    else:
        copied, deleted = sum(each.copied for each in moved), sum(each.deleted for each in moved)
        done = (
            f"{number(copied, 'row')} would be copied"
            if dry_run
            else f"{number(copied, 'row')} copied, {deleted:,} deleted"
        )
        left = [
            f"Left at its v1 key, because the v2 key has a different value: {key}"
            for each in moved
            for key in each.conflicts
        ]
        show_reports(
            [Report("Keys", "\n\n".join([f"{number(len(moved), 'customer')}, {done}.", *left]))]
        )
    if any(each.conflicts for each in moved):
        raise typer.Exit(CONFLICTS)


async def _migrate_keys(customers: list[str] | None, dry_run: bool, store: str | None) -> list[Any]:
    from keyhouse_streamkit.migration import customer_ids, migrate_keys

    moved = []
    with ProgressLine() as line:
        async with engine_at(store_url(NAME, store), existing=True) as engine:
            names = customers or [name async for name in customer_ids(engine)]
            for position, name in enumerate(names, 1):
                which = f"customer {position:,} of {len(names):,}"

                def report(_: str, phase: str, rows: int, which: str = which) -> None:
                    line.update(f"{which}, {phase}: {number(rows, 'row')}")

                moved.append(await migrate_keys(engine, name, dry_run=dry_run, on_progress=report))
    return moved


@app.command()
@examples(
    "keyhouse streamkit export streamkit.json --store sqlite:streamkit.db",
    "wrangler kv bulk put streamkit.json --binding STREAMKIT_KV",
)
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The new file. Default: standard output.")
    ] = None,
    customer: Customers = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Write every config and scene as a file for wrangler.

    `wrangler kv bulk put` and `keyhouse streamkit import` read it.
    """
    count = asyncio.run(_export(customer, file, store))
    if json and file is not None:
        show_line({"entries": count})
    elif file is not None:
        print(f"{_entries(count)} written to {file}.")


async def _export(customers: list[str] | None, path: Path | None, store: str | None) -> int:
    from keyhouse_streamkit.transfer import export_items

    count = 0
    async with engine_at(store_url(NAME, store), existing=True) as engine:
        with (
            nullcontext(sys.stdout.buffer) if path is None else open_file(path, "xb") as file,
            ProgressLine() as line,
        ):
            async for item in export_items(engine, customers or ()):
                file.write((b",\n" if count else b"[\n") + msgspec.json.encode(item))
                count += 1
                line.update(_entries(count))
            file.write(b"\n]\n" if count else b"[]\n")
    return count


@app.command("import")
@examples(
    "keyhouse streamkit import streamkit.json --store sqlite:streamkit.db",
    "wrangler kv bulk get keys.json --binding STREAMKIT_KV > values.json",
    "keyhouse streamkit import values.json",
)
def import_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file. Default: standard input.")
    ] = None,
    keys: Annotated[
        Literal["v1", "v2"],
        typer.Option(metavar="VERSION", help="The version of the keys of new entries: v1 or v2."),
    ] = "v1",
    store: StoreName = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Write the entries of a wrangler file to the store.

    The file is one that `wrangler kv bulk put` reads or `wrangler kv bulk get` writes; its
    timestamps are kept. It is checked completely before anything is written. Asks before entries
    are replaced. If interrupted, run it again.
    """
    done = asyncio.run(_import(file, keys, store, yes))
    if json:
        show_json(done)
    else:
        others = f"{done.unchanged:,} already present, {done.expired:,} expired"
        show_reports([Report("Imported", f"{_entries(done.written)} written; {others}.")])


async def _import(
    path: Path | None, keys: Literal["v1", "v2"], store: str | None, yes: bool
) -> Any:
    from keyhouse_streamkit.transfer import count_replaced, import_items, read_items

    with nullcontext(sys.stdin.buffer) if path is None else open_file(path, "rb") as file:
        entries = read_items(file.read())
    async with engine_at(store_url(NAME, store)) as engine:
        if not yes and (replaced := await count_replaced(engine, entries)):
            confirm(f"Replace {_entries(replaced)}? Only a backup can undo this.", yes=False)
        return await import_items(engine, entries, keys=keys)


def _entries(count: int) -> str:
    return number(count, "entry", "entries")
